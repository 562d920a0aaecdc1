package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

// noticeReleased is published when a holder gave its lease up.
const noticeReleased = "released"

// Release gives the lease up on every node and announces it, so that somebody else
// can take it at once. The lease is over as soon as Release is called. It returns
// when every node answered or ctx ended; nodes that have not answered are asked again
// in the background until they do or the key has run out. A key that is gone already
// is a success. The error wraps what nodes answered when fewer than a quorum did; the
// lease then runs out by itself.
//
// The caller must have stopped acting under the lease before: release after stop,
// never before (pinniped#800, controller-runtime#1132).
func (le *Lease) Release(ctx context.Context) error {
	le.mu.Lock()
	le.released = le.released || le.holding(le.locker.opt.Clock())
	le.mu.Unlock()
	return le.release(ctx, noticeReleased)
}

// withdraw takes an attempt back without a word, since nobody was kept waiting by it. A
// node whose take is in flight is given its vote back after the reply, if that says that
// there is one: mostly it is a refusal, and a standby would pay for it once in a TTL.
func (le *Lease) withdraw(ctx context.Context) {
	le.kill()
	for i := range le.answers {
		if le.mayHold(i, true) {
			le.releaseAt(ctx, i, "", le.locker.opt.NodeTimeout, nil)
		}
	}
	le.locker.stockToken()
}

// release sends the releases, behind the takes that are in flight, and waits for the
// replies.
func (le *Lease) release(ctx context.Context, notice string) error {
	le.kill()
	results := make(chan error, len(le.answers))
	waiting := 0
	for i := range le.answers {
		if le.mayHold(i, false) {
			waiting++
			le.behind(i, func() { le.releaseAt(ctx, i, notice, le.locker.opt.NodeTimeout, results) })
		}
	}
	le.locker.stockToken()
	return le.awaitReleases(ctx, results, waiting)
}

// mayHold reports whether node i may hold the token: one that cannot have seen it has
// nothing to give back. With later, a node whose take is in flight is left to
// owesRelease.
func (le *Lease) mayHold(i int, later bool) bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	a := &le.answers[i]
	if later && a.inFlight {
		a.giveBack = true
		return false
	}
	return a.touched
}

// owesRelease reports whether the reply that has just come shows, or leaves open, that
// node i holds the token of an attempt that was withdrawn.
func (le *Lease) owesRelease(i int) bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	a := &le.answers[i]
	owes := a.giveBack && a.touched
	a.giveBack = false
	return owes
}

// releaseAt sends the release to node i, and hands over to the background when
// there is no answer. The result goes to results, unless that is nil.
func (le *Lease) releaseAt(ctx context.Context, i int, notice string, limit time.Duration, results chan<- error) {
	r := le.locker.newRound(ctx, limit)
	sent := r.start
	le.locker.background.begin()
	req := Request{Op: OpRelease, Keys: le.keys, Token: le.token, Notice: notice}
	le.locker.nodes[i].Send(r.ctx, req, func(reply Reply, err error) {
		r.done()
		if err == nil {
			le.locker.answered(i, le.keys.Fence, sent, reply)
		} else {
			le.locker.failed(i, err)
			le.locker.background.begin()
			go le.repeatRelease(i, req)
		}
		if results != nil {
			results <- err
		}
		le.locker.background.end()
	})
}

// repeatRelease asks node i until it answers or the key has run out by itself. The
// lost connection may have carried a take that the node executes late; the take's
// not-after bounds how late.
func (le *Lease) repeatRelease(i int, req Request) {
	l := le.locker
	defer l.background.end()
	end := l.opt.Clock() + l.opt.TTL
	wait := time.NewTicker(l.opt.NodeTimeout + le.spread(i))
	defer wait.Stop()
	for l.opt.Clock() < end {
		select {
		case <-l.ctx.Done():
			return
		case <-wait.C:
		}
		answered := make(chan error, 1)
		r := l.newRound(l.ctx, l.opt.NodeTimeout)
		l.nodes[i].Send(r.ctx, req, func(_ Reply, err error) {
			r.done()
			answered <- err
		})
		if <-answered == nil {
			return
		}
	}
}

// spread is a short time that differs between leases and nodes, so that what is repeated
// for many does not go out at the same instants.
func (le *Lease) spread(i int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(le.token))                                                       // never fails
	return le.locker.opt.NodeTimeout * time.Duration((h.Sum32()+uint32(i)*97)%1000) / 4000 //nolint:gosec // a node's number is small
}

func (le *Lease) awaitReleases(ctx context.Context, results <-chan error, waiting int) error {
	var errs []error
	for range waiting {
		select {
		case err := <-results:
			if err != nil {
				errs = append(errs, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("release lock %q: %w", le.lock, ctx.Err())
		}
	}
	if waiting-len(errs) < le.ballot.quorum && len(errs) > 0 {
		return fmt.Errorf("release lock %q: the lease runs out by itself: %w", le.lock, errors.Join(errs...))
	}
	return nil
}
