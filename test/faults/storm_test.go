package faults_test

import (
	"context"
	"fmt"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// usual are three candidates on three nodes. The quarantine is as short as the TTL allows,
// so that much happens just after it.
var usual = settings{nodes: 3, candidates: 3, ttl: time.Second, quarantine: 1500 * time.Millisecond}

var never = func() bool { return false }

var _ = Describe("One kind of fault", func() {
	for _, f := range faults() {
		It("never makes two active, nor leaves the lock untaken: "+f.name, func(ctx SpecContext) {
			const seed = 1
			w := newWorld(usual)
			w.write(seed)
			n := newNemesis(seed, usual)
			w.expectElection(ctx)
			strikes := 3
			for i := range strikes {
				s := strike{fault: f, aim: n.aim(), lasts: n.span(3 * w.TTL / 2)}
				if i == 0 {
					s.aim.place = atHolder
				}
				w.begin(s)
				w.catchUp(ctx, boottime.Now()+s.lasts+time.Millisecond)
			}
			w.expectCalm(ctx, strikes)
		}, SpecTimeout(3*behaviour.Patience))
	}
})

// expectCalm heals everything, and judges.
func (w *world) expectCalm(ctx context.Context, strikes int) figures {
	GinkgoHelper()
	w.heal()
	election := w.expectElection(ctx)
	w.writing.end()
	runs := w.Recorder.Runs()
	Expect(recorder.Overlaps(runs)).To(BeEmpty(), "two active candidates at one instant")
	j := w.expectTokens()
	w.expectNothingLeft(ctx)
	AddReportEntry("watched", w.Recorder.Effort())
	return figures{strikes: strikes, terms: terms(runs), inside: len(recorder.SentInside(runs)), judgement: j, election: election}
}

// storm lets what a seed says happen to a world.
func (w *world) storm(ctx context.Context, seed uint64, length time.Duration, stop func() bool) (strikes int) {
	GinkgoHelper()
	all := newNemesis(seed, w.set).schedule(length)
	w.log.add("-- seed %d: %d faults in %v, %+v", seed, len(all), length, w.set)
	w.write(seed)
	w.happen(ctx, all, stop)
	return len(all)
}

// sizes are how many nodes a seed's storm has.
var sizes = []int{3, 3, 3, 5, 3, 3, 3, 1}

// count is how many seeds the flags ask for: each takes a few seconds more for healing, and
// some run at once.
func count() uint64 {
	suite, _ := GinkgoConfiguration()
	return *stormSeeds + uint64(suite.ParallelTotal)*uint64(*stormFor/(*stormLength+6*time.Second))
}

var _ = Describe("Many kinds of faults at random", func() {
	for seed := *stormFirst; seed < *stormFirst+count(); seed++ {
		It(fmt.Sprintf("never make two active, nor leave the lock untaken: seed %d", seed), func(ctx SpecContext) {
			set := usual
			set.nodes = sizes[seed%uint64(len(sizes))]
			w := newWorld(set)
			strikes := w.storm(ctx, seed, *stormLength, never)
			f := w.expectCalm(ctx, strikes)
			tellFigures(fmt.Sprintf("seed %d", seed), f)
		}, SpecTimeout(*stormLength+3*behaviour.Patience))
	}
})

// The proof that a storm can show two holders: with the quarantine off, nodes that
// restarted empty help another candidate to a majority.
var _ = Describe("Many kinds of faults at random with the quarantine off", func() {
	if *broken == 0 {
		return
	}
	It("make two active", func(ctx SpecContext) {
		set := usual
		set.quarantine = 0
		w := newWorld(set)
		began := boottime.Now()
		found := func() bool { return len(recorder.Overlaps(w.Recorder.Runs())) > 0 }
		w.storm(ctx, *stormFirst, *broken, found)
		Expect(found()).To(BeTrue(), "no two active candidates were seen in %v", *broken)
		tellFigures(fmt.Sprintf("quarantine off, seed %d", *stormFirst),
			fmt.Sprintf("two active at once after %v: %v", (boottime.Now()-began).Round(time.Millisecond), recorder.Overlaps(w.Recorder.Runs())[0]))
	}, SpecTimeout(*broken+behaviour.Patience))
})
