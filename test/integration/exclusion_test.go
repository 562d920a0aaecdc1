package integration_test

import (
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// A round is one thing that ends a term, and what makes the field whole again once
// somebody else is active.
type round struct {
	name string
	run  func(ctx SpecContext, f *behaviour.Field, holder recorder.Run)
}

var rounds = []round{
	{"terminate the holder", func(ctx SpecContext, f *behaviour.Field, holder recorder.Run) {
		s := f.Sidecars[holder.Who]
		s.Terminate()
		f.Active(ctx, holder.Who)
		Expect(s.ExitCode(ctx)).To(BeZero())
		f.Leave(s)
		f.Add()
	}},
	{"kill the holder", func(ctx SpecContext, f *behaviour.Field, holder recorder.Run) {
		s := f.Sidecars[holder.Who]
		s.Crash()
		f.Active(ctx, holder.Who)
		f.Leave(s)
		f.Add()
	}},
	{"cut the holder off", func(ctx SpecContext, f *behaviour.Field, holder recorder.Run) {
		cutOff(ctx, f, holder)
	}},
	{"freeze the holder", func(ctx SpecContext, f *behaviour.Field, holder recorder.Run) {
		s := f.Sidecars[holder.Who]
		Expect(s.Freeze()).To(Succeed())
		f.Active(ctx, holder.Who)
		Expect(s.Thaw()).To(Succeed())
	}},
	{"freeze two nodes", func(ctx SpecContext, f *behaviour.Field, _ recorder.Run) {
		for _, n := range f.Nodes[:2] {
			n.Freeze()
		}
		f.None(ctx)
		for _, n := range f.Nodes[:2] {
			n.Thaw()
		}
	}},
	{"restart a node", func(_ SpecContext, f *behaviour.Field, _ recorder.Run) {
		f.Nodes[2].Restart(false)
	}},
}

// cutOff cuts the holder off from all nodes until another has been active for a
// while.
func cutOff(ctx SpecContext, f *behaviour.Field, holder recorder.Run) {
	GinkgoHelper()
	for _, l := range f.Links[holder.Who] {
		l.Cut()
	}
	f.Holder(ctx, holder.Who)
	for _, l := range f.Links[holder.Who] {
		l.Mend()
	}
}

var _ = Describe("Exclusion, seen from outside", func() {
	n, ttl := 12, time.Second
	if long {
		n, ttl = 102, 3*time.Second
	}

	It("never shows two active candidates, whatever ends a term", func(ctx SpecContext) {
		f := &behaviour.Field{Program: program, Nodes: nodes(3), Lock: "orders", TTL: ttl, Linked: true}
		f.Start(3)
		for i := range n {
			r := rounds[i%len(rounds)]
			By(r.name)
			r.run(ctx, f, f.Holder(ctx))
		}
		f.Recorder.Stop()
		f.ExpectExclusion()
		runs := f.Recorder.Runs()
		AddReportEntry("terms", len(runs))
		Expect(len(runs)).To(BeNumerically(">=", n*4/6), "too few terms to have shown anything")
		if inside := recorder.SentInside(runs); long {
			Expect(inside).To(BeEmpty(), "asked inside another's run")
		} else {
			AddReportEntry("asked inside another's run", inside)
		}
	}, SpecTimeout(time.Duration(n)*(ttl+5*time.Second)))

	// The proof that the spec above can fail: a holder that goes on after its lease
	// ran out, and is cut off so that it cannot hear of it.
	It("shows two active candidates when the stop budget is negative", func(ctx SpecContext) {
		f := &behaviour.Field{
			Program: program, Nodes: nodes(3), Lock: "orders", TTL: time.Second, Linked: true,
			Args: []string{"--stop-budget=-1s"}, Env: []string{"PODLEASE_UNSAFE_TESTING=1"},
		}
		f.Start(3)
		for range 3 {
			cutOff(ctx, f, f.Holder(ctx))
		}
		f.Recorder.Stop()
		Expect(recorder.Overlaps(f.Recorder.Runs())).NotTo(BeEmpty())
	}, SpecTimeout(behaviour.Patience))

	It("refuses a negative stop budget otherwise", func(ctx SpecContext) {
		expectUsageError(ctx, nil, "--stop-budget", "--lock=l", "--redis=127.0.0.1:1", "--stop-budget=-1s")
	}, SpecTimeout(behaviour.Patience))
})
