package redlock

import (
	"testing"
	"time"
)

// The tests named "Counterexample" replay the schedules that broke earlier drafts of
// the rules: with the rule taken out, each of them fails.

const (
	tTTL  = 10 * time.Second
	tStop = 2500 * time.Millisecond
)

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func newTestBallot(n int) *ballot {
	b := newBallot(n, tTTL, tStop, false)
	return &b
}

func taken(runID string) Reply    { return Reply{Outcome: Taken, RunID: runID} }
func extended(runID string) Reply { return Reply{Outcome: Extended, RunID: runID} }
func young(r Reply) Reply         { r.Young = true; return r }
func held(by string) Reply        { return Reply{Outcome: Held, Owner: by, PTTL: time.Second} }

func TestQuorumIsAMajorityOfTheConfiguredNodes(t *testing.T) {
	for n, want := range []int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4, 8: 5, 9: 5} {
		if n > 0 && Quorum(n) != want {
			t.Errorf("Quorum(%d) = %d, want %d", n, Quorum(n), want)
		}
	}
}

func TestDeadlineIsTheQthLatestVoteDatedFromItsSending(t *testing.T) {
	b := newTestBallot(3)
	b.count(0, at(0), at(0.1), taken("a"))
	if b.holding(at(0.1)) {
		t.Fatal("holding with one vote of three")
	}
	b.count(1, at(2), at(2.1), taken("b"))
	if got, want := b.deadline(), at(9.9); got != want {
		t.Fatalf("deadline %v, want %v: that of the older of two votes", got, want)
	}
	b.count(2, at(3), at(3.5), taken("c"))
	if got, want := b.deadline(), at(11.9); got != want {
		t.Fatalf("deadline %v, want %v: that of the second latest vote", got, want)
	}
}

// Review A.2: own key on a young node counted although the vote it once had is over;
// in between, somebody else may have been granted the node and lost it.
func TestCounterexampleYoungNodeCountsOnlyOverAnOwnValidVote(t *testing.T) {
	b := newTestBallot(3)
	b.count(0, at(0), at(0.01), taken("1"))
	b.count(1, at(0), at(0.01), taken("2"))
	b.count(2, at(7), at(7.01), young(taken("3'"))) // never had a vote there
	b.count(0, at(7), at(7.01), extended("1"))
	b.count(2, at(7.1), at(7.2), young(extended("3'")))
	if b.heldVotes(at(7.2)) != 2 {
		t.Fatalf("%d votes, want 2: a young node without an own earlier vote does not count", b.heldVotes(at(7.2)))
	}
}

func TestRestartedNodeIsTakenAgainOverAnOwnValidVote(t *testing.T) {
	b := newTestBallot(1)
	b.count(0, at(0), at(0.01), taken("1"))
	b.count(0, at(5), at(5.01), young(taken("1'")))
	if got, want := b.deadline(), at(14.9); got != want {
		t.Fatalf("deadline %v, want %v: a restart of the only node costs nothing", got, want)
	}
	late := newTestBallot(3)
	late.count(2, at(0), at(0.01), taken("3"))
	late.count(2, at(9), at(9.95), young(taken("3'")))
	if late.heldVotes(at(9.96)) != 0 {
		t.Fatal("a vote that was over when the reply arrived was renewed on a young node")
	}
}

// Review A.3a: the late grants of a withdrawn attempt.
func TestCounterexampleDeadTokenCountsNothing(t *testing.T) {
	b := newTestBallot(3)
	b.dead = true // withdrawn: releases are under way
	b.count(0, at(0), at(0.1), taken("1"))
	b.count(1, at(0), at(0.1), taken("2"))
	if b.holding(at(0.1)) || b.heldVotes(at(0.1)) != 0 {
		t.Fatal("a dead token counted replies")
	}
}

// Review A.3b: an attempt dated from its last try.
func TestCounterexampleRetryDoesNotRedateOlderVotes(t *testing.T) {
	b := newTestBallot(3)
	b.count(0, at(0), at(0.1), taken("1"))
	b.count(1, at(9), at(9.1), taken("2"))
	if got := b.deadline(); got != at(9.9) {
		t.Fatalf("deadline %v, want 9.9s: the first vote is from 0", got)
	}
	if b.holding(at(9.1)) {
		t.Fatal("holding with less than a stop budget left")
	}
}

// Review A.5: a lease that comes back to life after its holder stopped.
func TestCounterexampleLeaseThatEndedNeverHoldsAgain(t *testing.T) {
	b := newTestBallot(3)
	b.count(0, at(0), at(0.1), taken("1"))
	b.count(1, at(0), at(0.1), taken("2"))
	if !b.holding(at(7.39)) {
		t.Fatal("not holding before the deadline less the stop budget")
	}
	if b.holding(at(7.41)) {
		t.Fatal("holding inside the stop budget")
	}
	b.count(0, at(7.3), at(8), extended("1"))
	b.count(1, at(7.3), at(8), extended("2"))
	if b.holding(at(8)) {
		t.Fatal("a renewal that came after the end revived the lease")
	}
}

// The same, when nobody asked between the end and the reply.
func TestReplyThatComesAfterTheEndIsRefusedThoughNobodyAskedBetween(t *testing.T) {
	b := newTestBallot(3)
	b.count(0, at(0), at(0.1), taken("1"))
	b.count(1, at(0), at(0.1), taken("2"))
	b.count(0, at(7.3), at(8), extended("1"))
	b.count(1, at(7.3), at(8), extended("2"))
	if b.holding(at(8)) {
		t.Fatal("replies from after the end counted")
	}
}

// Review A.6: one server under several names.
func TestCounterexampleOneServerHasOneVote(t *testing.T) {
	b := newTestBallot(3)
	for i := range 3 {
		b.count(i, at(0), at(0.1), taken("same"))
	}
	if b.holding(at(0.1)) {
		t.Fatal("three names of one server made a quorum of three")
	}
	b.count(1, at(1), at(1.1), taken("other"))
	if !b.holding(at(1.1)) {
		t.Fatal("two servers of three names are a quorum")
	}
}

// Review A.10: with four nodes two refusals end the lease, not three.
func TestCounterexampleARefusalVoidsItsVote(t *testing.T) {
	b := newTestBallot(4)
	for i := range 4 {
		b.count(i, at(0), at(0.1), taken(string(rune('a'+i))))
	}
	b.count(0, at(1), at(1.1), held("B"))
	if !b.holding(at(1.1)) {
		t.Fatal("three votes of four are a quorum")
	}
	b.count(1, at(1), at(1.1), held("B"))
	if b.holding(at(1.1)) {
		t.Fatal("two votes of four are none")
	}
}

func TestAbsenceVoidsTheVoteOnAMatureNodeOnly(t *testing.T) {
	b := newTestBallot(3)
	b.count(0, at(0), at(0.1), taken("1"))
	b.count(1, at(0), at(0.1), taken("2"))
	b.count(0, at(1), at(1.1), young(Reply{Outcome: Absent, RunID: "1'"}))
	if !b.holding(at(1.1)) {
		t.Fatal("absence on a young node says only that it restarted")
	}
	b.count(0, at(2), at(2.1), Reply{Outcome: Absent, RunID: "1"})
	if b.holding(at(2.1)) {
		t.Fatal("absence on a mature node means that the vote is gone")
	}
}

func fencedBallot(n int, proposal uint64) *ballot {
	b := newBallot(n, tTTL, tStop, true)
	b.proposal = proposal
	return &b
}

func fencedReply(runID string, n uint64) Reply {
	return Reply{Outcome: Taken, RunID: runID, Fence: n}
}

func TestFenceIsFinalWhenAQuorumStoredExactlyTheProposal(t *testing.T) {
	b := fencedBallot(3, 100)
	b.count(0, at(0), at(0.1), fencedReply("1", 100))
	b.count(1, at(0), at(0.1), fencedReply("2", 140))
	if b.fenceReady() {
		t.Fatal("final although only one node stored the proposal")
	}
	if !b.repropose(at(0.1)) || b.proposal != 141 {
		t.Fatalf("proposal %d, want 141: above the highest stored", b.proposal)
	}
	b.count(0, at(0.2), at(0.3), Reply{Outcome: Extended, RunID: "1", Fence: 141})
	b.count(1, at(0.2), at(0.3), Reply{Outcome: Extended, RunID: "2", Fence: 141})
	if !b.fenceReady() || b.final != 141 {
		t.Fatalf("final %d after the second round, want 141", b.final)
	}
}

// Review A.8b: an answer whose vote ran out must not count for the fence.
func TestCounterexampleStaleFenceAnswersDoNotCount(t *testing.T) {
	b := fencedBallot(3, 100)
	b.count(2, at(0), at(0.1), fencedReply("3", 100)) // runs out at 9.9
	b.count(1, at(12), at(12.1), fencedReply("2", 103))
	b.count(0, at(12), at(12.1), fencedReply("1", 100))
	if b.final != 0 {
		t.Fatalf("published %d on the word of a vote that is over; a later term may have more", b.final)
	}
}

// Review A.8c: asking again for what was granted must not raise the number.
func TestAskingAgainKeepsTheFence(t *testing.T) {
	b := fencedBallot(3, 100)
	b.count(0, at(0), at(0.1), fencedReply("1", 100))
	b.count(0, at(0.2), at(0.3), Reply{Outcome: Extended, RunID: "1", Fence: 100})
	b.count(1, at(0), at(0.3), fencedReply("2", 100))
	if b.final != 100 {
		t.Fatalf("final %d, want 100 in one round", b.final)
	}
}

func TestFenceDoesNotCountAServerTwice(t *testing.T) {
	b := fencedBallot(3, 100)
	b.count(0, at(0), at(0.1), fencedReply("1", 100))
	b.count(1, at(0), at(0.1), fencedReply("1", 100))
	if b.fenceReady() {
		t.Fatal("two names of one server made the fence final")
	}
}

// A node that already stored the new proposal must not make it rise again while the
// others' answers to it are under way: the number would never settle.
func TestFenceDoesNotChaseItsOwnProposal(t *testing.T) {
	b := fencedBallot(3, 100)
	b.count(0, at(0), at(0.1), fencedReply("1", 140))
	b.count(1, at(0), at(0.1), fencedReply("2", 100))
	if !b.repropose(at(0.1)) || b.proposal != 141 {
		t.Fatalf("proposal %d, want 141", b.proposal)
	}
	b.count(0, at(0.2), at(0.3), Reply{Outcome: Extended, RunID: "1", Fence: 141})
	if b.repropose(at(0.3)) {
		t.Fatalf("raised to %d although nothing is above the proposal", b.proposal)
	}
}
