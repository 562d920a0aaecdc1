package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

const (
	ttl        = 10 * time.Second
	stopBudget = 2500 * time.Millisecond
	quarantine = 31 * time.Second
	old        = time.Hour // the age of servers that are mature
)

// world is a set of servers in a bubble of virtual time.
type world struct {
	t       *testing.T
	servers []*redlocktest.Server
	start   time.Time
}

// bubble runs f in virtual time with n mature servers.
func bubble(t *testing.T, n int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now()}
		for i := range n {
			w.servers = append(w.servers, redlocktest.NewServer(fmt.Sprintf("node-%d", i+1), old))
		}
		f(w)
	})
}

// client is one process: a locker with connections of its own.
type client struct {
	*redlock.Locker
	nodes []*redlocktest.Node
}

func (w *world) client(name string, change ...func(*redlock.Options)) *client {
	w.t.Helper()
	c := &client{}
	nodes := make([]redlock.Node, len(w.servers))
	for i, s := range w.servers {
		n := s.Connect()
		c.nodes, nodes[i] = append(c.nodes, n), n
	}
	c.Locker = w.locker(name, nodes, change...)
	return c
}

// locker is that of a process that speaks to these nodes.
func (w *world) locker(name string, nodes []redlock.Node, change ...func(*redlock.Options)) *redlock.Locker {
	w.t.Helper()
	opt := redlock.Options{
		TTL: ttl, StopBudget: stopBudget, Quarantine: quarantine, KeyPrefix: "podlease:", Identity: name,
		Clock: func() time.Duration { return time.Since(w.start) + time.Hour },
	}
	for _, f := range change {
		f(&opt)
	}
	l, err := redlock.New(nodes, opt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.Close)
	return l
}

func (w *world) acquire(c *client) *redlock.Lease {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	le, err := c.Acquire(ctx, "orders")
	if err != nil {
		w.t.Fatal(err)
	}
	return le
}

// acquiring starts to acquire, and returns where the lease will be.
func (w *world) acquiring(ctx context.Context, c *client) <-chan *redlock.Lease {
	got := make(chan *redlock.Lease, 1)
	go func() {
		if le, err := c.Acquire(ctx, "orders"); err == nil {
			got <- le
		}
	}()
	return got
}

func TestAcquireReleaseAndFencingTokensThatGrow(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		var last uint64
		for i := range 20 {
			c := a
			if i%2 == 1 {
				c = b
			}
			le := w.acquire(c)
			if !le.Holding() || le.FencingToken() <= last {
				t.Fatalf("term %d: holding %v, token %d after %d", i, le.Holding(), le.FencingToken(), last)
			}
			last = le.FencingToken()
			if err := le.Release(context.Background()); err != nil {
				t.Fatal(err)
			}
			if le.Holding() {
				t.Fatal("holding after the release")
			}
			for _, s := range w.servers {
				if v := s.Value("podlease:orders"); v != "" {
					t.Fatalf("key %q left behind", v)
				}
			}
		}
	})
}

func TestTryAcquireNamesTheHolder(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("shop/orders-1"), w.client("b")
		w.acquire(a)
		_, err := b.TryAcquire(context.Background(), "orders")
		var held *redlock.HeldError
		if !errors.As(err, &held) || held.Holder != "shop/orders-1" || held.Remaining <= 9*time.Second {
			t.Fatalf("error %v", err)
		}
	})
}

func TestKeepRenewsAndAStandbyWaits(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		for i, n := range b.nodes { // so that the answers to one attempt do not come together
			n.Delay(func() time.Duration { return time.Duration(i+1) * time.Millisecond })
		}
		ctx, cancel := context.WithCancel(context.Background())
		le := w.acquire(a)
		kept := make(chan error, 1)
		go func() { kept <- le.Keep(ctx) }()
		waiting := w.acquiring(ctx, b)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		select {
		case <-waiting:
			t.Fatal("a standby got a lease that is kept")
		default:
		}
		if !le.Holding() {
			t.Fatal("lost a lease that is kept")
		}
		// One take per node and TTL is what waiting may cost: its timer is the PTTL.
		renewals := int(10 * time.Minute / (ttl / 5))
		for _, s := range w.servers {
			sent := s.Handled(redlock.OpTake) + s.Handled(redlock.OpProbe) + s.Handled(redlock.OpRelease) - renewals
			if perTTL := float64(sent) / float64(10*time.Minute/ttl); perTTL > 1.5 {
				t.Errorf("a standby sends %.2f requests per TTL to %s, want at most 1.5", perTTL, s.Name())
			}
		}
		cancel()
		if err := <-kept; err != nil {
			t.Fatalf("Keep ended with %v although its context ended", err)
		}
	})
}

func TestReleaseWakesAStandbyWithinTwoRoundTrips(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		const oneWay = time.Millisecond
		for _, n := range append(a.nodes, b.nodes...) {
			n.Delay(func() time.Duration { return oneWay })
		}
		le := w.acquire(a)
		waiting := w.acquiring(context.Background(), b)
		time.Sleep(time.Second)
		start := time.Now()
		go func() { _ = le.Release(context.Background()) }()
		next := <-waiting
		if took := time.Since(start); took > 4*oneWay+time.Millisecond/2 {
			t.Fatalf("hand-over took %v, want two round trips of %v", took, 2*oneWay)
		}
		if next.FencingToken() <= le.FencingToken() {
			t.Fatal("the token did not grow")
		}
	})
}

// counting counts the takes that are sent to a node.
type counting struct {
	*redlocktest.Node
	takes atomic.Int32
}

func (n *counting) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	if req.Op == redlock.OpTake {
		n.takes.Add(1)
	}
	n.Node.Send(ctx, req, done)
}

func TestTheNearestNodesNoticeSetsATakeOffAtAllAndOneIsEnough(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a := w.client("a")
		var counted []*counting
		var nodes []redlock.Node
		const near, far = time.Millisecond, 5 * time.Millisecond // one way
		for i, s := range w.servers {
			n := &counting{Node: s.Connect()}
			delay := func() time.Duration { return far }
			if i == 0 {
				delay = func() time.Duration { return near }
			}
			n.Delay(delay)
			a.nodes[i].Delay(delay)
			counted, nodes = append(counted, n), append(nodes, n)
		}
		standby := &client{Locker: w.locker("standby", nodes)}
		le := w.acquire(a)
		waiting := w.acquiring(context.Background(), standby)
		time.Sleep(time.Second)
		for _, n := range counted {
			n.takes.Store(0)
		}
		start := time.Now()
		go func() { _ = le.Release(context.Background()) }()
		<-waiting
		if took := time.Since(start); took > 2*near+2*far+time.Millisecond/2 {
			t.Errorf("hand-over took %v, want the way of the nearest notice, %v, and a round trip to the others, %v", took, 2*near, 2*far)
		}
		time.Sleep(100 * time.Millisecond)
		for i, n := range counted {
			if takes := n.takes.Load(); takes != 1 {
				t.Errorf("node %d was asked %d times for its vote, want once: it gave it", i+1, takes)
			}
		}
	})
}

// listener is a node whose notices come on a connection of their own.
type listener struct {
	*redlocktest.Node
	notices *redlocktest.Node
	deaf    bool
}

func (n *listener) Subscribe(ctx context.Context, channel string, deliver func(redlock.Notice)) {
	if n.deaf {
		<-ctx.Done()
		return
	}
	n.notices.Subscribe(ctx, channel, deliver)
}

// listening is a client whose nodes notice in ways that the test says.
func (w *world) listening(name string, change func(i int, n *listener)) *client {
	w.t.Helper()
	nodes := make([]redlock.Node, len(w.servers))
	for i, s := range w.servers {
		n := &listener{Node: s.Connect(), notices: s.Connect()}
		change(i, n)
		nodes[i] = n
	}
	return &client{Locker: w.locker(name, nodes)}
}

// handOver lets a release its lease at that time while b waits, and returns how long b
// waited for it.
func (w *world) handOver(le *redlock.Lease, b *client, after time.Duration) time.Duration {
	waiting := w.acquiring(context.Background(), b)
	time.Sleep(after)
	start := time.Now()
	go func() { _ = le.Release(context.Background()) }()
	<-waiting
	return time.Since(start)
}

func TestAStandbyThatHearsOneNodeOnlyIsNotKeptWaitingByReleasesThatComeLater(t *testing.T) {
	for _, later := range []time.Duration{0, 300 * time.Microsecond, 600 * time.Microsecond, time.Millisecond, 2 * time.Millisecond} {
		bubble(t, 3, func(w *world) {
			const oneWay = 200 * time.Microsecond
			a := w.client("a")
			for i, n := range a.nodes {
				way := oneWay
				if i > 0 {
					way += later
				}
				n.Delay(func() time.Duration { return way })
			}
			b := w.listening("b", func(i int, n *listener) {
				n.Delay(func() time.Duration { return oneWay })
				n.notices.Delay(func() time.Duration { return oneWay })
				n.deaf = i > 0
			})
			if took := w.handOver(w.acquire(a), b, time.Second); took > 10*time.Millisecond {
				t.Errorf("two of three nodes released %v later than the third, and b heard only that one: the hand-over took %v", later, took)
			}
		})
	}
	bubble(t, 3, func(w *world) { // later than an attempt waits
		a := w.client("a")
		le := w.acquire(a)
		for _, n := range a.nodes[1:] {
			n.Delay(func() time.Duration { return 150 * time.Millisecond })
		}
		b := w.listening("b", func(i int, n *listener) { n.deaf = i > 0 })
		if took, limit := w.handOver(le, b, 3*time.Second), 5*b.Options().NodeTimeout; took > limit {
			t.Errorf("two of three nodes released 150ms later than the third, and b heard only that one: the hand-over took %v, want at most %v: the looks after a release", took, limit)
		}
	})
}

func TestASubscriptionThatComesUpDuringAnAttemptIsNotMissed(t *testing.T) {
	for later := 3 * time.Millisecond; later <= 6*time.Millisecond; later += time.Millisecond {
		bubble(t, 3, func(w *world) {
			const oneWay = time.Millisecond
			a := w.client("a")
			le := w.acquire(a)
			for i, n := range a.nodes {
				if i > 0 {
					n.Delay(func() time.Duration { return later })
				}
			}
			const comesUp = 1500 * time.Millisecond
			b := w.listening("b", func(i int, n *listener) {
				first := true
				n.Delay(func() time.Duration { return oneWay })
				n.notices.Delay(func() time.Duration {
					if i > 0 && first {
						first = false
						return comesUp
					}
					return oneWay
				})
			})
			if took := w.handOver(le, b, comesUp-4*time.Millisecond); took > 20*time.Millisecond {
				t.Errorf("two of three nodes released after %v, and b was not listening to them yet: the hand-over took %v", later, took)
			}
		})
	}
}

// A holder with the votes of all nodes that answer is known to a standby, which does not take
// it for one of several that split the votes.
func TestAStandbyKnowsTheHolderAlthoughANodeIsDown(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		for i, n := range b.nodes[:2] { // a connection that is refused is so at once
			n.Delay(func() time.Duration { return time.Duration(i+1) * time.Millisecond })
		}
		le := w.acquire(a)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _ = le.Keep(ctx) }()
		down := &redlock.NodeError{Node: "node-3", Kind: redlock.KindConnection, Err: fmt.Errorf("refused: %w", redlock.ErrNotSent)}
		w.servers[2].Fail(func(redlock.Request) error { return down })
		_, err := b.TryAcquire(ctx, "orders")
		if held, ok := errors.AsType[*redlock.HeldError](err); !ok || held.Holder != "a" {
			t.Errorf("error %v, want that a holds it", err)
		}
		c := b.Contest("orders")
		go func() { _, _ = c.Acquire(ctx) }()
		for s := range 60 {
			time.Sleep(time.Second)
			if v := c.View(); v.Holder != "a" {
				t.Fatalf("after %d s the standby says of the holder %q: %s", s+1, v.Holder, v.Reason)
			}
		}
		if n := c.Attempts(); n[redlock.ResultSplit] > 0 || n[redlock.ResultHeld] > 12 {
			t.Errorf("attempts %v, want no split votes and about one a TTL", n)
		}
	})
}

func TestASlowNodeIsHeardBeforeItIsSaidThatNobodyHolds(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		w.acquire(a)
		_, _ = b.TryAcquire(context.Background(), "another") // so that b knows how fast the nodes are
		b.nodes[1].Delay(func() time.Duration { return b.Options().NodeTimeout / 3 })
		w.servers[2].Freeze()
		_, err := b.TryAcquire(context.Background(), "orders")
		if held, ok := errors.AsType[*redlock.HeldError](err); !ok || held.Holder != "a" {
			t.Errorf("error %v, want that a holds it", err)
		}
	})
}

func TestAnAttemptThatTooFewNodesAnswerIsNoSplitVote(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		le := w.acquire(a)
		ctx, cancel := context.WithTimeout(context.Background(), 5*ttl)
		defer cancel()
		go func() { _ = le.Keep(ctx) }()
		c := b.Contest("orders")
		time.AfterFunc(ttl/2, func() {
			for _, n := range b.nodes[1:] {
				n.Cut(true)
			}
		})
		_, _ = c.Acquire(ctx)
		if n := c.Attempts(); n[redlock.ResultSplit] > 0 || n[redlock.ResultNoQuorum] == 0 {
			t.Errorf("attempts %v, want no quorum: one of three nodes answers", n)
		}
	})
}

func TestCrashedHolderIsReplacedWhenItsKeysRunOutAndNotBefore(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		le := w.acquire(a) // and never renewed
		deadline := le.Deadline()
		next := <-w.acquiring(context.Background(), b)
		now := b.Now()
		if now < deadline {
			t.Fatalf("taken over %v before the holder's deadline", deadline-now)
		}
		if late := now - deadline - ttl/100; late > 10*time.Millisecond {
			t.Fatalf("taken over %v after the keys ran out", late)
		}
		if le.Holding() || !next.Holding() {
			t.Fatal("wrong holder")
		}
	})
}

// A process that was killed and starts again under its identity lets others go first.
func TestARestartedHolderLetsOthersGoFirst(t *testing.T) {
	for range 5 {
		bubble(t, 3, func(w *world) {
			le := w.acquire(w.client("a")) // and is killed
			again, b := w.acquiring(context.Background(), w.client("a")), w.acquiring(context.Background(), w.client("b"))
			select {
			case next := <-b:
				_ = next.Release(context.Background())
			case <-again:
				t.Fatal("the process that died got the lease again although another one waited")
			}
			<-again
			_ = le
		})
	}
}

func TestARestartedHolderThatIsAloneGetsTheLeaseAgain(t *testing.T) {
	bubble(t, 3, func(w *world) {
		start := time.Now()
		w.acquire(w.client("a"))
		w.acquire(w.client("a"))
		if took := time.Since(start); took > ttl+ttl/10 {
			t.Fatalf("took %v", took)
		}
	})
}

func TestOneNodeDownOrFrozenChangesNothing(t *testing.T) {
	for i := range 3 {
		bubble(t, 3, func(w *world) {
			a := w.client("a")
			w.servers[i].Freeze()
			le := w.acquire(a)
			for range 50 {
				start := time.Now()
				if err := le.Renew(context.Background()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > 0 {
					t.Fatalf("a renewal waited %v for a frozen node", took)
				}
				time.Sleep(2 * time.Second)
			}
			w.servers[i].Thaw()
			_ = le.Release(context.Background())
			synctest.Wait()
			time.Sleep(2 * ttl)
			if v := w.servers[i].Value("podlease:orders"); v != "" {
				t.Fatalf("key %q left on the thawed node", v)
			}
		})
	}
}

func TestWithoutAQuorumTheLeaseEndsBeforeItsTTL(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a := w.client("a")
		le := w.acquire(a)
		start := time.Now()
		a.nodes[0].Cut(true)
		a.nodes[1].Cut(true)
		err := le.Keep(context.Background())
		if !errors.Is(err, redlock.ErrLost) {
			t.Fatalf("error %v, want ErrLost", err)
		}
		if took := time.Since(start); took > ttl-stopBudget || took < ttl-stopBudget-3*time.Second {
			t.Fatalf("ended after %v", took)
		}
		a.nodes[0].Cut(false)
		again := w.acquire(a)
		if again.FencingToken() <= le.FencingToken() {
			t.Fatal("the token of the new term did not grow")
		}
	})
}

// Review A.2 and the rule that replaced the draft: a holder keeps its term through
// restarts of any number of nodes, because the keys that were lost were its own.
func TestRestartsOfAllNodesCostTheHolderNothing(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		bubble(t, n, func(w *world) {
			a, b := w.client("a"), w.client("b")
			le := w.acquire(a)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() { _ = le.Keep(ctx) }()
			waiting := w.acquiring(ctx, b)
			time.Sleep(5 * time.Second)
			for _, s := range w.servers {
				s.Restart()
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if !le.Holding() {
				t.Fatalf("%d nodes: lost the lease through a restart of all of them", n)
			}
			select {
			case <-waiting:
				t.Fatal("two holders")
			default:
			}
		})
	}
}

// Review A.1: node 2 restarts empty, node 3 never answered A: B must not be granted
// by 2 and 3.
func TestCounterexampleRestartedNodeGrantsNobodyElse(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.client("a"), w.client("b")
		a.nodes[2].Cut(true)
		le := w.acquire(a)
		w.servers[1].Restart()
		b.nodes[0].Cut(true) // B cannot see that A holds node 1
		time.Sleep(4200 * time.Millisecond)
		if _, err := b.TryAcquire(context.Background(), "orders"); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Fatalf("error %v, want no quorum: node 2 is in quarantine", err)
		}
		if !le.Holding() {
			t.Fatal("A lost its lease")
		}
	})
}

// Review A.1: a foreign TTL above the own quarantine.
func TestCandidateDoesNotContendAgainstALongerTTLThanItsQuarantine(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a := w.client("a", func(o *redlock.Options) { o.TTL, o.Quarantine = 60*time.Second, 61*time.Second })
		b := w.client("b")
		le := w.acquire(a)
		_, err := b.TryAcquire(context.Background(), "orders")
		if err == nil || !strings.Contains(err.Error(), "held by a") {
			t.Fatalf("error %v", err)
		}
		c := b.Contest("orders")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = c.Acquire(ctx)
		if r := c.View().Reason; !strings.Contains(r, "TTL of 1m0s") || !strings.Contains(r, "quarantine") {
			t.Fatalf("reason %q", r)
		}
		_ = le.Release(context.Background())
	})
}

// Review A.7: three nodes and five do not intersect.
func TestCandidateDoesNotContendAgainstAnotherNumberOfNodes(t *testing.T) {
	bubble(t, 4, func(w *world) {
		four := w.client("four")
		w.servers = w.servers[:3]
		three := w.client("three")
		w.acquire(three)
		c := four.Contest("orders")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx); err == nil {
			t.Fatal("acquired against a holder that counts other nodes")
		}
		if r := c.View().Reason; !strings.Contains(r, "counts 3 nodes and this candidate 4") {
			t.Fatalf("reason %q", r)
		}
	})
}

func TestAKeyThatNeverExpiresIsNobodysLease(t *testing.T) {
	bubble(t, 3, func(w *world) {
		for _, s := range w.servers {
			s.Set("podlease:orders", "of a script", 0)
		}
		a := w.client("a")
		c := a.Contest("orders")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = c.Acquire(ctx)
		if v := c.View(); v.Holder != "" || !strings.HasPrefix(v.Reason, "no lease can be had; node node-1: key \"podlease:orders\" never expires") {
			t.Errorf("view %+v", v)
		}
		_, err := a.TryAcquire(context.Background(), "orders")
		if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrHeld) || strings.Count(err.Error(), "node node-3: key") != 1 {
			t.Errorf("error %v", err)
		}
	})
}

func TestEveryNodeThatIsToBlameIsNamedOnce(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a := w.client("a")
		for i, s := range w.servers[:2] {
			sick := &redlock.NodeError{Node: s.Name(), Kind: redlock.KindConnection, Err: fmt.Errorf("illness %d: %w", i+1, redlock.ErrNotSent)}
			s.Fail(func(redlock.Request) error { return sick })
		}
		_, err := a.TryAcquire(context.Background(), "orders")
		c := a.Contest("orders")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = c.Acquire(ctx)
		for _, said := range []string{err.Error(), c.View().Reason} {
			if strings.Count(said, "illness 1") != 1 || strings.Count(said, "illness 2") != 1 || !strings.Contains(said, "no quorum: 1 of 3 nodes answered; node node-1") {
				t.Errorf("said %q, want each illness once", said)
			}
		}
	})
}

func TestALeaseThatWasReleasedIsNotSaidToBeLostOtherwise(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a := w.client("a")
		le := w.acquire(a)
		if err := le.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{le.Renew(context.Background()), le.Keep(context.Background())} {
			if !errors.Is(err, redlock.ErrLost) || !strings.HasSuffix(err.Error(), "it was released") {
				t.Errorf("error %v", err)
			}
		}
		le = w.acquire(a)
		time.Sleep(ttl)
		_ = le.Release(context.Background()) // as one does in a deferred call
		if err := le.Renew(context.Background()); !strings.HasSuffix(err.Error(), "it was not renewed in time") {
			t.Errorf("error %v", err)
		}
	})
}

func TestFreshNodesAreWaitedForAndTheReasonSaysSo(t *testing.T) {
	bubble(t, 3, func(w *world) {
		for _, s := range w.servers {
			s.Restart()
		}
		a := w.client("a")
		c := a.Contest("orders")
		start := time.Now()
		got := make(chan error, 1)
		go func() { _, err := c.Acquire(context.Background()); got <- err }()
		time.Sleep(5 * time.Second)
		if r := c.View().Reason; !strings.HasPrefix(r, "nodes in quarantine, ") {
			t.Fatalf("reason %q", r)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited < quarantine || waited > quarantine+3*time.Second {
			t.Fatalf("waited %v for a quarantine of %v", waited, quarantine)
		}
	})
}

// Review A.8a: a sick clock of one candidate must not move the tokens; they follow
// the nodes' median, and grow although nodes lost their counters.
func TestTokensFollowTheNodesClocks(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.servers[0].Step(time.Hour)
		a := w.client("a")
		le := w.acquire(a)
		want := uint64(time.Now().UnixMicro())
		if got := le.FencingToken(); got < want-1e6 || got > want+1e6 {
			t.Fatalf("token %d, want about the nodes' median time %d", got, want)
		}
	})
}

func TestTokenIsAboveEveryNumberSeenAnywhere(t *testing.T) {
	bubble(t, 3, func(w *world) {
		ahead := uint64(time.Now().Add(24 * time.Hour).UnixMicro())
		w.servers[2].SetFence("podlease:orders:fence", ahead)
		a := w.client("a")
		if le := w.acquire(a); le.FencingToken() <= ahead {
			t.Fatalf("token %d, want above %d", le.FencingToken(), ahead)
		}
	})
}

// Review A.8e: numbers that doubles cannot count are refused, not repeated.
func TestTokensNearTheEndAreRefused(t *testing.T) {
	bubble(t, 3, func(w *world) {
		for _, s := range w.servers {
			s.SetFence("podlease:orders:fence", 1<<53-1<<40)
		}
		_, err := w.client("a").TryAcquire(context.Background(), "orders")
		if err == nil || !strings.Contains(err.Error(), "podlease:orders:fence") {
			t.Fatalf("error %v, want one that names the key", err)
		}
	})
}

// A lost reply must not make the lock look taken (go-redis#2985, node-redlock#369).
func TestLostRepliesDoNotBlockTheOwnNextTry(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a := w.client("a")
		w.acquire(a).Release(context.Background()) //nolint:errcheck // learns the clocks
		for _, n := range a.nodes {
			n.DropReplies(true)
		}
		time.AfterFunc(300*time.Millisecond, func() {
			for _, n := range a.nodes {
				n.DropReplies(false)
			}
		})
		start := time.Now()
		w.acquire(a)
		if took := time.Since(start); took > time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// Keys of attempts that lost must be gone as soon as their nodes answer (redsync's
// fail-fast leaves them for a TTL in half of all rounds under jitter).
func TestNoOrphansUnderJitter(t *testing.T) {
	bubble(t, 5, func(w *world) {
		a := w.client("a")
		var seq atomic.Int64
		for i, n := range a.nodes {
			if i < 3 {
				n.Delay(func() time.Duration { return time.Duration(seq.Add(7919)%25000) * time.Microsecond })
			}
		}
		for range 120 {
			le := w.acquire(a)
			if err := le.Release(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, s := range w.servers {
				if v := s.Value("podlease:orders"); v != "" {
					t.Fatalf("key %q left behind after the release", v)
				}
			}
		}
	})
}

func TestSplitVotesEndSoonAndNeverWithTwoHolders(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		bubble(t, nodes, func(w *world) { w.handOvers(10, 50) })
	}
}

// A node that is down or frozen has no vote to wait for: an attempt that met another's must
// not keep its own until the node's time is over, or many candidates elect nobody.
func TestSplitVotesEndSoonAlthoughANodeIsDown(t *testing.T) {
	refuse := func(redlock.Request) error {
		return &redlock.NodeError{Node: "node-1", Kind: redlock.KindConnection, Err: redlock.ErrNotSent}
	}
	for name, sicken := range map[string]func(*redlocktest.Server){
		"refuses":   func(s *redlocktest.Server) { s.Fail(refuse) },
		"is frozen": (*redlocktest.Server).Freeze,
	} {
		for _, nodes := range []int{3, 5} {
			t.Run(fmt.Sprintf("one of %d %s", nodes, name), func(t *testing.T) {
				bubble(t, nodes, func(w *world) {
					sicken(w.servers[0])
					w.handOvers(50, 10)
				})
			})
		}
	}
}

// handOvers lets candidates follow one another, and sees how long each takes.
func (w *world) handOvers(candidates, times int) {
	var seq atomic.Int64
	jitter := func() time.Duration { return time.Duration(seq.Add(7919)%2000) * time.Microsecond }
	holder := w.client("holder")
	got := make(chan *redlock.Lease, candidates)
	ctx, cancel := context.WithCancel(context.Background())
	var contending sync.WaitGroup
	for i := range candidates {
		c := w.client(fmt.Sprintf("candidate-%d", i))
		for _, n := range c.nodes {
			n.Delay(jitter)
		}
		contending.Go(func() {
			for {
				le, err := c.Acquire(ctx, "orders")
				if err != nil {
					return
				}
				got <- le
			}
		})
	}
	var worst, sum time.Duration
	le := w.acquire(holder)
	for range times {
		start := time.Now()
		go func(le *redlock.Lease) { _ = le.Release(context.Background()) }(le) // it waits for all nodes
		le = <-got
		took := time.Since(start)
		worst, sum = max(worst, took), sum+took
		select {
		case <-got:
			w.t.Fatal("two holders")
		default:
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Logf("%d nodes: of %d hand-overs among %d candidates the slowest took %v, all together %v", len(w.servers), times, candidates, worst, sum)
	if worst > 400*time.Millisecond {
		w.t.Errorf("nobody was elected for %v: longer than two node timeouts, with all nodes that are up answering within 4ms", worst)
	}
	cancel()
	contending.Wait()
}

func TestLowerPriorityContendsLater(t *testing.T) {
	for name, test := range map[string]struct{ low, high int }{
		"below the usual":       {-100, 0},
		"one above the usual":   {0, 100},
		"both above the usual":  {20, 80},
		"a difference of a few": {0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				holder := w.client("holder")
				le := w.acquire(holder)
				got := make(chan string, 2)
				for id, p := range map[string]int{"low": test.low, "high": test.high} {
					c := w.client(id).Contest("orders")
					c.SetPriority(p)
					go func() {
						if le, err := c.Acquire(context.Background()); err == nil {
							got <- id
							_ = le.Release(context.Background())
						}
					}()
				}
				keep, stop := context.WithCancel(context.Background())
				go func() { _ = le.Keep(keep) }()
				time.Sleep(2 * ttl) // a priority above the usual is told once a TTL
				stop()
				_ = le.Release(context.Background())
				if first := <-got; first != "high" {
					t.Fatalf("the candidate of priority %d won against %d", test.low, test.high)
				}
				<-got
			})
		})
	}
}

func TestAPreferredCandidateThatWentAwayIsForgotten(t *testing.T) {
	bubble(t, 3, func(w *world) {
		le := w.acquire(w.client("holder"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		preferred := w.client("preferred").Contest("orders")
		preferred.SetPriority(100)
		waiting := w.acquiring(context.Background(), w.client("usual"))
		_, _ = preferred.Acquire(ctx)
		keep, stop := context.WithCancel(context.Background())
		go func() { _ = le.Keep(keep) }()
		time.Sleep(3 * ttl)
		stop()
		start := time.Now()
		_ = le.Release(context.Background())
		<-waiting
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Fatalf("waited %v for a candidate that is gone", took)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	nodes := redlocktest.Nodes(redlocktest.NewServer("a", old))
	for name, test := range map[string]struct {
		opt  redlock.Options
		want string
	}{
		"a TTL below the floor":        {redlock.Options{TTL: 499 * time.Millisecond}, "TTL 499ms: must be at least 500ms"},
		"no TTL":                       {redlock.Options{}, "TTL 0s"},
		"fractions of a millisecond":   {redlock.Options{TTL: time.Second + 1}, "whole milliseconds"},
		"a node timeout that is long":  {redlock.Options{TTL: time.Second, NodeTimeout: 101 * time.Millisecond}, "NodeTimeout 101ms"},
		"a quarantine below the TTL":   {redlock.Options{TTL: time.Second, Quarantine: 999 * time.Millisecond}, "Quarantine 999ms"},
		"no room for three renewals":   {redlock.Options{TTL: time.Second, StopBudget: 400 * time.Millisecond}, "RenewInterval 200ms"},
		"a renew interval that is bad": {redlock.Options{TTL: time.Second, RenewInterval: -1}, "RenewInterval -1ns"},
	} {
		if _, err := redlock.New(nodes, test.opt); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
	if _, err := redlock.New(nil, redlock.Options{TTL: ttl}); err == nil {
		t.Error("no nodes were accepted")
	}
	if _, err := redlock.New(append(nodes, nodes...), redlock.Options{TTL: ttl}); err == nil {
		t.Error("the same node twice was accepted")
	}
}

// Who withdraws says nothing. A standby that met the votes of one who was about to win must
// not wait for them to run out.
func TestAWithdrawalThatLookedLikeAWinCostsOthersNoTTL(t *testing.T) {
	bubble(t, 3, func(w *world) {
		standby := w.client("standby")
		other := w.client("other")
		req := redlock.Request{Op: redlock.OpTake, Keys: redlock.Keys{Lock: "podlease:orders", Fence: "podlease:orders:fence", Channel: "podlease:orders:released"},
			Token: strings.Repeat("a", 32) + ":1:10000:3:" + strings.Repeat("0", 8) + ":other", TTL: ttl}
		for _, n := range other.nodes[:2] {
			n.Send(context.Background(), req, func(redlock.Reply, error) {})
		}
		won := make(chan time.Time, 1)
		go func() {
			w.acquire(standby)
			won <- time.Now()
		}()
		time.Sleep(time.Millisecond) // until it has looked
		synctest.Wait()
		req.Op = redlock.OpRelease
		for _, n := range other.nodes[:2] {
			n.Send(context.Background(), req, func(redlock.Reply, error) {})
		}
		limit := 5 * standby.Options().NodeTimeout
		if took := (<-won).Sub(w.start); took > limit {
			t.Fatalf("the lease was acquired %v after a withdrawal, want at most %v: as long as an attempt may last, and a node timeout", took, limit)
		}
	})
}
