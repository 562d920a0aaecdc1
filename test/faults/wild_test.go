package faults_test

import (
	"context"
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// patient has a TTL so long that a holder which hears of its loss can be told from one
// whose time ran out. No node restarts, so there need be no quarantine.
var patient = settings{nodes: 3, candidates: 3, ttl: 5 * time.Second}

// forget breaks an assumption: all nodes lose the key without a restart. A standby looks
// at once, as one does that has just started.
func (w *world) forget(command string) {
	w.log.add("-- %s on all nodes", command)
	for _, n := range w.Nodes {
		w.order(n, command)
	}
	for _, n := range w.Nodes {
		w.order(n, "PUBLISH "+channel+" released")
	}
}

// usurped makes all nodes forget the key until another candidate takes the lease before
// the holder has renewed it.
func (w *world) usurped(ctx context.Context, command string) (old recorder.Run, at time.Duration) {
	GinkgoHelper()
	for ctx.Err() == nil {
		old, at = w.Holder(ctx), boottime.Now()
		w.forget(command)
		soon, cancel := context.WithTimeout(ctx, w.TTL/10)
		_, err := w.Recorder.Wait(soon, func(r recorder.Run) bool { return r.Token > old.Token && r.Who != old.Who })
		cancel()
		if err == nil {
			return old, at
		}
	}
	Fail("nobody took the lease before the holder had renewed it")
	return old, at
}

// lastActive waits for the end of a run, and returns when it was last active.
func (w *world) lastActive(ctx context.Context, old recorder.Run) time.Duration {
	GinkgoHelper()
	var last recorder.Run
	Eventually(func() bool {
		for _, r := range w.Recorder.Runs() {
			if r.Who == old.Who && r.Token == old.Token {
				last = r
			}
		}
		return last.Then != recorder.Sample{}
	}).WithContext(ctx).Should(BeTrue(), "%v has not ended", old)
	return last.Last.Sent
}

var _ = Describe("Outside the assumptions", func() {
	for what, command := range map[string]string{
		"the key runs out early, as if clocks were stepped": "PEXPIRE " + lockKey + " 0",
		"all keys are flushed":                              "FLUSHALL",
	} {
		It("the holder notices within a renew interval, and storage refuses its token: "+what, func(ctx SpecContext) {
			w := newWorld(patient)
			w.write(1)
			var longest time.Duration
			for range 5 {
				old, at := w.usurped(ctx, command)
				longest = max(longest, w.lastActive(ctx, old)-at)
			}
			w.writing.end()
			// One renew interval and one request; twice that, because nobody else's load shall
			// decide. The lease itself would have lasted for 2.7 s more at least.
			Expect(longest).To(BeNumerically("<", 2*(w.TTL/5)+w.TTL/10), "active after the loss of the key")
			both := recorder.Overlaps(w.Recorder.Runs())
			Expect(both).NotTo(BeEmpty(), "the lease was never broken")
			j := w.expectTokens()
			Expect(j.refused).To(BeNumerically(">", 0), "nothing was refused")
			tellFigures(what, fmt.Sprintf("active for %v at most after the loss; two active at once %d times; %d increments, %d refused",
				longest.Round(time.Millisecond), len(both), j.accepted, j.refused))
		}, SpecTimeout(2*behaviour.Patience))
	}

	// The proof that the judge can tell.
	It("storage that does not compare tokens loses writes", func(ctx SpecContext) {
		set := patient
		set.unchecked = true
		w := newWorld(set)
		w.write(1)
		for w.storage.judge().linearizable == porcupine.Ok {
			w.usurped(ctx, "PEXPIRE "+lockKey+" 0")
		}
		w.writing.end()
		Expect(w.storage.judge().linearizable).To(Equal(porcupine.Illegal))
	}, SpecTimeout(2*behaviour.Patience))
})
