package redlock

import (
	"slices"
	"time"
)

// maxFence bounds proposed fencing tokens. Redis counts in doubles inside scripts,
// where numbers above 2^53 stop growing; the gap of 2^40 leaves room for every
// later term.
const maxFence = 1<<53 - 1<<40

// vote is one node's confirmation of a token.
type vote struct {
	until time.Duration // valid while now is before; 0 for no vote
	runID string        // the server that voted
	fence uint64        // the number it stored
}

// ballot counts the votes of one token. It is the whole of the lock's safety: a
// pure state machine that is told the time and does no I/O.
type ballot struct {
	quorum int
	life   time.Duration // of a vote, from its sending: TTL - TTL/100
	stop   time.Duration // the stop budget
	fenced bool

	votes    []vote
	proposal uint64 // the number that current requests propose
	final    uint64 // the fencing token once it cannot change, else 0
	held     bool   // was holding at some time
	dead     bool   // will never hold (again)
}

// Quorum returns how many votes of n nodes make a majority.
func Quorum(n int) int { return n/2 + 1 }

// drift is the allowance for clocks that run at different rates: with each within
// 0.5 % of true time, two differ by at most 1 %.
func drift(ttl time.Duration) time.Duration { return ttl / 100 }

func newBallot(n int, ttl, stop time.Duration, fenced bool) ballot {
	return ballot{quorum: Quorum(n), life: ttl - drift(ttl), stop: stop, fenced: fenced, votes: make([]vote, n)}
}

// count takes in node i's reply to a request sent at sent. now must have been read
// inside the critical section that calls it: a token that has stopped holding in
// the meantime is dead, and nothing counts for it any more (protocol review A.3, A.5).
func (b *ballot) count(i int, sent, now time.Duration, r Reply) {
	b.holding(now)
	if b.dead {
		return
	}
	v := &b.votes[i]
	switch r.Outcome {
	case Taken, Extended:
		// A young server may have forgotten somebody's vote. Only if ours there is
		// still valid do we know that the lost key was our own (review A.2).
		if r.Young && now >= v.until {
			return
		}
		if until := sent + b.life; until > v.until {
			*v = vote{until: until, runID: r.RunID, fence: r.Fence}
		}
	case Held:
		*v = vote{}
	case Absent, Late:
		// On a young server the key went with the restart, and nobody else can have
		// been granted it since: the vote stands. On a mature one it is gone.
		if !r.Young {
			*v = vote{}
		}
	case Released, Gone:
	}
	b.settleFence(now)
	b.holding(now)
}

// deadline is the q-th latest vote, counting each server once; 0 without a quorum.
func (b *ballot) deadline() time.Duration {
	untils := make([]time.Duration, 0, 8)
	for i, v := range b.votes {
		if v.until > 0 && !b.shadowed(i) {
			untils = append(untils, v.until)
		}
	}
	if len(untils) < b.quorum {
		return 0
	}
	slices.Sort(untils)
	return untils[len(untils)-b.quorum]
}

// shadowed reports whether another name has a later vote of the same server: one
// server has one vote, whatever it is called (review A.6).
func (b *ballot) shadowed(i int) bool {
	v := b.votes[i]
	for j, w := range b.votes {
		if j == i || w.until == 0 || w.runID != v.runID {
			continue
		}
		if w.until > v.until || w.until == v.until && j < i {
			return true
		}
	}
	return false
}

// holding reports whether there is a quorum and now is before the deadline less the
// stop budget. The first false after a true is final: a lease never comes back to
// life (review A.5).
func (b *ballot) holding(now time.Duration) bool {
	if b.dead {
		return false
	}
	d := b.deadline()
	ok := d > 0 && now < d-b.stop
	switch {
	case ok:
		b.held = true
	case b.held:
		b.dead = true
	}
	return ok
}

// valid counts the servers whose vote is valid at now, and of those the ones that
// stored the proposal; max is the largest number any of them stored.
func (b *ballot) valid(now time.Duration) (votes, exact int, highest uint64) {
	for i, v := range b.votes {
		if now >= v.until || b.shadowed(i) {
			continue
		}
		votes++
		if v.fence == b.proposal {
			exact++
		}
		highest = max(highest, v.fence)
	}
	return votes, exact, highest
}

// settleFence makes the fencing token final when a quorum of valid votes stored
// exactly what was proposed. A number in a vote that ran out proves nothing: its
// node may have given a larger one to somebody else since (review A.8b).
func (b *ballot) settleFence(now time.Duration) {
	if !b.fenced || b.final != 0 || b.proposal == 0 {
		return
	}
	if _, exact, _ := b.valid(now); exact >= b.quorum {
		b.final = b.proposal
	}
}

// outbid reports whether a quorum of valid votes stored a number above the proposal.
func (b *ballot) outbid(now time.Duration) bool {
	if !b.fenced || b.final != 0 {
		return false
	}
	// Numbers below the proposal are answers to an earlier one, and will be renewed.
	votes, _, highest := b.valid(now)
	return votes >= b.quorum && highest > b.proposal
}

// repropose raises the proposal above what a quorum of valid votes stored, and
// reports whether it did: the caller asks the nodes again.
func (b *ballot) repropose(now time.Duration) bool {
	if !b.outbid(now) {
		return false
	}
	_, _, highest := b.valid(now)
	b.proposal = highest + 1
	return true
}

// fenceReady reports whether nothing is missing but time: fencing is off or the
// token is final.
func (b *ballot) fenceReady() bool { return !b.fenced || b.final != 0 }

// heldVotes counts the servers whose vote is valid at now.
func (b *ballot) heldVotes(now time.Duration) int {
	votes, _, _ := b.valid(now)
	return votes
}
