package model

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	long  = flag.Bool("model.long", false, "search the larger bounds as well: about an hour and 8 GB")
	limit = flag.Int("model.limit", 40_000_000, "stop a search at that many states")
)

// judge runs a search and checks what it finds: nothing, or something that contains wrong.
func judge[S comparable](t *testing.T, sys System[S], wrong string) Found[S] {
	t.Helper()
	began := time.Now()
	f := Search(sys, *limit)
	t.Logf("%v, %.1f s", f, time.Since(began).Seconds())
	switch {
	case wrong == "" && f.Wrong != "":
		t.Errorf("%v", f)
	case wrong == "" && !f.Complete && !*long:
		t.Errorf("not everything was seen: %v", f)
	case wrong != "" && !strings.Contains(f.Wrong, wrong):
		t.Errorf("%v: want %q", f, wrong)
	}
	return f
}

// one gives both clients the same.
func one(n int8) [clients]int8 { return [clients]int8{n, n} }

const both = "both hold"

// lockCases are the searches of the lock. Each is named after the rule that is off.
var lockCases = []struct {
	name  string
	rules Rules
	wrong string
	long  bool
}{
	{name: "all rules, no restart", rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1)}},
	{name: "all rules, one restart", rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Restarts: 1}},
	{name: "all rules, TTLs 3 and 1 with one quarantine", rules: Rules{TTL: [2]int8{3, 1}, Quarantine: one(3), Attempts: one(1), Restarts: 1}},
	{name: "all rules, A holds, stop budget", rules: Rules{TTL: one(3), Quarantine: one(3), Attempts: one(1), Restarts: 1, StopBudget: 1, Holding: true}, long: true},
	{name: "all rules, two restarts", rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Restarts: 2}, long: true},
	{name: "all rules, one restart, two attempts of B", rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: [2]int8{1, 2}, Restarts: 1}, long: true},

	{name: "no quarantine", wrong: both, rules: Rules{TTL: one(2), Attempts: one(1), Restarts: 1}},
	{name: "quarantine one tick short", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(1), Attempts: one(1), Restarts: 1}},
	{name: "quarantine from one's own TTL", wrong: both, rules: Rules{TTL: [2]int8{3, 1}, Quarantine: [2]int8{3, 1}, Attempts: one(1), Restarts: 1}},
	{name: "re-take while the lease is held", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Restarts: 1, Retake: RetakeWhileHeld, Holding: true}},
	{name: "own key on a young node counts", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Restarts: 1, YoungOwnKeyCounts: true, Holding: true}},
	{name: "no latch", wrong: revived, rules: Rules{TTL: one(3), Quarantine: one(3), Attempts: one(1), StopBudget: 1, NoLatch: true, Holding: true}},
	{name: "dead token counts", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), WithdrawKeepsToken: true}},

	{name: "rounds, no restart", rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Rounds: true, Retake: RetakeRoundProof}},
	{name: "rounds, dead token counts", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Rounds: true, WithdrawKeepsToken: true}},
	{name: "rounds, dated from the retry", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Rounds: true, DatedFromRetry: true}},
	{name: "rounds, re-take proved by a round", wrong: both, rules: Rules{TTL: one(2), Quarantine: one(2), Attempts: one(1), Restarts: 1, Rounds: true, Retake: RetakeRoundProof, Holding: true, NoLatch: true}},
	{name: "rounds, re-take proved by a round, both active", wrong: both, long: true,
		rules: Rules{TTL: one(4), Quarantine: one(4), Attempts: one(1), Restarts: 1, Rounds: true, Retake: RetakeRoundProof, Holding: true, StopBudget: 1, OverlapAllowed: true}},
	{name: "rounds, re-take proved by a round, short attempts", long: true,
		rules: Rules{TTL: one(4), Quarantine: one(4), Attempts: one(1), Restarts: 1, Rounds: true, Retake: RetakeRoundProof, Holding: true, StopBudget: 1, OverlapAllowed: true, AttemptLimit: 1}},
}

const revived = "came back to life"

func TestLock(t *testing.T) {
	for _, c := range lockCases {
		if c.long && !*long {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &Lock{c.rules}
			f := judge[LockKey](t, m, c.wrong)
			for _, line := range m.Story(f.Path) {
				t.Log(line)
			}
		})
	}
}

func TestFence(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules FenceRules
		wrong string
		long  bool
	}{
		{name: "all rules", rules: FenceRules{Terms: 2, Largest: 4}},
		{name: "all rules, candidates that see another time", rules: FenceRules{Terms: 2, Largest: 5, Skew: [terms]int8{3, 0}}},
		{name: "all rules, a counter lost", rules: FenceRules{Terms: 2, Largest: 5, Losses: 1}},
		{name: "all rules, three terms", rules: FenceRules{Terms: 3, Largest: 5}, long: true},
		{name: "all rules, three terms, a counter lost", rules: FenceRules{Terms: 3, Largest: 8, Losses: 1}, long: true},
		{name: "stale answers count", rules: FenceRules{Terms: 2, Largest: 4, StaleAnswers: true}, wrong: "not above"},
		{name: "a re-asked node counts up", rules: FenceRules{Terms: 2, Largest: 4, ReaskRaises: true}, wrong: "another number"},
		{name: "a counter lost and clocks that disagree", rules: FenceRules{Terms: 2, Largest: 5, Losses: 1, Skew: [terms]int8{3, 0}}, wrong: "not above"},
		{name: "storage that does not check: a paused holder's write", rules: FenceRules{Terms: 2, Largest: 4, Unchecked: true}, wrong: "storage accepted"},
	} {
		if c.long && !*long {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &Fence{c.rules}
			f := judge[FenceState](t, m, c.wrong)
			for _, line := range m.Story(f.Path) {
				t.Log(line)
			}
		})
	}
}

func TestSplitVotes(t *testing.T) {
	for _, size := range []int{3, 4, 5} {
		judge[SplitState](t, &Split{Nodes: size, Candidates: 3}, "")
		judge[SplitState](t, &Split{Nodes: size, Candidates: 3, KeepsVotes: true}, "stay so")
	}
}

// TestLists goes through all lists of up to seven nodes.
func TestLists(t *testing.T) {
	for n := 1; n <= 7; n++ {
		list := uint8(1<<n - 1)
		if Apart(list, list, 0, 0) {
			t.Errorf("%d nodes: two quorums of one list without a common node", n)
		}
		if n < 7 && Apart(list, list|1<<n, 0, 0) {
			t.Errorf("%d nodes: a list with one more", n)
		}
		if n >= 2 && !Apart(list, list, n/2, n/2) {
			t.Errorf("%d nodes: a quorum lowered by one should do harm", n)
		}
	}
	if !Apart(0b00111, 0b01101, 0, 0) {
		t.Error("node 2 swapped for another: should do harm")
	}
	if !Apart(0b00111, 0b11111, 0, 0) {
		t.Error("two nodes added in one step: should do harm")
	}
}
