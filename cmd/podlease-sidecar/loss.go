package main

import (
	"context"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/election"
)

// lossGuard finds out that the lease was lost, for --on-loss=exit. The candidate's
// event says so; where the election loop is stuck and tells of nothing, the guard
// finds that the term's time is over. It has goroutines of its own, and copes with a
// candidate that no longer answers at all.
type lossGuard struct {
	// grace is how long after the end of a term's time the candidate may take to tell
	// of it. It is taken from the stop budget.
	grace time.Duration
	now   func() time.Duration
	// lost gets one message, which says what happened.
	lost chan string
}

func newLossGuard(stopBudget time.Duration) *lossGuard {
	return &lossGuard{
		grace: min(max(stopBudget/8, 20*time.Millisecond), 500*time.Millisecond),
		now:   boottime.Now,
		lost:  make(chan string, 1),
	}
}

// event takes in what the candidate tells.
func (g *lossGuard) event(e election.Event) {
	if e.Kind == election.LeaderLost {
		g.report(e.Message)
	}
}

// report keeps the first message: one process ends once.
func (g *lossGuard) report(message string) {
	select {
	case g.lost <- message:
	default:
	}
}

// sighting is what the candidate said of itself at an instant.
type sighting struct {
	active bool
	at     time.Duration // when it was asked
	until  time.Duration // how long it is active without a renewal
}

// watch follows the candidate until ctx ends.
func (g *lossGuard) watch(ctx context.Context, leadership func() election.Leadership) {
	sightings := make(chan sighting)
	go g.look(ctx, leadership, sightings)
	ticker := time.NewTicker(g.grace / 2)
	defer ticker.Stop()
	var term sighting
	for {
		select {
		case <-ctx.Done():
			return
		case seen := <-sightings:
			term = next(term, seen)
		case <-ticker.C:
			if term.active && g.now() > term.until+g.grace {
				g.report("the time of the term is over and the election loop has not told of it: it is stuck")
				return
			}
		}
	}
}

// next is what is known of the term after another sighting. A candidate that is no
// longer active before its time is over gave the term up, or tells of its loss by
// itself; one that is not active because its time is over has to tell of that.
func next(term, seen sighting) sighting {
	if !seen.active && term.active && seen.at >= term.until {
		return term
	}
	return seen
}

// look asks the candidate again and again. A candidate that does not answer stops it,
// and nothing else.
func (g *lossGuard) look(ctx context.Context, leadership func() election.Leadership, to chan<- sighting) {
	ticker := time.NewTicker(g.grace / 2)
	defer ticker.Stop()
	for {
		at := g.now()
		l := leadership()
		select {
		case to <- sighting{active: l.Active(), at: at, until: g.now() + l.ValidFor}:
		case <-ctx.Done():
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
