package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"
)

// contender is one way to hold locks on a set of servers.
type contender struct {
	name string
	// patient says that it waits for every node, so that a frozen one costs it
	// seconds and only few rounds of it can be had.
	patient bool
	take    func(ctx context.Context, lock string) (held, error)
}

// held is a lock that was taken.
type held struct {
	renew   func(ctx context.Context) error
	release func(ctx context.Context) error
}

// contenders are both kinds of podlease and of redsync, each with connections of its own.
func contenders(r *rig, servers []*redistest.Server, ttl time.Duration) []contender {
	return []contender{
		podlease(ourName, newLocker(r, servers, redlock.Options{TTL: ttl, Identity: "bench"})),
		podlease(unfenced, newLocker(r, servers, redlock.Options{TTL: ttl, Identity: "bench", NoFencing: true})),
		redsyncContender("redsync fail-fast", newRedsync(r, servers, nil), redsync.WithExpiry(ttl), redsync.WithFailFast(true)),
		redsyncContender("redsync", newRedsync(r, servers, nil), redsync.WithExpiry(ttl)),
	}
}

// What podlease is called in the report: with fencing tokens, which redsync has not, and
// without, as with --fencing=off and --fencing=kubernetes.
const (
	ourName  = "podlease"
	unfenced = "podlease no fencing"
)

func podlease(name string, locker *redlock.Locker) contender {
	return contender{name: name, take: func(ctx context.Context, lock string) (held, error) {
		lease, err := locker.Acquire(ctx, lock)
		if err != nil {
			return held{}, err
		}
		return held{renew: lease.Renew, release: lease.Release}, nil
	}}
}

// newLocker makes a locker with connections of its own.
func newLocker(r *rig, servers []*redistest.Server, opt redlock.Options) *redlock.Locker {
	if opt.KeyPrefix == "" {
		opt.KeyPrefix = "podlease:"
	}
	locker, err := redlock.New(podleaseNodes(r, servers, nil), opt)
	if err != nil {
		r.Fatalf("make a locker: %w", err)
	}
	return locker
}

func podleaseNodes(r *rig, servers []*redistest.Server, through func(addr string) string) []redlock.Node {
	var nodes []redlock.Node
	for _, s := range servers {
		addr := s.Addr()
		if through != nil {
			addr = through(addr)
		}
		node, err := redisnode.New(redisnode.Config{Address: addr})
		if err != nil {
			r.Fatalf("make a node: %w", err)
		}
		r.Cleanup(func() { _ = node.Close() })
		nodes = append(nodes, node)
	}
	return nodes
}

var errNotHeld = errors.New("not held any more")

func redsyncContender(name string, rs *redsync.Redsync, opt ...redsync.Option) contender {
	return contender{name: name, patient: name == "redsync", take: func(ctx context.Context, lock string) (held, error) {
		mutex := rs.NewMutex(lock, opt...)
		if err := mutex.TryLockContext(ctx); err != nil {
			return held{}, err
		}
		return held{renew: told(mutex.ExtendContext), release: told(mutex.UnlockContext)}, nil
	}}
}

// told turns redsync's pair of answers into an error.
func told(call func(context.Context) (bool, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		ok, err := call(ctx)
		if err == nil && !ok {
			err = errNotHeld
		}
		if ok {
			return nil
		}
		return fmt.Errorf("redsync: %w", err)
	}
}

// newRedsync uses go-redis as redsync's own README does, with its defaults.
func newRedsync(r *rig, servers []*redistest.Server, through func(addr string) string) *redsync.Redsync {
	var pools []redsyncredis.Pool
	for _, s := range servers {
		addr := s.Addr()
		if through != nil {
			addr = through(addr)
		}
		client := redis.NewClient(&redis.Options{Addr: addr})
		r.Cleanup(func() { _ = client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	return redsync.New(pools...)
}
