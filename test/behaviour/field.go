// Package behaviour states what candidates promise, as Ginkgo specs that run on any
// kind of Redis nodes: processes, containers.
package behaviour

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/link"
	"github.com/podlease/podlease/test/recorder"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Patience is how long a test waits for what has no bound of its own. It says
// nothing about how fast things are; it only ends a test that hangs.
const Patience = 60 * time.Second

// interval is the time between two questions to a candidate: half of what the
// promise is measured by, so that a late wake-up still makes it.
const interval = time.Millisecond

// Field is a lock's nodes with its candidates, each watched and each with links of
// its own to the nodes.
type Field struct {
	Program sidecartest.Program
	Nodes   []*redistest.Server
	Lock    string
	TTL     time.Duration
	// Args and Env are given to every candidate.
	Args, Env []string
	// Linked puts a link between each candidate and each node, so that one can be cut
	// off.
	Linked bool
	// Every is the time between two questions to a candidate; 0 means half of what the
	// promise is measured by, a millisecond.
	Every time.Duration

	Sidecars map[string]*sidecartest.Sidecar
	Links    map[string][]*link.Link
	Recorder *recorder.Recorder
	started  int
}

// Start starts n candidates and the recorder.
func (f *Field) Start(n int) {
	GinkgoHelper()
	f.Sidecars, f.Links = map[string]*sidecartest.Sidecar{}, map[string][]*link.Link{}
	f.Recorder = recorder.Start(cmp.Or(f.Every, interval))
	DeferCleanup(f.Recorder.Stop)
	for range n {
		f.Add()
	}
}

// Add starts one more candidate, under a name not used before.
func (f *Field) Add() *sidecartest.Sidecar {
	GinkgoHelper()
	return f.add("candidate")
}

// AddAs is Add for one that had an earlier life: its identity is the given one. Its name
// is not, because what the former one said is another's word.
func (f *Field) AddAs(identity string) *sidecartest.Sidecar {
	GinkgoHelper()
	return f.add(identity, "--identity="+identity)
}

func (f *Field) add(kind string, args ...string) *sidecartest.Sidecar {
	GinkgoHelper()
	f.started++
	name := fmt.Sprintf("%s-%d", kind, f.started)
	s := f.Program.Start(GinkgoTB(), sidecartest.Options{
		Name: name, Lock: f.Lock, Redis: f.reach(name), Env: f.Env,
		Args: slices.Concat([]string{"--ttl=" + f.TTL.String()}, f.Args, args),
	})
	f.Sidecars[name] = s
	f.Recorder.Watch(name, s.Addr)
	return s
}

// reach are the addresses of the nodes for one candidate.
func (f *Field) reach(name string) []string {
	if !f.Linked {
		return redistest.URLs(f.Nodes)
	}
	addrs := make([]string, len(f.Nodes))
	for i, n := range f.Nodes {
		l := link.Start(GinkgoTB(), n.Addr())
		f.Links[name] = append(f.Links[name], l)
		addrs[i] = l.Addr()
	}
	return addrs
}

// Leave stops watching a candidate that has ended.
func (f *Field) Leave(s *sidecartest.Sidecar) {
	f.Recorder.Unwatch(s.Name)
	delete(f.Sidecars, s.Name)
}

// Active waits until a candidate other than those named is active.
func (f *Field) Active(ctx context.Context, but ...string) recorder.Run {
	GinkgoHelper()
	run, err := f.Recorder.Wait(ctx, func(r recorder.Run) bool { return !slices.Contains(but, r.Who) })
	Expect(err).NotTo(HaveOccurred())
	return run
}

// None waits until no candidate is active.
func (f *Field) None(ctx context.Context) {
	GinkgoHelper()
	Expect(f.Recorder.WaitNone(ctx)).To(Succeed())
}

// Holder waits until a candidate other than those named has been active for a while:
// at least 20 answers.
func (f *Field) Holder(ctx context.Context, but ...string) (holder recorder.Run) {
	GinkgoHelper()
	Eventually(func() bool {
		for _, run := range f.Recorder.Active() {
			if run.Answers >= 20 && !slices.Contains(but, run.Who) {
				holder = run
				return true
			}
		}
		return false
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(BeTrue(), "nobody else is active")
	return holder
}

// current is a run as it is now, nil if it has ended.
func (f *Field) current(run recorder.Run) *recorder.Run {
	for _, now := range f.Recorder.Active() {
		if now.Who == run.Who && now.First == run.First {
			return &now
		}
	}
	return nil
}

// ended is a run as it was at its end.
func (f *Field) ended(run recorder.Run) recorder.Run {
	for _, r := range f.Recorder.Runs() {
		if r.Who == run.Who && r.First == run.First {
			return r
		}
	}
	return run
}

// Doc is a candidate's leadership document.
func (f *Field) Doc(ctx context.Context, who string) sidecartest.Leadership {
	GinkgoHelper()
	doc, err := f.Sidecars[who].Leadership(ctx)
	Expect(err).NotTo(HaveOccurred())
	return doc
}

// RunsOut bounds the instant at which the lock's keys will have run out on a quorum
// of the nodes, so that somebody else can take it.
func (f *Field) RunsOut(ctx context.Context) (earliest, latest time.Duration) {
	GinkgoHelper()
	const rounding = time.Millisecond // of PTTL
	var lows, highs []time.Duration
	for _, n := range f.Nodes {
		before := boottime.Now()
		left, err := n.Client().PTTL(ctx, "podlease:"+f.Lock).Result()
		Expect(err).NotTo(HaveOccurred())
		after := boottime.Now()
		if left < 0 { // no key: it can be taken at once
			lows, highs = append(lows, math.MinInt64), append(highs, after)
			continue
		}
		lows, highs = append(lows, before+left-rounding), append(highs, after+left+rounding)
	}
	slices.Sort(lows)
	slices.Sort(highs)
	quorum := len(f.Nodes)/2 + 1
	return lows[quorum-1], highs[quorum-1]
}

// ActiveUntil is the latest instant at which a candidate may be active whose last
// renewal was sent before sent.
func (f *Field) ActiveUntil(sent time.Duration) time.Duration {
	return sent + f.TTL - f.TTL/100 - f.TTL/4
}

// ExpectExclusion fails if the answers so far prove two active candidates at one
// instant, or a fencing token that did not grow.
func (f *Field) ExpectExclusion() {
	GinkgoHelper()
	runs := f.Recorder.Runs()
	AddReportEntry("watched", f.Recorder.Effort())
	Expect(recorder.Overlaps(runs)).To(BeEmpty(), "two active candidates at one instant")
	Expect(recorder.Regressions(runs)).To(BeEmpty(), "a later term without a greater token")
}
