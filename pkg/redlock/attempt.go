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

// attempt tries once with a fresh token, at all nodes at once. Driven says that a
// release set it off. It returns an error that wraps errWithdrawn when it did not get
// the lease.
func (c *Contest) attempt(ctx context.Context, driven bool) (*Lease, error) {
	start := c.locker.opt.Clock()
	began := start
	if !c.mayPropose() {
		c.probe(ctx, c.all())
		began = c.locker.opt.Clock()
		if !c.mayPropose() {
			return nil, fmt.Errorf("%w: %w", errWithdrawn, c.noClocks())
		}
	}
	le, err := c.locker.newLease(c.lock, c.keys, began)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", c.lock, err)
	}
	a := &attempt{contest: c, lease: le, began: began, holder: c.holderToken(), driven: driven}
	err = a.run(ctx)
	if err != nil {
		le.withdraw(ctx)
	}
	result := c.learn(le, err)
	if driven && result == ResultHeld {
		c.doubts(a.holder)
	}
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
	began   time.Duration
	holder  string // whose lease was last seen

	// Guarded by the lease's mutex.
	driven bool // the holder's release set it off, so its refusals may be out of date
	late   bool // who has not answered by now is slow, or down
	timed  bool // timers run, because something is in the way
}

// run asks until the lease is held, or cannot be had by this token.
//
// Nodes answer for themselves when their time is over, so there is nothing to time
// before one has said something else than yes: a timer that no other of the process
// precedes costs a wake-up at the very moment in which the nodes want to run.
func (a *attempt) run(ctx context.Context) error {
	a.lease.askAll(ctx, a.began) // before anything is set up to wait: the nodes work meanwhile
	w := a.lease.await(a.decided)
	defer a.lease.forget(w)
	var timers timers
	defer timers.stop()
	for tries := 1; ; {
		switch next, err := a.act(ctx); {
		case err != nil || next == win:
			return err
		case next == startTimers:
			timers.start(a.contest.locker, a.began)
			continue
		case next != wait:
			continue
		}
		select {
		case <-w.wake:
		case ev := <-a.contest.events:
			a.onNotice(ctx, ev)
		case <-timers.graceOver():
			a.onGraceOver(ctx)
		case <-timers.timeOver():
			timers.again()
			if tries++; tries > attemptTimeouts {
				return a.withdrawn("no answer from a quorum in time")
			}
			a.lease.askMissing(ctx)
		case <-ctx.Done():
			return fmt.Errorf("acquire lock %q: %w", a.contest.lock, ctx.Err())
		}
	}
}

// timers are those of an attempt that something is in the way of.
type timers struct {
	timeout time.Duration
	grace   *time.Timer
	tick    *time.Timer // once in a timeout
}

// start starts the timers as if they had run since the attempt began.
func (t *timers) start(l *Locker, began time.Duration) {
	elapsed := l.opt.Clock() - began
	t.timeout = l.opt.NodeTimeout
	t.tick = time.NewTimer(t.timeout - elapsed)
	// The holder releases on all nodes at once: what still refuses in its name after
	// a few round trips will go on refusing. On a busy machine a node may only be late,
	// and a winner withdraws; but many candidates and a frozen node elect nobody for long
	// if each of them waits longer.
	t.grace = time.NewTimer(min(t.timeout, 4*l.roundTrip()+time.Millisecond) - elapsed)
}

func (t *timers) again() { t.tick.Reset(t.timeout) }

func (t *timers) graceOver() <-chan time.Time { return channel(t.grace) }
func (t *timers) timeOver() <-chan time.Time  { return channel(t.tick) }

func channel(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

func (t *timers) stop() {
	if t.tick != nil {
		t.tick.Stop()
		t.grace.Stop()
	}
}

func (a *attempt) set(f func()) {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	f()
}

// onNotice asks again at a node that announced a release.
func (a *attempt) onNotice(ctx context.Context, ev event) {
	released := ev.notice.Kind == NoticeMessage && ev.notice.Message == noticeReleased
	if released && a.lease.wants(ev.node) {
		a.askAgain(ctx, []int{ev.node})
	}
}

// onGraceOver gives up who is late. Who refused in the name of the holder that has
// released is asked once more: its notice may have been lost, and the next look would
// come when the holder's key would have run out.
func (a *attempt) onGraceOver(ctx context.Context) {
	var outdated []int
	a.set(func() {
		if a.driven {
			outdated = a.lease.heldFor(a.holder)
		}
		a.driven, a.late = false, true
	})
	a.askAgain(ctx, outdated)
}

func (a *attempt) askAgain(ctx context.Context, nodes []int) {
	if len(nodes) == 0 {
		return
	}
	r := a.contest.locker.newRound(ctx, a.contest.locker.opt.NodeTimeout)
	for _, i := range nodes {
		a.lease.askAgain(r, i)
	}
	r.done()
}

// heldFor lists the nodes whose last word was that they hold the key for that owner. It
// needs the lease's mutex.
func (le *Lease) heldFor(owner string) []int {
	var out []int
	for i := range le.answers {
		if a := &le.answers[i]; a.replied > 0 && a.reply.Outcome == Held && a.reply.Owner == owner {
			out = append(out, i)
		}
	}
	return out
}

func (a *attempt) withdrawn(why string) error {
	return fmt.Errorf("%w: %w", errWithdrawn, a.lease.noQuorum(why))
}

// verdict is what the replies so far mean for an attempt.
type verdict struct {
	next next
	why  string // of a withdrawal
}

type next uint8

const (
	wait next = iota
	win
	withdraw
	repropose   // the nodes stored larger fencing tokens than the proposal
	startTimers // something is in the way
)

// judge needs the lease's mutex.
func (a *attempt) judge(now time.Duration) verdict {
	le := a.lease
	holding := le.holding(now)
	outdated := ""
	if a.driven {
		outdated = a.holder
	}
	switch conflict := le.conflicting(); {
	case le.ballot.dead:
		return verdict{withdraw, "the votes came too late to be of use"}
	case conflict != "":
		return verdict{withdraw, conflict}
	case holding && le.ballot.fenceReady():
		return verdict{next: win}
	case holding && le.ballot.outbid(now):
		return verdict{next: repropose}
	case le.possible(now, outdated, a.late) < le.ballot.quorum && !a.listens(now):
		return verdict{withdraw, "others have the votes"}
	case !a.timed && le.disputed():
		return verdict{next: startTimers}
	}
	return verdict{next: wait}
}

// disputed reports whether some node did not say yes, or no answer is to come.
func (le *Lease) disputed() bool {
	underWay := false
	for i := range le.answers {
		a := &le.answers[i]
		underWay = underWay || a.inFlight
		if a.err != nil || a.replied > 0 && !a.reply.Outcome.grants() {
			return true
		}
	}
	return !underWay
}

// decided reports whether there is something to do.
func (a *attempt) decided(now time.Duration) bool { return a.judge(now).next != wait }

// act does what the replies so far ask for, and tells what that was: after all but a
// win and a wait there may be more.
func (a *attempt) act(ctx context.Context) (next, error) {
	le := a.lease
	le.mu.Lock()
	now := le.locker.opt.Clock()
	v := a.judge(now)
	switch v.next {
	case repropose:
		le.ballot.repropose(now)
	case startTimers:
		a.timed = true
	case wait, win, withdraw:
	}
	le.mu.Unlock()
	switch v.next {
	case withdraw:
		return v.next, a.withdrawn(v.why)
	case repropose:
		le.askAll(ctx, now)
	case wait, win, startTimers:
	}
	return v.next, nil
}

// possible counts the nodes that are or may yet be ours. A refusal in the name of the
// outdated holder counts as open: its release may be on its way to that node.
//
// Where another's vote was met, a node that failed or is late, and has not answered to
// this attempt, is none to wait for: the votes that are here would only keep others from a
// quorum of the nodes that answer.
func (le *Lease) possible(now time.Duration, outdated string, late bool) int {
	met := slices.ContainsFunc(le.answers, func(a answer) bool {
		return a.err == nil && !a.inFlight && a.replied > 0 && a.reply.Outcome == Held && a.reply.Owner != outdated
	})
	possible := 0
	for i := range le.answers {
		a := &le.answers[i]
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
	return possible
}

// listens reports whether to hear, before withdrawing, what nodes have yet to say of whose the
// lock is. One who has no vote keeps nobody waiting by that, and would else take a holder for
// one of several that split the votes. Nobody who will try again waits for who is late: where
// votes are split, somebody wins the sooner the more try.
func (a *attempt) listens(now time.Duration) bool {
	le := a.lease
	if le.ballot.heldVotes(now) > 0 || a.late && !a.contest.once {
		return false
	}
	for _, count := range ownersMet(le.answers) {
		if count >= le.ballot.quorum {
			return false
		}
	}
	return slices.ContainsFunc(le.answers, func(a answer) bool { return a.inFlight && a.replied == 0 })
}

// ownersMet counts the nodes at which each owner of the lock was met.
func ownersMet(answers []answer) map[string]int {
	owners := map[string]int{}
	for _, a := range answers {
		if a.err == nil && a.replied > 0 && a.reply.Outcome == Held {
			owners[a.reply.Owner]++
		}
	}
	return owners
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
	r := le.newTakes(ctx, le.locker.opt.Clock())
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
	owners, answered := ownersMet(answers), 0
	for i, a := range answers {
		switch {
		case a.err != nil:
			c.see(i, Reply{}, a.err)
		case a.replied > 0:
			answered++
			c.seeAged(i, a)
		}
	}
	switch {
	case !errors.Is(err, errWithdrawn):
		return ResultError
	case len(owners) == 0:
		return ResultNoQuorum
	}
	if result := c.meet(owners); answered >= Quorum(len(answers)) {
		return result
	}
	return ResultNoQuorum // whoever was met, the silent nodes would have decided
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
	if c.attempts == nil {
		c.attempts = map[Result]uint64{}
	}
	c.attempts[r]++
}

// Attempts returns how many attempts ended how.
func (c *Contest) Attempts() map[Result]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.attempts)
}
