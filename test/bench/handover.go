package main

import (
	"context"
	"errors"
	"fmt"
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
// others waiting.
func measureHandover(ctx context.Context, set settings, rep *report) error {
	return withRig(func(r *rig) error {
		servers := r.servers(handoverNodes)
		ours, err := newElection(ctx, r, servers, set.ttl)
		if err != nil {
			return err
		}
		theirs := newRelay(ctx, r, servers, set.ttl)
		if _, err := theirs.next(ctx, 0); err != nil {
			return err
		}
		us, them, err := handOvers(ctx, set.rounds, ours, theirs)
		if err != nil {
			return err
		}
		line := result{Measure: "hand-over", Nodes: handoverNodes, State: "2 standbys"}
		line.Library = "podlease"
		rep.add(us.result(line))
		line.Library = "redsync fail-fast"
		rep.add(them.result(line))
		rep.aim("hand-over p50 in ms", ms(us.quantile(0.5)), 1)
		rep.aim("hand-over p99 in ms", ms(us.quantile(0.99)), 5)
		return nil
	})
}

// handOvers takes both in turns, with a pause in which former holders come back.
func handOvers(ctx context.Context, rounds int, ours *electorate, theirs *relay) (us, them samples, err error) {
	for round := range warmup + rounds {
		took, err := ours.handOver(ctx)
		if err != nil {
			return us, them, err
		}
		if round < warmup {
			continue
		}
		us.add(took, nil)
		sleep(ctx, settle)
		if round-warmup >= pollingRounds {
			continue
		}
		took, err = theirs.handOver(ctx)
		if err != nil {
			return us, them, err
		}
		them.add(took, nil)
		sleep(ctx, redsyncSettle)
	}
	return us, them, nil
}

// electorate is a lock's candidates in this process.
type electorate struct {
	members []*election.Candidate
	active  chan activation
	holder  int
}

// activation says when a candidate was first seen active.
type activation struct {
	member int
	at     time.Duration
}

var errNobody = errors.New("nobody became active within 30 s")

func newElection(ctx context.Context, r *rig, servers []*redistest.Server, ttl time.Duration) (*electorate, error) {
	e := &electorate{active: make(chan activation, handoverMembers)}
	ctx, cancel := context.WithCancel(ctx)
	for i := range handoverMembers {
		c, err := newCandidate(r, servers, ttl, fmt.Sprintf("candidate-%d", i+1))
		if err != nil {
			cancel()
			return nil, err
		}
		e.members = append(e.members, c)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Run(ctx)
		}()
		go e.watch(ctx, i, c)
		r.Cleanup(func() { <-ended })
	}
	r.Cleanup(cancel) // before the waits: cleanups run in reverse order
	return e, e.await(ctx)
}

func newCandidate(r *rig, servers []*redistest.Server, ttl time.Duration, identity string) (*election.Candidate, error) {
	locker := newLocker(r, servers, redlock.Options{TTL: ttl, Identity: identity})
	return election.New(locker, election.Config{Lock: "handover", Identity: identity, NativeSidecar: true, Log: logr.Discard()})
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

func (e *electorate) await(ctx context.Context) error {
	_, err := e.next(ctx)
	return err
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
	former := e.members[e.holder]
	start := boottime.Now()
	if err := former.StepDown(time.Minute); err != nil {
		return 0, fmt.Errorf("step down: %w", err)
	}
	a, err := e.next(ctx)
	if err != nil {
		return 0, err
	}
	return a.at - start, former.Resume()
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
