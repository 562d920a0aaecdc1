package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
)

// fault is something that goes wrong. do returns what ends it, or nil.
type fault struct {
	name   string
	weight int // how often it is drawn; 0 for those that break an assumption
	do     func(w *world, a aim) (end func())
}

// aim is what a fault is drawn with.
type aim struct {
	node  int
	place int     // of a candidate, or that of the holder
	part  float64 // from 0 to 1, whatever the fault makes of it
}

const atHolder = -1

func (a aim) String() string {
	who := "the holder"
	if a.place != atHolder {
		who = "candidate " + string(rune('a'+a.place))
	}
	return fmt.Sprintf("node %d, %s, %.2f", a.node, who, a.part)
}

// at is the place that was drawn.
func (w *world) at(a aim) *place {
	if a.place == atHolder {
		return w.holder(w.places[a.node%len(w.places)])
	}
	return w.places[a.place]
}

// strike is a fault that is to happen.
type strike struct {
	after time.Duration // since the strike before
	fault fault
	aim   aim
	lasts time.Duration
}

func (s strike) String() string { return fmt.Sprintf("%s (%v) for %v", s.fault.name, s.aim, s.lasts) }

// nemesis draws what is to happen from a seed.
type nemesis struct {
	rng *rand.Rand
	set settings
}

func newNemesis(seed uint64, set settings) *nemesis {
	return &nemesis{rng: rand.New(rand.NewPCG(seed, 0)), set: set}
}

// schedule is what happens in a storm of that length.
func (n *nemesis) schedule(length time.Duration) (all []strike) {
	for at := time.Duration(0); at < length; {
		s := strike{after: n.span(2 * n.set.ttl / 3), fault: n.draw(), aim: n.aim(), lasts: n.span(3 * n.set.ttl / 2)}
		at += s.after
		all = append(all, s)
	}
	return all
}

func (n *nemesis) span(limit time.Duration) time.Duration {
	return time.Duration(n.rng.Int64N(int64(limit))).Truncate(time.Millisecond) + time.Millisecond
}

func (n *nemesis) aim() aim {
	a := aim{node: n.rng.IntN(n.set.nodes), place: n.rng.IntN(n.set.candidates), part: n.rng.Float64()}
	if n.rng.IntN(3) > 0 {
		a.place = atHolder
	}
	return a
}

func (n *nemesis) draw() fault {
	all, total := faults(), 0
	for _, f := range all {
		total += f.weight
	}
	k := n.rng.IntN(total)
	for _, f := range all {
		if k -= f.weight; k < 0 {
			return f
		}
	}
	panic("no fault drawn")
}

// happen lets a schedule take its course, until the end of ctx or until stop says so.
func (w *world) happen(ctx context.Context, all []strike, stop func() bool) {
	for _, s := range all {
		w.catchUp(ctx, boottime.Now()+s.after)
		if ctx.Err() != nil || stop() {
			return
		}
		w.begin(s)
	}
}

func (w *world) begin(s strike) {
	w.log.add("-- %v", s)
	if end := s.fault.do(w, s.aim); end != nil {
		w.later(s.lasts, s.fault.name, end)
	}
}

// render sorts what happened by time.
func render(lines []deed, start time.Duration) string {
	slices.SortStableFunc(lines, func(a, b deed) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%11.6f  %s\n", (l.at - start).Seconds(), l.name)
	}
	return b.String()
}
