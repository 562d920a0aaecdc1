package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	contenders = 50
	increments = 10_000
	perTerm    = 20 // at most
	changes    = 500
)

// tally is a counter that is read and then written, on a server of its own, by many.
type tally struct {
	client *redis.Client
	left   atomic.Int64 // increments to be made
	half   chan struct{}

	mu      sync.Mutex
	holders []int         // in the order of their terms
	next    chan struct{} // closed when another term begins, or all is done
}

func newTally() *tally {
	GinkgoHelper()
	t := &tally{client: redistest.Start(GinkgoTB()).Client(), half: make(chan struct{}), next: make(chan struct{})}
	t.left.Store(increments)
	return t
}

// increment adds one, without any protection; false when all have been made.
func (t *tally) increment(ctx context.Context) (bool, error) {
	left := t.left.Add(-1)
	if left < 0 {
		t.turn()
		return false, nil
	}
	if left == increments/2 {
		close(t.half)
	}
	value, err := t.client.Get(ctx, "counter").Int()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return false, err
	}
	runtime.Gosched()
	return true, t.client.Set(ctx, "counter", value+1, 0).Err()
}

func (t *tally) value(ctx context.Context) int {
	GinkgoHelper()
	value, err := t.client.Get(ctx, "counter").Int()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// began notes a term. What it returns is closed when the next one begins.
func (t *tally) began(who int) (next <-chan struct{}) {
	next = t.turn()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holders = append(t.holders, who)
	return next
}

// turn tells those that wait for another term.
func (t *tally) turn() (next <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.next)
	t.next = make(chan struct{})
	return t.next
}

func (t *tally) changes() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 1; i < len(t.holders); i++ {
		if t.holders[i] != t.holders[i-1] {
			n++
		}
	}
	return n
}

// contender is one that increments under the lease.
type contender struct {
	id     int
	locker *redlock.Locker
	tally  *tally
	rng    *rand.Rand
}

func newContender(id int, servers []*redistest.Server, t *tally) *contender {
	GinkgoHelper()
	const ttl = 3 * time.Second
	var nodes []redlock.Node
	for _, s := range servers {
		n, err := redisnode.New(redisnode.Config{Address: s.Addr(), NodeTimeout: ttl / 10})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(n.Close)
		nodes = append(nodes, n)
	}
	locker, err := redlock.New(nodes, redlock.Options{
		TTL: ttl, StopBudget: ttl / 4, NodeTimeout: ttl / 10, Quarantine: ttl + time.Second,
		KeyPrefix: "podlease:", Identity: fmt.Sprintf("contender-%d", id),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(locker.Close)
	return &contender{id: id, locker: locker, tally: t, rng: rand.New(rand.NewPCG(1, uint64(id)))}
}

// work takes the lease again and again, until nothing is left to be done.
func (c *contender) work(ctx context.Context) error {
	for c.tally.left.Load() > 0 {
		lease, err := c.locker.Acquire(ctx, "counter")
		if err != nil {
			return err
		}
		next := c.tally.began(c.id)
		if err := c.term(ctx, lease); err != nil {
			return err
		}
		// A node that is down does not answer, and keeps nobody waiting.
		_ = lease.Release(ctx)
		select { // let others go first
		case <-next:
		case <-ctx.Done():
		}
	}
	return nil
}

func (c *contender) term(ctx context.Context, lease *redlock.Lease) error {
	for range perTerm/2 + c.rng.IntN(perTerm/2+1) {
		if !lease.Holding() {
			return nil
		}
		if more, err := c.tally.increment(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}

// together runs as many workers as there are contenders, and something when half of the
// work is done.
func (t *tally) together(worker func(i int) error, half func()) {
	GinkgoHelper()
	var running sync.WaitGroup
	failed := make(chan error, contenders)
	for i := range contenders {
		running.Go(func() {
			if err := worker(i); err != nil {
				failed <- err
			}
		})
	}
	select {
	case <-t.half:
		half()
	case err := <-failed:
		Fail(err.Error())
	}
	running.Wait()
	Expect(failed).To(BeEmpty())
}

var _ = Describe("A counter that is read and then written by many", func() {
	for _, size := range []int{1, 3, 5} {
		It(fmt.Sprintf("is exact under the lease, although a node of %d is killed half way", size), func(ctx SpecContext) {
			servers := redistest.Cluster(GinkgoTB(), size)
			t := newTally()
			all := make([]*contender, contenders)
			for i := range all {
				all[i] = newContender(i, servers, t)
			}
			began := boottime.Now()
			t.together(func(i int) error { return all[i].work(ctx) }, func() {
				servers[0].Kill()
				if size == 1 {
					servers[0].Restart(true) // nobody could go on without
				}
			})
			tellFigures(fmt.Sprintf("counter on %d nodes", size), fmt.Sprintf("%d, %d terms, %d changes of holder among %d, in %v",
				t.value(ctx), len(t.holders), t.changes(), contenders, (boottime.Now()-began).Round(time.Millisecond)))
			Expect(t.value(ctx)).To(Equal(increments))
			Expect(t.changes()).To(BeNumerically(">=", changes))
		}, SpecTimeout(10*behaviour.Patience))
	}

	It("loses increments without the lease", func(ctx SpecContext) {
		t := newTally()
		t.together(func(int) error {
			for {
				if more, err := t.increment(ctx); err != nil || !more {
					return err
				}
			}
		}, func() {})
		tellFigures("counter without the lease", t.value(ctx))
		Expect(t.value(ctx)).To(BeNumerically("<", increments))
	}, SpecTimeout(behaviour.Patience))
})
