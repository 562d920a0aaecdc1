package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-redsync/redsync/v4"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/test/redistest"
)

const (
	handoverNodes   = 3
	handoverMembers = 3
	// pollingRounds bounds the rounds of a library that polls: each takes as long
	// as its poll.
	pollingRounds = 100
	// A former holder is back among those who wait after that long. redsync's is
	// longer than its longest poll, or the holder would take the lock again.
	settle        = 20 * time.Millisecond
	redsyncSettle = 260 * time.Millisecond
)

// measureHandover times how long nobody is active when a holder steps down, with two
// others waiting: candidates in this process, sidecars, and users of redsync. Of
// sidecars the time from the request is told as well: it has an HTTP request in front.
func measureHandover(ctx context.Context, set settings, rep *report) error {
	return withRig(func(r *rig) error {
		servers := r.servers(handoverNodes)
		library, err := newElection(ctx, r, servers, set.ttl)
		if err != nil {
			return err
		}
		sidecars, err := newFleet(ctx, r, servers, set)
		if err != nil {
			return err
		}
		polling := newRelay(ctx, r, servers, set.ttl)
		if _, err := polling.next(ctx, 0); err != nil {
			return err
		}
		asked := &handOverRun{name: "sidecars, from request"}
		runs := []*handOverRun{
			{name: "podlease library", once: library.handOver, settle: settle, rounds: set.rounds, aims: true},
			{name: "podlease sidecars", once: asked.split(sidecars), settle: settle, rounds: set.rounds, aims: true},
			{name: "redsync fail-fast", once: polling.handOver, settle: redsyncSettle, rounds: min(set.rounds, pollingRounds)},
		}
		if err := interleave(ctx, runs, set.rounds); err != nil {
			return err
		}
		for _, run := range slices.Insert(runs, 2, asked) {
			rep.add(run.took.result(result{Measure: "hand-over", Library: run.name, Nodes: handoverNodes, State: "2 standbys"}))
			if run.aims {
				rep.aim("hand-over p50 in ms, "+run.name, ms(run.took.quantile(0.5)), 1)
				rep.aim("hand-over p99 in ms, "+run.name, ms(run.took.quantile(0.99)), 5)
			}
		}
		return nil
	})
}

// handOverRun is one way to hand a lock over, again and again.
type handOverRun struct {
	name   string
	once   func(ctx context.Context) (time.Duration, error)
	settle time.Duration // until the former holder waits as well
	rounds int
	aims   bool
	took   samples
}

// split takes the time from the request for itself, and returns that without a holder.
func (run *handOverRun) split(e *electorate) func(ctx context.Context) (time.Duration, error) {
	rounds := 0
	return func(ctx context.Context) (time.Duration, error) {
		took, err := e.handOver(ctx)
		if err != nil {
			return 0, err
		}
		if rounds++; rounds > warmup {
			run.took.add(took, nil)
		}
		return e.gap, nil
	}
}

// interleave takes the runs in turns, so that noise hits them all.
func interleave(ctx context.Context, runs []*handOverRun, rounds int) error {
	for round := range warmup + rounds {
		for _, run := range runs {
			if round >= warmup+run.rounds || round < warmup && run.rounds < rounds {
				continue
			}
			took, err := run.once(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", run.name, err)
			}
			if round >= warmup {
				run.took.add(took, nil)
			}
			sleep(ctx, run.settle)
		}
	}
	return ctx.Err()
}

// electorate is a lock's candidates: in this process, or as sidecars.
type electorate struct {
	active   chan activation
	ended    chan time.Duration // when one was first seen inactive again; nil unless watched
	holder   int
	gap      time.Duration // how long nobody was active in the last hand-over
	stepDown func(ctx context.Context, member int) error
	resume   func(ctx context.Context, member int) error
}

// activation says when a candidate was first seen active.
type activation struct {
	member int
	at     time.Duration
}

var errNobody = errors.New("nobody became active within 30 s")

func newElection(ctx context.Context, r *rig, servers []*redistest.Server, ttl time.Duration) (*electorate, error) {
	var members []*election.Candidate
	e := &electorate{
		active:   make(chan activation, handoverMembers),
		stepDown: func(_ context.Context, i int) error { return members[i].StepDown(time.Minute) },
		resume:   func(_ context.Context, i int) error { return members[i].Resume() },
	}
	for i := range handoverMembers {
		c, err := startCandidate(ctx, r, servers, "handover", ttl, fmt.Sprintf("candidate-%d", i+1))
		if err != nil {
			return nil, err
		}
		members = append(members, c)
		go e.watch(ctx, i, c)
	}
	_, err := e.next(ctx)
	return e, err
}

// startCandidate runs a candidate with connections of its own until the measure ends.
func startCandidate(ctx context.Context, r *rig, servers []*redistest.Server, lock string, ttl time.Duration, identity string) (*election.Candidate, error) {
	locker := newLocker(r, servers, redlock.Options{TTL: ttl, Identity: identity})
	c, err := election.New(locker, election.Config{Lock: lock, Identity: identity, NativeSidecar: true, Log: logr.Discard()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	r.Cleanup(func() { cancel(); <-ended })
	return c, nil
}

// watch notes when a candidate becomes active.
func (e *electorate) watch(ctx context.Context, member int, c *election.Candidate) {
	was := false
	for {
		changed := c.Changed()
		is := c.Leadership().Active()
		if is && !was {
			e.active <- activation{member, boottime.Now()}
		}
		was = is
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// next waits for the next holder.
func (e *electorate) next(ctx context.Context) (activation, error) {
	select {
	case a := <-e.active:
		e.holder = a.member
		return a, nil
	case <-time.After(30 * time.Second):
		return activation{}, errNobody
	case <-ctx.Done():
		return activation{}, ctx.Err()
	}
}

// handOver makes the holder step down and times until the next one is active.
func (e *electorate) handOver(ctx context.Context) (time.Duration, error) {
	former := e.holder
	start := boottime.Now()
	if err := e.stepDown(ctx, former); err != nil {
		return 0, fmt.Errorf("step down: %w", err)
	}
	a, err := e.next(ctx)
	if err != nil {
		return 0, err
	}
	if e.ended != nil {
		select {
		case end := <-e.ended:
			e.gap = a.at - end
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return a.at - start, e.resume(ctx, former)
}

// relay is a redsync lock with one holder and others that wait for it as redsync
// makes them: by polling.
type relay struct {
	won     chan activation
	release []chan struct{}
	holder  int
}

func newRelay(ctx context.Context, r *rig, servers []*redistest.Server, ttl time.Duration) *relay {
	y := &relay{won: make(chan activation)}
	ctx, cancel := context.WithCancel(ctx)
	for i := range handoverMembers {
		rs, let, ended := newRedsync(r, servers, nil), make(chan struct{}), make(chan struct{})
		y.release = append(y.release, let)
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				y.turn(ctx, i, rs.NewMutex("relay", redsync.WithExpiry(ttl), redsync.WithFailFast(true)))
			}
		}()
		r.Cleanup(func() { <-ended })
	}
	r.Cleanup(cancel)
	return y
}

// turn waits for the lock, holds it until told to release it, and leaves the next
// turn to the others.
func (y *relay) turn(ctx context.Context, member int, m *redsync.Mutex) {
	if m.LockContext(ctx) != nil {
		return
	}
	select {
	case y.won <- activation{member, boottime.Now()}:
	case <-ctx.Done():
		return
	}
	select {
	case <-y.release[member]:
		_, _ = m.UnlockContext(ctx)
		sleep(ctx, redsyncSettle)
	case <-ctx.Done():
	}
}

func (y *relay) handOver(ctx context.Context) (time.Duration, error) {
	start := boottime.Now()
	y.release[y.holder] <- struct{}{}
	return y.next(ctx, start)
}

func (y *relay) next(ctx context.Context, start time.Duration) (time.Duration, error) {
	select {
	case a := <-y.won:
		y.holder = a.member
		return a.at - start, nil
	case <-time.After(30 * time.Second):
		return 0, errNobody
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
