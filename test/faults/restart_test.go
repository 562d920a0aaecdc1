package faults_test

import (
	"fmt"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Two of three nodes that restart empty within one TTL", func() {
	It("cost the holder nothing, and help nobody else", func(ctx SpecContext) {
		const tries = 6
		set := settings{nodes: 3, candidates: 3, ttl: 4 * time.Second, quarantine: 4 * time.Second}
		w := newWorld(set)
		holder := w.Holder(ctx)
		for i := range tries {
			began := boottime.Now()
			for _, n := range w.some(2, i) {
				w.log.add("-- %s restarts empty", n.Addr())
				n.Restart(true)
			}
			took := boottime.Now() - began
			Expect(took).To(BeNumerically("<", w.TTL), "two restarts within one TTL")
			// Both votes are there again, before the next nodes go.
			Eventually(func() int { return w.Doc(ctx, holder.Who).Quorum.Held }).WithContext(ctx).Should(Equal(3))
		}
		runs := w.Recorder.Runs()
		Expect(recorder.Overlaps(runs)).To(BeEmpty(), "two active candidates at one instant")
		for _, r := range runs {
			if r.First.Sent >= holder.First.Sent {
				Expect(r.Token).To(Equal(holder.Token), "another term: %v", r)
			}
		}
		Expect(w.Doc(ctx, holder.Who).FencingToken).To(Equal(holder.Token))
		AddReportEntry(fmt.Sprintf("%d times two nodes restarted, one term", tries), ReportEntryVisibilityAlways)
	}, SpecTimeout(2*behaviour.Patience))
})
