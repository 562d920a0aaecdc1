package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// errWithdrawn ends an attempt that did not get the lease. It does not leave the
// package.
var errWithdrawn = errors.New("withdrawn")

// attemptTimeouts is how many node timeouts an attempt may last. Without an end two
// candidates that split the votes would wait for each other's keys to run out.
const attemptTimeouts = 3

// attempt tries once with a fresh token: at the given nodes first and at the rest
// after the first reply, or at all of them when first is nil. It returns an error
// that wraps errWithdrawn when it did not get the lease.
func (c *Contest) attempt(ctx context.Context, first []int) (*Lease, error) {
	start := c.locker.opt.Clock()
	if !c.mayPropose() {
		c.probe(ctx, c.all())
		if !c.mayPropose() {
			return nil, fmt.Errorf("%w: %w", errWithdrawn, c.noClocks())
		}
	}
	le, err := c.locker.newLease(c.lock, c.keys)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", c.lock, err)
	}
	a := &attempt{contest: c, lease: le, holder: c.holderToken(), driven: len(first) > 0, partial: len(first) > 0}
	err = a.run(ctx, first)
	if err != nil {
		le.withdraw(ctx)
	}
	result := c.learn(le, err)
	c.tallyAttempt(result)
	c.locker.report(Round{Took: c.locker.opt.Clock() - start, Result: result})
	if err != nil {
		return nil, err
	}
	return le, nil
}

// mayPropose reports whether a fencing token can be proposed, if one is wanted.
func (c *Contest) mayPropose() bool { return c.locker.opt.NoFencing || c.locker.clocksKnown() }

// noClocks is the error of an attempt that could not begin.
func (c *Contest) noClocks() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &QuorumError{Lock: c.lock, Needed: Quorum(len(c.sights)), Size: len(c.sights), Reason: "too few nodes answered"}
	for _, s := range c.sights {
		if s.err != nil {
			e.Nodes = append(e.Nodes, s.err)
		}
	}
	return e
}

type attempt struct {
	contest *Contest
	lease   *Lease
	holder  string // whose lease was last seen
	driven  bool   // the holder's release set it off, so its refusals may be out of date
	partial bool   // the rest of the nodes has yet to be asked
	late    bool   // who has not answered by now is slow, or down
}

// run asks until the lease is held, or cannot be had by this token.
func (a *attempt) run(ctx context.Context, first []int) error {
	timeout := a.contest.locker.opt.NodeTimeout
	a.ask(ctx, first) // before anything is set up to wait: the nodes work meanwhile
	tick := time.NewTicker(timeout)
	defer tick.Stop()
	// The holder releases on all nodes at once: what still refuses in its name after
	// a few round trips will go on refusing.
	grace := time.NewTimer(min(timeout, 4*a.contest.locker.roundTrip()+time.Millisecond))
	defer grace.Stop()
	for tries := 1; ; {
		done, pulse, err := a.judge(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-pulse:
		case ev := <-a.contest.events:
			a.onNotice(ctx, ev)
		case <-grace.C:
			a.driven, a.late = false, true
		case <-tick.C:
			if tries++; tries > attemptTimeouts {
				return a.withdrawn("no answer from a quorum in time")
			}
			a.partial = false
			a.lease.askMissing(ctx)
		case <-ctx.Done():
			return fmt.Errorf("acquire lock %q: %w", a.contest.lock, ctx.Err())
		}
	}
}

func (a *attempt) ask(ctx context.Context, first []int) {
	if first == nil {
		a.lease.askAll(ctx)
		return
	}
	a.askAt(ctx, first)
}

func (a *attempt) askAt(ctx context.Context, nodes []int) {
	r := a.contest.locker.newRound(ctx, a.contest.locker.opt.NodeTimeout)
	for _, i := range nodes {
		a.lease.ask(r, i)
	}
	r.done()
}

// onNotice asks again at a node that announced a release.
func (a *attempt) onNotice(ctx context.Context, ev event) {
	if ev.notice.Kind == NoticeMessage && ev.notice.Message == noticeReleased && a.lease.wants(ev.node) {
		r := a.contest.locker.newRound(ctx, a.contest.locker.opt.NodeTimeout)
		a.lease.askAgain(r, ev.node)
		r.done()
	}
}

func (a *attempt) withdrawn(why string) error {
	return fmt.Errorf("%w: %w", errWithdrawn, a.lease.noQuorum(why))
}

// judge decides what the replies so far mean.
func (a *attempt) judge(ctx context.Context) (done bool, pulse <-chan struct{}, err error) {
	le := a.lease
	le.mu.Lock()
	now := le.locker.opt.Clock()
	holding := le.holding(now)
	ready := holding && le.ballot.fenceReady()
	repropose := holding && !ready && le.ballot.repropose(now)
	outdated := ""
	if a.driven {
		outdated = a.holder
	}
	answered, possible := le.tally(now, outdated, a.late)
	conflict := le.conflicting()
	dead := le.ballot.dead
	pulse = le.pulse
	le.mu.Unlock()
	switch {
	case dead:
		return false, nil, a.withdrawn("the votes came too late to be of use")
	case conflict != "":
		return false, nil, a.withdrawn(conflict)
	case ready:
		return true, nil, nil
	case repropose:
		le.askAll(ctx)
	case a.partial && answered > 0:
		a.partial = false
		le.askMissing(ctx)
	case possible < le.ballot.quorum:
		return false, nil, a.withdrawn("others have the votes")
	}
	return false, pulse, nil
}

// tally counts the nodes that answered, and those that are or may yet be ours. A
// refusal in the name of the outdated holder counts as open: its release may be on
// its way to that node, and will be announced.
//
// Where another's vote was met, a node that failed or is late, and has not answered to
// this attempt, is none to wait for: the votes that are here would only keep others from a
// quorum of the nodes that answer.
func (le *Lease) tally(now time.Duration, outdated string, late bool) (answered, possible int) {
	met := slices.ContainsFunc(le.answers, func(a answer) bool {
		return a.err == nil && !a.inFlight && a.replied > 0 && a.reply.Outcome == Held && a.reply.Owner != outdated
	})
	for i := range le.answers {
		a := &le.answers[i]
		if a.replied > 0 {
			answered++
		}
		switch {
		case now < le.ballot.votes[i].until:
			possible++
		case a.replied == 0:
			if !met || !late && a.err == nil {
				possible++
			}
		case a.inFlight:
			possible++
		case a.reply.Outcome == Late, a.reply.Outcome == Held && a.reply.Owner == outdated:
			possible++
		}
	}
	return answered, possible
}

// conflicting says why a holder met in this attempt forbids contending.
func (le *Lease) conflicting() string {
	for i := range le.answers {
		if a := &le.answers[i]; a.replied > 0 && a.reply.Outcome == Held {
			if why := le.locker.conflict(a.reply.Owner); why != "" {
				return why
			}
		}
	}
	return ""
}

// wants reports whether node i's vote is still missing, or carries a number older
// than the present proposal.
func (le *Lease) wants(i int) bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	v := le.ballot.votes[i]
	return le.locker.opt.Clock() >= v.until || !le.ballot.fenceReady() && v.fence < le.ballot.proposal
}

// askMissing asks every node whose vote is missing and that has not refused.
func (le *Lease) askMissing(ctx context.Context) {
	r := le.newTakes(ctx)
	for i := range le.locker.nodes {
		if le.wants(i) && !le.refusedBy(i) {
			le.ask(r, i)
		}
	}
	r.done()
}

// refusedBy reports whether node i's last word was no.
func (le *Lease) refusedBy(i int) bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	a := &le.answers[i]
	return a.err == nil && a.replied > 0 && (a.reply.Outcome == Held || a.reply.Outcome == Absent)
}

// learn takes what an attempt's replies showed into the contest, and tells how it
// ended.
func (c *Contest) learn(le *Lease, err error) Result {
	if err == nil {
		c.settled()
		return ResultWon
	}
	le.mu.Lock()
	answers := append([]answer(nil), le.answers...)
	le.mu.Unlock()
	owners := map[string]int{}
	for i, a := range answers {
		switch {
		case a.err != nil:
			c.see(i, Reply{}, a.err)
		case a.replied > 0:
			if a.reply.Outcome == Held {
				owners[a.reply.Owner]++
			}
			c.seeAged(i, a)
		}
	}
	switch {
	case !errors.Is(err, errWithdrawn):
		return ResultError
	case len(owners) == 0:
		return ResultNoQuorum
	}
	return c.meet(owners)
}

// seeAged takes in a reply that came a while ago.
func (c *Contest) seeAged(i int, a answer) {
	if a.reply.Outcome == Held && a.reply.PTTL > 0 {
		a.reply.PTTL = max(a.reply.PTTL-(c.locker.opt.Clock()-a.replied), 0)
	}
	c.see(i, a.reply, nil)
}

// meet judges the owners met in an attempt. One with a quorum is the holder. Without
// one the votes were split, and all withdraw: the keys met will be gone much sooner
// than they say, so the next attempt comes after a random wait that grows with every
// such meeting, from four round trips to a renew interval.
func (c *Contest) meet(owners map[string]int) Result {
	for _, count := range owners {
		if count >= Quorum(len(c.locker.nodes)) {
			c.settled()
			return ResultHeld
		}
	}
	trip := max(c.locker.roundTrip(), 50*time.Microsecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	window := min(4*trip<<min(c.splits, 12), c.locker.opt.RenewInterval)
	c.splits++
	c.notBefore = now + c.locker.random(window)
	for i := range c.sights {
		if s := &c.sights[i]; s.err == nil && !s.young && owners[s.owner] > 0 {
			s.freeAt = now
		}
	}
	return ResultSplit
}

// settled ends the memory of split votes.
func (c *Contest) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.splits, c.notBefore = 0, 0
}

func (c *Contest) tallyAttempt(r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[r]++
}

// Attempts returns how many attempts ended how.
func (c *Contest) Attempts() map[Result]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.attempts)
}
