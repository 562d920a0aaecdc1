package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// term is a candidate whose term ends at until unless it is renewed.
type term struct {
	mu    sync.Mutex
	start time.Time
	until time.Duration
	stuck chan struct{} // closed when a candidate that does not answer may go on
}

func (l *term) now() time.Duration { return time.Since(l.start) }

func (l *term) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *term) leadership() election.Leadership {
	l.mu.Lock()
	left, stuck := l.until-l.now(), l.stuck
	l.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	if left <= 0 {
		return election.Leadership{Role: election.Standby}
	}
	return election.Leadership{Role: election.Active, ValidFor: left}
}

// guarded runs a guard over a term that has ten seconds.
func guarded(t *testing.T, during func(g *lossGuard, l *term)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &term{start: time.Now(), until: 10 * time.Second}
		g := newLossGuard(2 * time.Second)
		g.now = l.now
		ctx, cancel := context.WithCancel(t.Context())
		go g.watch(ctx, l.leadership)
		synctest.Wait()
		during(g, l)
		cancel()
		synctest.Wait()
	})
}

func lost(g *lossGuard) bool { return len(g.lost) == 1 }

func TestGuardReportsATermThatRanOutInSilence(t *testing.T) {
	guarded(t, func(g *lossGuard, _ *term) {
		time.Sleep(10 * time.Second)
		if lost(g) {
			t.Fatal("reported before the candidate had time to tell")
		}
		time.Sleep(2 * g.grace)
		if !lost(g) {
			t.Fatal("a term that ran out in silence was not reported")
		}
	})
}

func TestGuardLetsRenewedTermsBe(t *testing.T) {
	guarded(t, func(g *lossGuard, l *term) {
		for range 20 {
			time.Sleep(4 * time.Second)
			l.set(func() { l.until = l.now() + 10*time.Second })
		}
		if lost(g) {
			t.Fatal("a term that was renewed was reported")
		}
	})
}

func TestGuardLetsTermsBeThatWereGivenUp(t *testing.T) {
	guarded(t, func(g *lossGuard, l *term) {
		time.Sleep(4 * time.Second)
		l.set(func() { l.until = 0 })
		time.Sleep(time.Minute)
		if lost(g) {
			t.Fatal("a term that was given up before its time was reported")
		}
	})
}

func TestGuardTakesTheCandidatesWord(t *testing.T) {
	guarded(t, func(g *lossGuard, _ *term) {
		g.event(election.Event{Kind: election.LeaderReleased})
		g.event(election.Event{Kind: election.LeaderElected})
		if lost(g) {
			t.Fatal("another event was taken for a loss")
		}
		g.event(election.Event{Kind: election.LeaderLost, Message: "gone"})
		g.event(election.Event{Kind: election.LeaderLost, Message: "gone again"})
		if message := <-g.lost; message != "gone" || lost(g) {
			t.Fatalf("message %q, and another: %v", message, lost(g))
		}
	})
}

func TestGuardReportsACandidateThatNoLongerAnswers(t *testing.T) {
	guarded(t, func(g *lossGuard, l *term) {
		stuck := make(chan struct{})
		defer close(stuck)
		time.Sleep(4 * time.Second)
		l.set(func() { l.stuck = stuck })
		time.Sleep(5 * time.Second)
		if lost(g) {
			t.Fatal("reported while the term has time")
		}
		time.Sleep(time.Second + 2*g.grace)
		if !lost(g) {
			t.Fatal("a candidate that no longer answers was not reported")
		}
	})
}

func TestSightings(t *testing.T) {
	active := sighting{active: true, at: 1, until: 10}
	tests := map[string]struct{ seen, want sighting }{
		"renewed":        {sighting{true, 5, 20}, sighting{true, 5, 20}},
		"given up early": {sighting{false, 9, 9}, sighting{false, 9, 9}},
		"ran out":        {sighting{false, 10, 10}, active},
	}
	for name, tt := range tests {
		if got := next(active, tt.seen); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}
