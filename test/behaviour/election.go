package behaviour

import (
	"fmt"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Election are the specs of three candidates on three nodes.
//
// What the lease's own arithmetic says is always checked. How fast a machine is, is
// reported; with bounds it is checked too: 50 ms for a hand-over, 100 ms after the
// keys ran out for a fail-over.
func Election(program func() sidecartest.Program, nodes func(n int) []*redistest.Server, bounds bool) {
	var f *Field

	BeforeEach(func(ctx SpecContext) {
		f = &Field{Program: program(), Nodes: nodes(3), Lock: "orders", TTL: 3 * time.Second}
		f.Start(3)
	})
	AfterEach(func() { f.ExpectExclusion() })

	It("has exactly one active candidate, and the others say who", func(ctx SpecContext) {
		run := f.Holder(ctx)
		for name := range f.Sidecars {
			Eventually(func() string { return f.Doc(ctx, name).Holder }).WithContext(ctx).Should(Equal(run.Who), name)
		}
		Consistently(f.Recorder.Active).WithTimeout(500 * time.Millisecond).Should(HaveLen(1))
		Expect(f.current(run)).NotTo(BeNil(), "the run ended")
		for name := range f.Sidecars {
			doc := f.Doc(ctx, name)
			Expect(doc.Active).To(Equal(name == run.Who), name)
			Expect(doc.Holder).To(Equal(run.Who), name)
			if name != run.Who {
				Expect(doc.Reason).To(Equal("held by "+run.Who), name)
			}
		}
	}, SpecTimeout(Patience))

	It("hands over on SIGTERM without waiting for the lease to run out", func(ctx SpecContext) {
		for range 5 {
			old := f.Holder(ctx)
			sidecar := f.Sidecars[old.Who]
			earliest, _ := f.RunsOut(ctx)
			sent := boottime.Now()
			sidecar.Terminate()
			took := f.Active(ctx, old.Who).First.Received - sent
			report("hand-over after SIGTERM", took)
			Expect(took).To(BeNumerically("<", earliest-sent), "it waited for the lease to run out")
			if bounds {
				Expect(took).To(BeNumerically("<=", 50*time.Millisecond))
			}
			Expect(sidecar.ExitCode(ctx)).To(BeZero())
			f.Leave(sidecar)
			f.Add()
		}
	}, SpecTimeout(Patience))

	It("fails over after a crash when the keys have run out, and not earlier", func(ctx SpecContext) {
		old := f.Holder(ctx)
		f.Sidecars[old.Who].Crash()
		earliest, latest := f.RunsOut(ctx)
		first := f.Active(ctx, old.Who).First
		report("fail-over after the keys ran out", first.Received-latest)
		Expect(first.Received).To(BeNumerically(">=", earliest))
		Expect(first.Received).To(BeNumerically("<", latest+f.TTL), "the lease was not free and yet not taken")
		if bounds {
			Expect(first.Received).To(BeNumerically("<=", latest+100*time.Millisecond))
		}
	}, SpecTimeout(Patience))

	for _, fault := range []struct {
		name       string
		begin, end func(*redistest.Server)
	}{
		{"down", (*redistest.Server).Kill, func(n *redistest.Server) { n.Restart(true) }},
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		It("goes on as if nothing happened when one node is "+fault.name, func(ctx SpecContext) {
			run := f.Holder(ctx)
			fault.begin(f.Nodes[0])
			Consistently(func() any { return f.current(run) }).WithTimeout(2*f.TTL).ShouldNot(BeNil(), "the run ended")
			Expect(f.Doc(ctx, run.Who).Quorum.Held).To(Equal(2))
			fault.end(f.Nodes[0])
			Eventually(func() int { return f.Doc(ctx, run.Who).Quorum.Held }).WithContext(ctx).Should(Equal(3))
			Expect(f.current(run)).NotTo(BeNil(), "the run ended")
		}, SpecTimeout(Patience))
	}

	It("stops before its TTL when two nodes are down, and somebody is active when they are back", func(ctx SpecContext) {
		run := f.Holder(ctx)
		f.Nodes[0].Kill()
		f.Nodes[1].Kill()
		down := boottime.Now() // no renewal sent later can have a quorum
		f.None(ctx)
		last := f.ended(run).Last
		report("active without a quorum for", last.Sent-down)
		Expect(last.Sent).To(BeNumerically("<=", f.ActiveUntil(down)))
		for name := range f.Sidecars {
			Eventually(func() string { return f.Doc(ctx, name).Reason }).WithContext(ctx).Should(HavePrefix("no quorum: 1 of 3 nodes answered"))
		}
		began := boottime.Now()
		f.Nodes[0].Restart(true)
		f.Nodes[1].Restart(true)
		again := f.Holder(ctx)
		report("active after the start of the nodes began", again.First.Received-began)
		Expect(f.Recorder.Active()).To(HaveLen(1))
	}, SpecTimeout(Patience))
}

func report(what string, value any) {
	GinkgoHelper()
	AddReportEntry(fmt.Sprintf("%s: %v", what, value), ReportEntryVisibilityAlways)
}
