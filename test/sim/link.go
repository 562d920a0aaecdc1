package sim

import (
	"context"
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
	life *life
	name string

	mu  sync.Mutex
	rng *rand.Rand
	lag time.Duration // the longest a message takes
}

// usualLag is what a message takes at most while the network is well.
const usualLag = 2 * time.Millisecond

func newLink(l *life, s *redlocktest.Server, name string, i int) *link {
	k := &link{Node: s.Connect(), life: l, name: name, lag: usualLag,
		rng: rand.New(rand.NewPCG(l.proc.w.set.Seed, hash(l.name)+uint64(i)+7))}
	k.Delay(k.delay)
	return k
}

// Name is what the process calls the node, whatever server that leads to.
func (k *link) Name() string { return k.name }

func (k *link) delay() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.rng.Int64N(int64(k.lag))) + time.Microsecond
}

// slow sets how long messages take at most.
func (k *link) slow(lag time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lag = lag
}

// jitter is a random short time. Things that would happen in the same instant happen in
// an order that the seed decides, so that it replays.
func (k *link) jitter() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.rng.Int64N(int64(time.Millisecond))) + 1
}

// awake returns when the process runs, and reports whether it still lives.
func (k *link) awake() bool {
	if !k.life.proc.isPaused() {
		return k.life.gate()
	}
	order := k.jitter()
	alive := k.life.gate()
	time.Sleep(order)
	return alive
}

// Send sends when the process runs, and hears when it runs.
func (k *link) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	if !k.awake() {
		go k.refuse(done)
		return
	}
	cancel := func() {}
	if deadline, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-k.jitter()))
	}
	k.Node.Send(ctx, req, func(r redlock.Reply, err error) {
		cancel()
		if k.life.proc.isPaused() {
			go func() {
				k.awake()
				done(r, err)
			}()
			return
		}
		done(r, err)
	})
}

// refuse lets what a dead process would have sent vanish.
func (k *link) refuse(done func(redlock.Reply, error)) {
	done(redlock.Reply{}, &redlock.NodeError{Node: k.Name(), Kind: redlock.KindConnection, Err: context.Canceled})
}

// Subscribe hears when the process runs.
func (k *link) Subscribe(ctx context.Context, channel string, deliver func(redlock.Notice)) {
	k.Node.Subscribe(ctx, channel, func(n redlock.Notice) {
		if k.awake() {
			deliver(n)
		}
	})
}

func (p *proc) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused != nil
}

// pause stops the process until resume.
func (p *proc) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused, p.since = make(chan struct{}), time.Now()
	}
}

func (p *proc) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused, p.slept = nil, p.slept+time.Since(p.since)
	}
}
