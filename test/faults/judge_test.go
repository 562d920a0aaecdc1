package faults_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/recorder"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// expectElection is for after the faults: somebody is active, and for a while, when all
// nodes have been up for a quarantine, keys of dead candidates have run out, and then
// within a few rounds.
//
// The time is counted in short sleeps instead of by the clock: a machine that has no time
// for this process has none for candidates and nodes either.
func (w *world) expectElection(ctx context.Context) time.Duration {
	GinkgoHelper()
	const nap = 5 * time.Millisecond
	began := boottime.Now()
	for range (w.set.quarantine + 5*w.TTL) / nap {
		for _, run := range w.Recorder.Active() {
			if run.Answers >= 20 {
				w.log.add("-- %s is active", run.Who)
				return max(run.First.Received-began, 0)
			}
		}
		idle(ctx, boottime.Now()+nap)
	}
	var reasons []string
	for _, p := range w.places {
		doc, err := p.current().Leadership(ctx)
		reasons = append(reasons, fmt.Sprintf("%s: %s %v", p.identity, doc.Reason, err))
	}
	Fail(fmt.Sprintf("nobody is active a quarantine and five TTLs after everything healed:\n%s", strings.Join(reasons, "\n")))
	return 0
}

// expectTokens fails if the terms' fencing tokens were not unique and growing, or if
// storage that compares them took a write of an earlier holder after one of a later. That
// holds whatever happens.
func (w *world) expectTokens() judgement {
	GinkgoHelper()
	Expect(recorder.Regressions(w.Recorder.Runs())).To(BeEmpty(), "tokens are not unique and growing")
	j := w.storage.judge()
	Expect(j.linearizable).To(Equal(porcupine.Ok), "the history of storage is not that of a counter")
	return j
}

// expectNothingLeft ends the candidates, and fails if connections or keys stay but the
// counters of tokens.
func (w *world) expectNothingLeft(ctx context.Context) {
	GinkgoHelper()
	for _, n := range w.Nodes {
		// One for commands and one for notices; links that were bad may have been used anew.
		Eventually(func() int { return w.connections(ctx, n) }).WithContext(ctx).
			Should(BeNumerically("<=", 2*len(w.places)), "connections of the candidates to "+n.Addr())
	}
	for _, p := range w.places {
		s := p.current()
		p.put(nil)
		s.Terminate()
		w.bury(s)
	}
	for _, n := range w.Nodes {
		Eventually(func() ([]string, error) { return n.Client().Keys(ctx, "*").Result() }).WithContext(ctx).
			WithTimeout(behaviour.Patience).
			Should(Or(BeEmpty(), Equal([]string{fenceKey})), "keys on "+n.Addr())
		Eventually(func() int { return w.connections(ctx, n) }).WithContext(ctx).Should(BeZero())
	}
}

func (w *world) connections(ctx context.Context, n *redistest.Server) int {
	GinkgoHelper()
	list, err := n.Client().ClientList(ctx).Result()
	Expect(err).NotTo(HaveOccurred())
	return strings.Count(list, " user="+user+" ")
}

// figures are what a run came to.
type figures struct {
	strikes, terms, inside int
	judgement
	election time.Duration // after the faults
}

func (f figures) String() string {
	return fmt.Sprintf("%d faults, %d terms; %d increments, %d refused; active %v after the faults; %d pairs asked for inside another's run",
		f.strikes, f.terms, f.accepted, f.refused, f.election.Round(time.Millisecond), f.inside)
}

// terms counts those that were seen: a candidate may fall silent and go on.
func terms(runs []recorder.Run) int {
	var tokens []uint64
	for _, r := range runs {
		tokens = append(tokens, r.Token)
	}
	slices.Sort(tokens)
	return len(slices.Compact(tokens))
}

// tellFigures puts figures into the report, and into the file that a flag names.
func tellFigures(what string, value any) {
	GinkgoHelper()
	line := fmt.Sprintf("%s: %v", what, value)
	AddReportEntry(line, ReportEntryVisibilityAlways)
	if *counted == "" {
		return
	}
	f, err := os.OpenFile(*counted, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	Expect(err).NotTo(HaveOccurred())
}
