package redlock

import (
	"errors"
	"testing"
	"time"
)

const tQuarantine = 31 * time.Second

// epoch is a plausible wall clock for nodes: far from zero.
const epoch = 1_700_000_000 * time.Second

func seen(w *watch, now time.Duration, runID string, uptime time.Duration) {
	w.answer(now, now, drift(tTTL), Reply{RunID: runID, Uptime: uptime, Time: (epoch + now).Microseconds()})
}

func TestNodeIsMatureAfterAQuarantineOfOwnWatch(t *testing.T) {
	var w watch
	seen(&w, at(100), "a", -1) // a server that may not be asked for its uptime
	if w.mature(at(130.9), tQuarantine) {
		t.Fatal("mature before a quarantine was watched (review A.4a)")
	}
	if !w.mature(at(131), tQuarantine) {
		t.Fatal("not mature after a quarantine of watching")
	}
}

// Review A.4d: uptime counts whole seconds; a server up for 0.3 s may answer 1.
func TestCounterexampleUptimeIsShortByASecond(t *testing.T) {
	var w watch
	seen(&w, at(100), "a", tQuarantine)
	if w.mature(at(100), tQuarantine) {
		t.Fatal("a second of the uptime may not have passed")
	}
	if !w.mature(at(101), tQuarantine) {
		t.Fatal("not mature a second later")
	}
}

// Review A.4c, A.4e: uptime is wall time and proves nothing of a server that we saw
// restart, nor of a warm server under an old name.
func TestCounterexampleUptimeIsNotBelievedAfterARestartWeSaw(t *testing.T) {
	var w watch
	seen(&w, at(100), "a", time.Hour)
	seen(&w, at(110), "b", time.Hour)
	if w.mature(at(120), tQuarantine) {
		t.Fatal("another run_id with a long uptime is young for a quarantine of our own watch")
	}
}

func TestAClockStepRestartsTheWatch(t *testing.T) {
	var w watch
	seen(&w, at(100), "a", time.Hour)
	w.answer(at(110), at(110), drift(tTTL), Reply{RunID: "a", Uptime: time.Hour, Time: (epoch + at(115)).Microseconds()})
	if w.mature(at(120), tQuarantine) {
		t.Fatal("a node whose clock stepped 5 s grants no new lease for a quarantine")
	}
}

func TestAClockThatStandsStillIsAStep(t *testing.T) {
	var w watch
	seen(&w, at(100), "a", time.Hour)
	w.answer(at(105), at(105), drift(tTTL), Reply{RunID: "a", Uptime: time.Hour, Time: (epoch + at(100)).Microseconds()})
	if w.mature(at(110), tQuarantine) {
		t.Fatal("a clock that stands still never ends a lease (valkey#4345)")
	}
}

// Review B.2: a late reply must not look like a step.
func TestCounterexampleALateReplyIsNoStep(t *testing.T) {
	var c nodeClock
	c.observe(epoch+at(1), at(1), at(1), at(0.005))
	if c.observe(epoch+at(2), at(2), at(2.2), at(0.005)) {
		t.Fatal("a reply that was 200 ms late is within its window")
	}
	if c.observe(epoch+at(3), at(3), at(3), at(0.005)) {
		t.Fatal("a prompt reply after a late one is no step")
	}
	if !c.observe(epoch+at(4)+at(0.1), at(4), at(4), at(0.005)) {
		t.Fatal("a step of 100 ms went unnoticed")
	}
}

func TestClocksThatRunAtDifferentRatesAreNoStep(t *testing.T) {
	var c nodeClock
	for s := 0.0; s < 36000; s += 2 {
		if c.observe(epoch+at(s*1.004), at(s), at(s)+time.Millisecond, at(0.1)) {
			t.Fatalf("a clock 0.4 %% fast was taken for a step after %v s", s)
		}
	}
}

func TestFailuresAreCountedByKind(t *testing.T) {
	var w watch
	w.fail(&NodeError{Node: "x", Kind: KindAuth, Err: errors.New("WRONGPASS")})
	w.fail(&NodeError{Node: "x", Kind: KindUnfit, Err: errors.New("is a replica")})
	s := w.status("x", at(1), tQuarantine)
	if s.Errors[KindAuth] != 1 || s.Unfit != "is a replica" || s.Up || s.LastReply >= 0 {
		t.Fatalf("status %+v", s)
	}
}
