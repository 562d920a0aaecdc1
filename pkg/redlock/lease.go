package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Lease is one attempt's token with the votes it got. It is safe for concurrent
// use. A lease that stopped holding never holds again.
type Lease struct {
	locker *Locker
	lock   string
	keys   Keys
	token  string

	mu      sync.Mutex
	ballot  ballot
	answers []answer
	waiters []*waiter
	ended   chan struct{} // closed when the token is known to be dead

	released bool // by its holder, before anything else ended it
}

// answer is what one node last said to this token.
type answer struct {
	sent     time.Duration // when the last request went out
	inFlight bool
	asked    uint64 // the number that the request in flight proposes
	again    bool   // ask once more when the reply is there
	giveBack bool   // the attempt was withdrawn while its take was in flight
	unknown  bool   // a take was sent that was never answered
	touched  bool   // the node may hold the token
	before   bool   // what touched was before the request in flight
	retried  bool   // the node said Late to the last request and was asked once more
	sending  bool   // a take is being handed to the node
	owed     func() // the release that has to go behind it
	reply    Reply
	replied  time.Duration // when reply came, 0 before
	err      error         // of the last request, nil after a reply
}

func (l *Locker) newLease(lock string, keys Keys, now time.Duration) (*Lease, error) {
	token, err := l.freshToken()
	if err != nil {
		return nil, err
	}
	le := &Lease{
		locker: l, lock: lock, keys: keys, token: token,
		ballot:  newBallot(len(l.nodes), l.opt.TTL, l.opt.StopBudget, !l.opt.NoFencing),
		answers: make([]answer, len(l.nodes)),
		ended:   make(chan struct{}),
	}
	if le.ballot.fenced {
		if le.ballot.proposal, err = l.proposeFence(keys.Fence, now); err != nil {
			return nil, err
		}
	}
	return le, nil
}

// Lock returns the lock's name.
func (le *Lease) Lock() string { return le.lock }

// Term returns a name that is random and unique to this lease. Unlike the token it
// is no secret.
func (le *Lease) Term() string { return termOf(le.token) }

// FencingToken returns the number of this term: below 2^53, unique, and larger than
// that of every earlier term as long as two successive quorums share a node that
// kept its counter; 0 when fencing is off.
func (le *Lease) FencingToken() uint64 {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.ballot.final
}

// Holding reports whether the lease is held now: a quorum of votes is valid, and for
// longer than the stop budget. It reads the clock at each call.
func (le *Lease) Holding() bool { return le.Remaining() > 0 }

// Remaining returns how much longer the lease is held if no renewal succeeds, and 0
// when it is not held.
func (le *Lease) Remaining() time.Duration {
	le.mu.Lock()
	defer le.mu.Unlock()
	now := le.locker.opt.Clock()
	if !le.holding(now) || !le.ballot.fenceReady() {
		return 0
	}
	return le.ballot.deadline() - le.ballot.stop - now
}

// Deadline returns the instant on the Locker's clock before which nobody else can be
// given the lease. The stop budget lies before it.
func (le *Lease) Deadline() time.Duration {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.ballot.deadline()
}

// Votes tells for each node whether its vote is valid now.
func (le *Lease) Votes() []bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	now := le.locker.opt.Clock()
	out := make([]bool, len(le.ballot.votes))
	for i, v := range le.ballot.votes {
		out[i] = !le.ballot.dead && now < v.until && !le.ballot.shadowed(i)
	}
	return out
}

// holding is ballot.holding, and announces the end of the token.
func (le *Lease) holding(now time.Duration) bool {
	ok := le.ballot.holding(now)
	if le.ballot.dead {
		le.end()
	}
	return ok
}

func (le *Lease) end() {
	select {
	case <-le.ended:
	default:
		close(le.ended)
	}
}

// kill makes the token dead. No reply counts for it from now on.
func (le *Lease) kill() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.ballot.dead = true
	le.end()
}

// round is one set of requests that share a deadline.
type round struct {
	ctx   context.Context
	start time.Duration
	until time.Duration

	mu       sync.Mutex
	open     int
	finished chan struct{} // closed when every request has been answered
}

// newRound starts a round. It detaches from ctx's cancellation: a caller that gives
// up does not make sent requests unsent, and their replies are still of use.
func (l *Locker) newRound(ctx context.Context, limit time.Duration) *round {
	return l.roundAt(ctx, l.opt.Clock(), limit)
}

func (l *Locker) roundAt(ctx context.Context, now, limit time.Duration) *round {
	return &round{
		ctx:   deadline{context.WithoutCancel(ctx), time.Now().Add(limit)}, //nolint:forbidigo // contexts use this clock
		start: now, until: now + limit, open: 1, finished: make(chan struct{}),
	}
}

// deadline is a context that only has a deadline. A timer would cost a round more than
// its requests do, and nobody waits for it: who does has a timer of his own, made when
// the requests are under way.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d deadline) Err() error {
	if time.Now().Before(d.at) { //nolint:forbidigo // as contexts do
		return nil
	}
	return context.DeadlineExceeded
}

func (r *round) add() {
	r.mu.Lock()
	r.open++
	r.mu.Unlock()
}

// done ends one request, or with the first call the sending.
func (r *round) done() {
	r.mu.Lock()
	r.open--
	last := r.open == 0
	r.mu.Unlock()
	if last {
		close(r.finished)
	}
}

// newTakes starts a round of takes, which may last a node timeout, and never beyond the
// end of a held lease.
func (le *Lease) newTakes(ctx context.Context, now time.Duration) *round {
	limit := le.locker.opt.NodeTimeout
	le.mu.Lock()
	if le.ballot.held {
		limit = min(limit, le.ballot.deadline()-le.ballot.stop-now)
	}
	le.mu.Unlock()
	return le.locker.roundAt(ctx, now, max(limit, time.Millisecond))
}

// askAll sends a take to every node that has none in flight. The votes are dated from
// now, which must be past.
func (le *Lease) askAll(ctx context.Context, now time.Duration) *round {
	r := le.newTakes(ctx, now)
	for i := range le.locker.nodes {
		le.ask(r, i)
	}
	r.done()
	return r
}

// askAgain sends a take to node i although one may be in flight there, that is, after
// its reply: something has changed at the node that the reply may not show.
func (le *Lease) askAgain(r *round, i int) {
	le.mu.Lock()
	le.answers[i].again = le.answers[i].inFlight
	le.mu.Unlock()
	le.ask(r, i)
}

// ask sends a take to node i, unless one is in flight there that says the same.
func (le *Lease) ask(r *round, i int) {
	le.mu.Lock()
	q, ok := le.prepare(r, i)
	le.mu.Unlock()
	if ok {
		le.send(q)
	}
}

// question is a take that is about to be sent.
type question struct {
	round *round
	node  int
	sent  time.Duration // when its round began, before the first byte left: a vote is dated from here
	req   Request
}

// prepare makes the take for node i, and reports false when there is none to send. It
// needs le.mu.
func (le *Lease) prepare(r *round, i int) (q question, ok bool) {
	a := &le.answers[i]
	if le.ballot.dead || a.inFlight {
		a.again = a.again || a.asked != le.ballot.proposal
		return question{}, false
	}
	now, fresh := r.start, !a.touched
	a.sent, a.inFlight, a.sending, a.before, a.touched, a.asked = now, true, true, a.touched, true, le.ballot.proposal
	req := Request{
		Op: OpTake, Keys: le.keys, Token: le.token, TTL: le.locker.opt.TTL,
		Fresh: fresh, HaveVote: now < le.ballot.votes[i].until, Fence: le.ballot.proposal,
	}
	le.locker.permit(i, now, r.until, &req)
	r.add()
	return question{round: r, node: i, sent: now, req: req}, true
}

func (le *Lease) send(q question) {
	le.locker.background.begin()
	le.locker.nodes[q.node].Send(q.round.ctx, q.req, func(reply Reply, err error) {
		defer le.locker.background.end()
		if err != nil {
			le.locker.failed(q.node, err)
		} else {
			le.locker.answered(q.node, le.keys.Fence, q.sent, reply)
		}
		next, again := le.record(q, reply, err)
		q.round.done()
		switch {
		case again:
			le.send(next)
		case le.owesRelease(q.node):
			le.releaseAt(q.round.ctx, q.node, "", le.locker.opt.NodeTimeout, nil)
		}
	})
	le.sent(q.node)
}

// sent notes that a take was handed to node i, and lets the release follow it that came
// in between.
func (le *Lease) sent(i int) {
	le.mu.Lock()
	a := &le.answers[i]
	owed := a.owed
	a.sending, a.owed = false, nil
	le.mu.Unlock()
	if owed != nil {
		owed()
	}
}

// behind calls f once no take is being handed to node i.
func (le *Lease) behind(i int, f func()) {
	le.mu.Lock()
	a := &le.answers[i]
	if a.sending {
		a.owed = f
		le.mu.Unlock()
		return
	}
	le.mu.Unlock()
	f()
}

// record counts a reply, and returns the next take for the node when it should be asked
// once more.
func (le *Lease) record(q question, reply Reply, err error) (next question, again bool) {
	le.mu.Lock()
	defer le.mu.Unlock()
	now := le.locker.opt.Clock()
	a := &le.answers[q.node]
	a.inFlight, a.err = false, err
	switch {
	case err == nil:
		a.reply, a.replied = reply, now
		// Requests of one lease are ordered, so a refusal says that the token is not
		// there, unless one that was lost is executed late.
		a.touched = a.unknown || reply.Outcome.grants()
		le.ballot.count(q.node, q.sent, now, reply)
		le.holding(now)
	case errors.Is(err, ErrNotSent):
		a.touched = a.before
	default:
		a.unknown = true
	}
	// A vote needs no second asking, unless it carries a number that is out of date.
	voted := err == nil && reply.Outcome.grants()
	again, a.again = a.again && (!voted || a.asked != le.ballot.proposal), false
	// A refusal for being late told the node's time, so the next request will be right.
	late := err == nil && reply.Outcome == Late && !a.retried
	a.retried = late
	le.wakeDecided(now)
	if err != nil || !again && !late {
		return question{}, false
	}
	r := le.locker.newRound(q.round.ctx, le.locker.opt.NodeTimeout)
	r.open = 0 // nobody but this take waits for it
	return le.prepare(r, q.node)
}

// Renew asks every node to extend the lease and returns at the q-th vote; replies
// that come later still count. It returns an error that wraps ErrLost when the lease
// is over, and one that wraps ErrNoQuorum when too few nodes answered: then the lease
// is held until its old deadline, and Renew may be tried again.
func (le *Lease) Renew(ctx context.Context) error {
	r := le.askAll(ctx, le.locker.opt.Clock())
	err := le.renewed(ctx, r)
	le.locker.report(Round{Renewal: true, Took: le.locker.opt.Clock() - r.start, Result: renewalResult(err)})
	return err
}

func renewalResult(err error) Result {
	switch {
	case err == nil:
		return ResultWon
	case errors.Is(err, ErrLost):
		return ResultLost
	case errors.Is(err, ErrNoQuorum):
		return ResultNoQuorum
	}
	return ResultError
}

func (l *Locker) report(r Round) {
	if l.opt.OnRound != nil {
		l.opt.OnRound(r)
	}
}

// waiter waits for replies to decide something. One that decides nothing does not wake
// it: waking costs about as much as the round trip on a fast network.
type waiter struct {
	decided func(now time.Duration) bool // called with the lease's mutex held
	wake    chan struct{}
}

// await registers a waiter, which looks at what came before by itself; forget ends that.
func (le *Lease) await(decided func(now time.Duration) bool) *waiter {
	w := &waiter{decided: decided, wake: make(chan struct{}, 1)}
	le.mu.Lock()
	defer le.mu.Unlock()
	le.waiters = append(le.waiters, w)
	return w
}

func (le *Lease) forget(w *waiter) {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.waiters = slices.DeleteFunc(le.waiters, func(o *waiter) bool { return o == w })
}

// wakeDecided needs le.mu.
func (le *Lease) wakeDecided(now time.Duration) {
	for _, w := range le.waiters {
		if !w.decided(now) {
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default: // has been woken, and will look at this as well
		}
	}
}

// renewed waits until a quorum of votes is as young as the round.
func (le *Lease) renewed(ctx context.Context, r *round) error {
	w := le.await(func(now time.Duration) bool {
		done, err := le.renewal(r, now)
		return done || err != nil
	})
	defer le.forget(w)
	// Nodes answer for themselves when a node timeout is over. Only what must end sooner
	// needs a timer, which costs a wake-up just when the nodes want to run.
	var limit <-chan time.Time
	if left := r.until - r.start; left < le.locker.opt.NodeTimeout {
		timer := time.NewTimer(left)
		defer timer.Stop()
		limit = timer.C
	}
	for over := false; ; {
		le.mu.Lock()
		done, err := le.renewal(r, le.locker.opt.Clock())
		le.mu.Unlock()
		switch {
		case done || err != nil:
			return err
		case over:
			return le.tooFew(r)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return fmt.Errorf("renew lock %q: %w", le.lock, ctx.Err())
		case <-r.finished:
			over = true
		case <-limit:
			over = true
		}
	}
}

// renewal judges a round of renewals as of now. It needs le.mu.
func (le *Lease) renewal(r *round, now time.Duration) (done bool, err error) {
	if !le.holding(now) {
		return false, fmt.Errorf("renew lock %q: %w: %s", le.lock, ErrLost, le.whyLost())
	}
	return le.ballot.deadline() >= r.start+le.ballot.life, nil
}

// whyLost says in words what ended the lease.
func (le *Lease) whyLost() string {
	if le.released {
		return "it was released"
	}
	for _, a := range le.answers {
		if a.replied > 0 && a.reply.Outcome == Held {
			return "a node holds the key of " + ownerName(a.reply.Owner)
		}
	}
	return "it was not renewed in time"
}

// noQuorum is the error of an attempt that got too few votes.
func (le *Lease) noQuorum(reason string) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.quorumError(le.ballot.heldVotes(le.locker.opt.Clock()), reason)
}

// tooFew is the error of a renewal that got too few votes in time.
func (le *Lease) tooFew(r *round) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	renewed := 0
	for i, v := range le.ballot.votes {
		if v.until >= r.start+le.ballot.life && !le.ballot.shadowed(i) {
			renewed++
		}
	}
	return le.quorumError(renewed, "not renewed in time, the lease goes on until its deadline")
}

// quorumError needs le.mu.
func (le *Lease) quorumError(got int, reason string) error {
	e := &QuorumError{Lock: le.lock, Got: got, Needed: le.ballot.quorum, Size: len(le.answers), Reason: reason}
	for _, a := range le.answers {
		if a.err != nil {
			e.Nodes = append(e.Nodes, a.err)
		}
	}
	return e
}

// Keep renews the lease at every renew interval until ctx ends, which returns nil,
// or until the lease is over, which returns an error that wraps ErrLost. A renewal
// that failed is tried again sooner, and shortens nothing.
func (le *Lease) Keep(ctx context.Context) error {
	interval := le.locker.opt.RenewInterval
	next := le.firstRenewal()
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		end := time.NewTimer(le.Remaining() + time.Millisecond)
		select {
		case <-ctx.Done():
			end.Stop()
			return nil
		case <-end.C:
			if !le.Holding() {
				return fmt.Errorf("keep lock %q: %w: %s", le.lock, ErrLost, le.reasonLost())
			}
			continue
		case <-le.ended:
			end.Stop()
			return fmt.Errorf("keep lock %q: %w: %s", le.lock, ErrLost, le.reasonLost())
		case <-timer.C:
		}
		end.Stop()
		err := le.Renew(ctx)
		if errors.Is(err, ErrLost) {
			return err
		}
		wait := interval
		if err != nil {
			wait = min(interval, max(le.locker.opt.NodeTimeout, interval/4))
		}
		timer.Reset(wait)
	}
}

// firstRenewal is how long until the first renewal is due: an interval after the
// lease was won, or at once when a node could not be asked, to widen it to all of them.
func (le *Lease) firstRenewal() time.Duration {
	le.mu.Lock()
	defer le.mu.Unlock()
	for _, a := range le.answers {
		if a.replied == 0 && !a.inFlight {
			return 0
		}
	}
	age := le.locker.opt.Clock() - (le.ballot.deadline() - le.ballot.life)
	return max(le.locker.opt.RenewInterval-age, 0)
}

func (le *Lease) reasonLost() string {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.whyLost()
}
