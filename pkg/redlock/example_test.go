package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
)

// threeNodes starts embedded Redis servers in place of real ones.
func threeNodes() (nodes []redlock.Node, end func()) {
	var closers []func()
	for range 3 {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			log.Fatal(err)
		}
		node, err := redisnode.New(redisnode.Config{Address: server.Addr()})
		if err != nil {
			log.Fatal(err)
		}
		nodes = append(nodes, node)
		closers = append(closers, func() { _ = node.Close() }, server.Close)
	}
	return nodes, func() {
		for _, f := range closers {
			f()
		}
	}
}

// Acquire waits for the lease. Whoever acts under it asks before each step whether it
// is still held, and gives storage the fencing token to compare. The release is deferred
// and has a context of its own: that of the work may be over by then.
func Example() {
	nodes, end := threeNodes()
	defer end()
	locker, err := redlock.New(nodes, redlock.Options{
		TTL: 10 * time.Second, StopBudget: 2 * time.Second, KeyPrefix: "podlease:", Identity: "importer-1",
		Quarantine: 0, // these nodes are new and never restart; use 31 s with real ones
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lease, err := locker.Acquire(ctx, "imports/daily")
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		release, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := lease.Release(release); err != nil {
			log.Print(err)
		}
		fmt.Println("holding after the release:", lease.Holding())
	}()

	for step := range 3 {
		if !lease.Holding() {
			log.Fatal("the lease is over: stop")
		}
		fmt.Printf("step %d, token above zero: %v\n", step+1, lease.FencingToken() > 0)
	}
	// Output:
	// step 1, token above zero: true
	// step 2, token above zero: true
	// step 3, token above zero: true
	// holding after the release: false
}

// TryAcquire asks once, and tells who is in the way.
func ExampleLocker_TryAcquire() {
	nodes, end := threeNodes()
	defer end()
	first, _ := redlock.New(nodes, redlock.Options{TTL: 10 * time.Second, KeyPrefix: "podlease:", Identity: "first"})
	second, _ := redlock.New(nodes, redlock.Options{TTL: 10 * time.Second, KeyPrefix: "podlease:", Identity: "second"})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := first.Acquire(ctx, "reports"); err != nil {
		log.Fatal(err)
	}

	_, err := second.TryAcquire(ctx, "reports")
	if held, ok := errors.AsType[*redlock.HeldError](err); ok {
		fmt.Println("held by", held.Holder)
	}
	// Output: held by first
}

// Keep renews a lease for as long as its work goes on, and returns when the lease is
// lost, so that the work can be ended in time.
func ExampleLease_Keep() {
	nodes, end := threeNodes()
	defer end()
	locker, _ := redlock.New(nodes, redlock.Options{TTL: time.Second, KeyPrefix: "podlease:", Identity: "worker"})
	defer locker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lease, err := locker.Acquire(ctx, "work")
	if err != nil {
		log.Fatal(err)
	}

	work, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- lease.Keep(work) // returns an error when the lease is lost, nil when work is over
		stop()                    // a lost lease ends the work
	}()
	time.Sleep(1500 * time.Millisecond) // the work: longer than the lease lasts by itself
	fmt.Println("holding:", lease.Holding())
	stop()
	fmt.Println("error:", <-ended)
	_ = lease.Release(context.WithoutCancel(ctx))
	// Output:
	// holding: true
	// error: <nil>
}
