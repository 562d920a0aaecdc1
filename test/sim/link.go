package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

// link is one process's way to one node, with the process's pauses and the network's
// moods.
type link struct {
	*redlocktest.Node
	notices *redlocktest.Node // subscriptions have a connection of their own
	life    *life
	name    string

	mu   sync.Mutex
	rng  *rand.Rand
	lag  time.Duration // the longest a message takes
	sent time.Time     // when the last take went out

	// Each decides an order of its own, because two of them may be asked in one instant by
	// different goroutines: in which a process catches up after a pause, in which requests
	// wait for its end, and in which servers' ends are noticed.
	late, waiting, losses *rand.Rand
}

// usualLag is what a message takes at most while the network is well.
const usualLag = 2 * time.Millisecond

func newLink(l *life, s *redlocktest.Server, name string, i int) *link {
	source := func(what string) *rand.Rand {
		return rand.New(rand.NewPCG(l.proc.w.set.Seed, hash(fmt.Sprint(l.name, i, what))))
	}
	k := &link{Node: s.Connect(), notices: s.Connect(), life: l, name: name, lag: usualLag, rng: source("requests"), late: source("pauses"), waiting: source("waiting"), losses: source("losses")}
	k.Delay(k.delays(k.rng))
	k.notices.Delay(k.delays(source("notices")))
	return k
}

// Name is what the process calls the node, whatever server that leads to.
func (k *link) Name() string { return k.name }

// Cut breaks the link, or mends it.
func (k *link) Cut(cut bool) {
	k.Node.Cut(cut)
	k.notices.Cut(cut)
}

func (k *link) delays(rng *rand.Rand) func() time.Duration {
	return func() time.Duration {
		k.mu.Lock()
		defer k.mu.Unlock()
		return time.Duration(rng.Int64N(int64(k.lag))) + time.Microsecond
	}
}

// slow sets how long messages take at most.
func (k *link) slow(lag time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lag = lag
}

// jitter is a random short time. Things that would happen in the same instant happen in
// an order that the seed decides, so that it replays.
func (k *link) jitter(rng *rand.Rand) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(rng.Int64N(int64(time.Millisecond))) + 1
}

// Send sends when the process runs, and hears when it runs.
func (k *link) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	k.life.proc.spring()
	k.stall()
	k.whenAwake(true, func(overdue bool) {
		if overdue && ctx.Err() != nil || k.life.isDead() {
			k.refuse(done)
			return
		}
		k.send(ctx, req, done)
	})
}

// lastSent is when the last take went out.
func (k *link) lastSent() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sent
}

func (k *link) send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	if req.Op == redlock.OpTake {
		k.life.aboutToTake()
		k.mu.Lock()
		k.sent = time.Now()
		k.mu.Unlock()
	}
	ctx, cancel := k.bound(ctx)
	k.Node.Send(ctx, req, func(r redlock.Reply, err error) {
		cancel()
		hear := func() { k.whenAwake(false, func(bool) { done(r, err) }) }
		if k.life.proc.w.set.Stall {
			go hear() // it may ask again at once, and then stand still
			return
		}
		hear()
	})
}

// bound moves a request's deadline, so that its end is not in the instant in which the
// caller's timers end, nor in which another node's reply is missed.
func (k *link) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	at := time.Now().Add(k.jitter(k.rng))
	if deadline, ok := ctx.Deadline(); ok {
		if sooner := deadline.Add(-k.jitter(k.rng)); sooner.After(at) {
			at = sooner
		}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), at)
}

// refuse ends a request that is not sent: what a dead process would have sent vanishes,
// and one that wakes up finds that the time for it is over.
func (k *link) refuse(done func(redlock.Reply, error)) {
	go done(redlock.Reply{}, &redlock.NodeError{Node: k.Name(), Kind: redlock.KindConnection, Err: context.Canceled})
}

// Subscribe hears when the process runs.
func (k *link) Subscribe(ctx context.Context, channel string, deliver func(redlock.Notice)) {
	k.notices.Subscribe(ctx, channel, func(n redlock.Notice) {
		if n.Kind == redlock.NoticeLost { // at once, for all that the server had
			time.Sleep(k.jitter(k.losses))
		}
		k.whenAwake(false, func(bool) { deliver(n) })
	})
}
