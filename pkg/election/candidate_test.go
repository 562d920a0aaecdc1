package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

const (
	ttl        = 10 * time.Second
	stopBudget = 2500 * time.Millisecond
	quarantine = 31 * time.Second
)

// world is servers and candidates in a bubble of virtual time.
type world struct {
	t       *testing.T
	servers []*redlocktest.Server
	start   time.Time
	tune    func(*redlock.Options) // may be nil
}

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now()}
		for i := range 3 {
			w.servers = append(w.servers, redlocktest.NewServer(fmt.Sprintf("node-%d", i+1), time.Hour))
		}
		f(w)
	})
}

// candidate is one process.
type candidate struct {
	*election.Candidate
	w     *world
	nodes []*redlocktest.Node
	stop  context.CancelFunc
	ended chan error

	mu     sync.Mutex
	events []election.Event
	asleep time.Duration // added to the clock: a suspend that timers do not see
}

// run starts a candidate.
func (w *world) run(name string, change ...func(*election.Config)) *candidate {
	w.t.Helper()
	c := &candidate{w: w, ended: make(chan error, 1)}
	nodes := make([]redlock.Node, len(w.servers))
	for i, s := range w.servers {
		n := s.Connect()
		c.nodes, nodes[i] = append(c.nodes, n), n
	}
	opt := redlock.Options{TTL: ttl, StopBudget: stopBudget, Quarantine: quarantine, KeyPrefix: "podlease:", Identity: name, Clock: c.clock}
	if w.tune != nil {
		w.tune(&opt)
	}
	locker, err := redlock.New(nodes, opt)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := election.Config{Lock: "orders", Identity: name, Log: logr.Discard(), OnEvent: c.note}
	for _, f := range change {
		f(&cfg)
	}
	if c.Candidate, err = election.New(locker, cfg); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	done := make(chan struct{})
	go func() {
		c.ended <- c.Run(ctx)
		close(done)
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
		locker.Close()
	})
	synctest.Wait()
	return c
}

func (c *candidate) clock() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.w.start) + time.Hour + c.asleep
}

// suspend lets time pass that Go's clock does not see.
func (c *candidate) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep += d
}

func (c *candidate) note(e election.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

func (c *candidate) count(kind election.EventKind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (c *candidate) wantActive() uint64 {
	c.w.t.Helper()
	synctest.Wait()
	l := c.Leadership()
	if !l.Active() {
		c.w.t.Fatalf("%s is not active: %s", l.Identity, l.Reason)
	}
	return l.FencingToken
}

func (c *candidate) wantStandby(reason string) {
	c.w.t.Helper()
	synctest.Wait()
	l := c.Leadership()
	if l.Active() || l.FencingToken != 0 || l.ValidFor != 0 {
		c.w.t.Fatalf("%s is active: %+v", l.Identity, l)
	}
	if !strings.Contains(l.Reason, reason) {
		c.w.t.Fatalf("%s is standby because %q, want %q", l.Identity, l.Reason, reason)
	}
}

// activeWithin waits for the candidate to become active, and returns how long it took.
func (c *candidate) activeWithin(limit time.Duration) time.Duration {
	c.w.t.Helper()
	start := time.Now()
	for {
		changed := c.Changed()
		if c.Leadership().Active() {
			return time.Since(start)
		}
		select {
		case <-changed:
		case <-time.After(limit - time.Since(start)):
			c.w.t.Fatalf("%s is not active after %v: %s", c.Leadership().Identity, limit, c.Leadership().Reason)
		}
	}
}

func native(c *election.Config) { c.NativeSidecar = true }

func TestOneIsActiveAndTheOthersSayWhyNot(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a"), w.run("b")
		a.wantActive()
		b.wantStandby("held by a")
		l := b.Leadership()
		if l.Holder != "a" || l.Quorum != (election.Quorum{Size: 3, Needed: 2}) {
			t.Fatalf("standby says %+v", l)
		}
		time.Sleep(time.Hour)
		a.wantActive()
		b.wantStandby("held by a")
		if q := a.Leadership().Quorum; q.Held != 3 {
			t.Fatalf("holder has %d votes, want all 3", q.Held)
		}
		if a.count(election.LeaderElected) != 1 {
			t.Fatalf("%d terms in an hour", a.count(election.LeaderElected))
		}
	})
}

func TestTermOfANativeSidecarIsHandedOverAtOnceAtTheEnd(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a", native), w.run("b", native)
		before := a.wantActive()
		a.stop()
		if took := b.activeWithin(ttl); took > 0 {
			t.Fatalf("hand-over took %v", took)
		}
		if err := <-a.ended; err != nil {
			t.Fatal(err)
		}
		a.wantStandby("shutting down")
		if after := b.wantActive(); after <= before {
			t.Fatalf("token %d after %d", after, before)
		}
		if a.count(election.LeaderReleased) != 1 || a.count(election.LeaderLost) != 0 {
			t.Fatalf("events %v", a.events)
		}
	})
}

// Where nobody sees the workload, it has a stop budget to end in.
func TestEndWithoutSightOfTheWorkloadWaitsAStopBudget(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a"), w.run("b")
		a.wantActive()
		a.stop()
		a.wantStandby("")
		if took := b.activeWithin(ttl); took < stopBudget || took > stopBudget+10*time.Millisecond {
			t.Fatalf("hand-over after %v, want the stop budget of %v", took, stopBudget)
		}
	})
}

// workload is an app whose state the test sets.
type workload struct {
	mu      sync.Mutex
	sick    string
	stopped bool
}

func (a *workload) Healthy() (bool, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sick == "", a.sick
}

func (a *workload) Stopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped
}

func (a *workload) set(sick string, stopped bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sick, a.stopped = sick, stopped
}

func seen(app *workload) func(*election.Config) {
	return func(c *election.Config) { c.Workload, c.DrainTimeout = app, 25*time.Second }
}

// Review A.9: "stopped, or its time is over" released under a workload that still ran.
func TestCounterexampleAWorkloadSeenRunningIsNeverReleased(t *testing.T) {
	bubble(t, func(w *world) {
		app := &workload{}
		a, b := w.run("a", seen(app)), w.run("b")
		a.wantActive()
		a.stop()
		start := time.Now()
		if err := <-a.ended; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 25*time.Second || took > 26*time.Second {
			t.Fatalf("ended after %v, want the drain timeout", took)
		}
		b.wantStandby("held by a")
		if took := b.activeWithin(2 * ttl); took < ttl-3*time.Second {
			t.Fatalf("the lease was given away %v after the end, under a running workload", took)
		}
		if a.count(election.LeaderReleased) != 0 {
			t.Fatal("released")
		}
	})
}

func TestAWorkloadSeenStoppedIsReleasedAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		app := &workload{}
		a, b := w.run("a", seen(app)), w.run("b")
		a.wantActive()
		a.stop()
		time.Sleep(7 * time.Second)
		b.wantStandby("held by a") // and renewed meanwhile
		app.set("connection refused", true)
		if took := b.activeWithin(ttl); took > 50*time.Millisecond {
			t.Fatalf("hand-over %v after the workload stopped", took)
		}
	})
}

func TestDrainKeepsTheLeaseUntilTheEnd(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a", native), w.run("b")
		a.wantActive()
		if err := a.Drain(); err != nil {
			t.Fatal(err)
		}
		a.wantStandby("draining")
		time.Sleep(10 * ttl)
		b.wantStandby("held by a")
		a.stop()
		b.activeWithin(10 * time.Millisecond)
	})
}

func TestDrainingStandbyDoesNotContend(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a", native), w.run("b")
		a.wantActive()
		if err := b.Drain(); err != nil {
			t.Fatal(err)
		}
		a.stop()
		time.Sleep(5 * ttl)
		b.wantStandby("draining")
		if err := b.Resume(); err != nil {
			t.Fatal(err)
		}
		b.activeWithin(10 * time.Millisecond)
	})
}

func TestStepDownHandsOverAfterAStopBudgetAndRests(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a"), w.run("b")
		a.wantActive()
		if err := a.StepDown(time.Minute); err != nil {
			t.Fatal(err)
		}
		a.wantStandby("stepped down")
		if took := b.activeWithin(ttl); took < stopBudget || took > stopBudget+10*time.Millisecond {
			t.Fatalf("hand-over after %v, want the stop budget", took)
		}
		b.stop()
		time.Sleep(50 * time.Second)
		a.wantStandby("stepped down")
		a.activeWithin(11 * time.Second)
		var refused *election.RefusedError
		if err := b.StepDown(0); !errors.As(err, &refused) {
			t.Fatalf("a standby stepped down: %v", err)
		}
	})
}

func TestStoppedHandsOverAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a"), w.run("b")
		a.wantActive()
		var refused *election.RefusedError
		if err := a.Stopped(); !errors.As(err, &refused) {
			t.Fatalf("an active candidate accepted that its workload stopped: %v", err)
		}
		_ = a.StepDown(time.Minute)
		time.Sleep(100 * time.Millisecond)
		if err := a.Stopped(); err != nil {
			t.Fatal(err)
		}
		if took := b.activeWithin(ttl); took > 10*time.Millisecond {
			t.Fatalf("hand-over %v after the workload stopped", took)
		}
	})
}

// Found by simulation: what the workload said before it was resumed must not shorten the
// next hand-over.
func TestResumeForgetsThatTheWorkloadHadStopped(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a"), w.run("b")
		a.wantActive()
		_ = a.Drain()
		if err := a.Stopped(); err != nil {
			t.Fatal(err)
		}
		_ = a.Resume()
		a.wantActive()
		_ = a.StepDown(time.Minute)
		if took := b.activeWithin(ttl); took < stopBudget {
			t.Fatalf("hand-over after %v, inside the stop budget of %v", took, stopBudget)
		}
	})
}

// Readiness says that a candidate could contend, so one that takes no part has to go on
// looking at the nodes; otherwise its Pod would become unready after two TTLs.
func TestWhoTakesNoPartGoesOnLooking(t *testing.T) {
	ways := map[string]func(w *world) *candidate{
		"paused": func(w *world) *candidate {
			b := w.run("b")
			_ = b.Pause()
			return b
		},
		"draining": func(w *world) *candidate {
			b := w.run("b")
			_ = b.Drain()
			return b
		},
		"unhealthy from the start": func(w *world) *candidate {
			app := &workload{}
			app.set("status 500", false)
			return w.run("b", seen(app))
		},
	}
	slow := func(o *redlock.Options) { o.NodeTimeout = ttl / 20 } // longer than the loop's tick
	for name, leave := range ways {
		for pace, tune := range map[string]func(*redlock.Options){"": nil, ", slow nodes": slow} {
			t.Run(name+pace, func(t *testing.T) {
				bubble(t, func(w *world) {
					w.tune = tune
					w.run("a").wantActive()
					b := leave(w)
					b.looksOn()
					b.wantStandby("")
					if h := b.Leadership().Holder; h != "a" {
						t.Fatalf("holder %q, want a", h)
					}
				})
			})
		}
	}
	t.Run("stepped down", func(t *testing.T) {
		bubble(t, func(w *world) {
			a := w.run("a")
			a.wantActive()
			_ = a.StepDown(time.Hour)
			a.looksOn()
		})
	})
}

// looksOn sees that a quorum answers time and again.
func (c *candidate) looksOn() {
	c.w.t.Helper()
	time.Sleep(2 * ttl)
	for range 300 {
		if quorum := c.Health().SinceQuorum; quorum < 0 || quorum > 2*ttl {
			c.w.t.Fatalf("the last quorum answered %v ago", quorum)
		}
		time.Sleep(ttl / 10)
	}
}

func TestPauseTakesNoPartUntilResume(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a"), w.run("b", native)
		a.wantActive()
		_ = a.Pause()
		a.wantStandby("paused")
		b.activeWithin(stopBudget + 10*time.Millisecond)
		b.stop()
		time.Sleep(5 * ttl)
		a.wantStandby("paused")
		_ = a.Resume()
		a.activeWithin(10 * time.Millisecond)
		var refused *election.RefusedError
		if err := a.Resume(); !errors.As(err, &refused) {
			t.Fatalf("resumed twice: %v", err)
		}
	})
}

func TestAnUnhealthyWorkloadGivesTheLeaseUpAndDoesNotContend(t *testing.T) {
	bubble(t, func(w *world) {
		app := &workload{}
		a, b := w.run("a", seen(app)), w.run("b", native)
		a.wantActive()
		app.set("status 500", false)
		b.activeWithin(stopBudget + time.Second)
		a.wantStandby("app unhealthy: status 500")
		b.stop()
		time.Sleep(5 * ttl)
		a.wantStandby("app unhealthy")
		app.set("", false)
		a.activeWithin(time.Second)
	})
}

// A suspend stops timers and Go's clock; the first answer after it must be no.
func TestASuspendedHolderIsNotActiveWhenItWakes(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.run("a")
		a.wantActive()
		a.suspend(ttl)
		if l := a.Leadership(); l.Active() || l.ValidFor != 0 {
			t.Fatalf("the first answer after a suspend of a TTL is %+v", l)
		}
		time.Sleep(time.Second)
		if a.count(election.PauseDetected) != 1 || a.count(election.LeaderLost) != 1 {
			t.Fatalf("events %v", a.events)
		}
		if a.count(election.RedisQuorumLost) != 0 {
			t.Fatalf("the silence of nodes was told though they answer: events %v", a.events)
		}
	})
}

func TestASuspendWithinTheLeaseEndsNothingAndIsNoSilenceOfTheNodes(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.run("a")
		token := a.wantActive()
		time.Sleep(ttl/3 - time.Second/2)
		a.suspend(4 * time.Second)
		if !a.Leadership().Active() {
			t.Fatal("not active though the lease has not run out")
		}
		time.Sleep(ttl)
		if a.wantActive() != token || a.count(election.PauseDetected) != 1 || a.count(election.RedisQuorumLost) != 0 {
			t.Fatalf("token %d, then %d; events %v", token, a.wantActive(), a.events)
		}
	})
}

func TestACandidateThatMustNotContendSaysSoInItsLogOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.run("a").wantActive()
		var said []string
		w.tune = func(o *redlock.Options) { o.TTL, o.Quarantine, o.StopBudget = ttl/2, ttl/2, 0 }
		b := w.run("b", func(c *election.Config) {
			c.Log = funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
		})
		time.Sleep(3 * ttl)
		b.wantStandby("longer than this candidate's quarantine")
		if lines := strings.Join(said, "\n"); strings.Count(lines, "does not contend") != 1 || !strings.Contains(lines, "longer than this candidate's quarantine") {
			t.Errorf("logged %q", said)
		}
	})
}

func TestALossIsNoReasonAnyMoreOnceAnotherHasHeldTheLease(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.run("a")
		a.wantActive()
		b := w.run("b")
		for _, n := range a.nodes {
			n.Delay(func() time.Duration { return 3 * time.Millisecond })
		}
		a.suspend(ttl)
		b.activeWithin(2 * ttl)
		time.Sleep(ttl)
		a.wantStandby("held by b")
		for _, n := range b.nodes {
			n.Cut(true)
		}
		for !a.Leadership().Active() {
			if r := a.Leadership().Reason; strings.Contains(r, "lost") {
				t.Fatalf("b has held the lease since a lost it, and a gives as its reason %q", r)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestQuorumLostDemotesInTimeAndIsRegained(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.run("a")
		first := a.wantActive()
		a.nodes[0].Cut(true)
		a.nodes[1].Cut(true)
		time.Sleep(ttl - stopBudget)
		a.wantStandby("")
		time.Sleep(3 * ttl)
		a.wantStandby("no quorum: 1 of 3 nodes answered")
		if a.count(election.RedisQuorumLost) != 1 {
			t.Fatalf("events %v", a.events)
		}
		a.nodes[0].Cut(false)
		a.activeWithin(ttl)
		time.Sleep(time.Second)
		if a.count(election.RedisQuorumLost) != 1 || a.count(election.RedisQuorumRegained) != 1 {
			t.Fatalf("events %v", a.events)
		}
		if a.wantActive() <= first {
			t.Fatal("the token did not grow")
		}
	})
}

// label is a publisher that answers when the test lets it.
type label struct {
	mu    sync.Mutex
	calls int
	block bool
}

func (p *label) Sync(ctx context.Context) error {
	p.mu.Lock()
	p.calls++
	block := p.block
	p.mu.Unlock()
	if !block {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestALabelThatCannotBeChangedCostsAHandOverOneSecond(t *testing.T) {
	bubble(t, func(w *world) {
		p := &label{}
		a, b := w.run("a", native, func(c *election.Config) { c.Publisher = p }), w.run("b")
		a.wantActive()
		p.mu.Lock()
		p.block = true
		p.mu.Unlock()
		a.stop()
		a.wantStandby("")
		if took := b.activeWithin(ttl); took < time.Second || took > 1010*time.Millisecond {
			t.Fatalf("hand-over after %v, want the second that the label is waited for", took)
		}
	})
}

// tokens is a counter that is somewhere else.
type tokens struct {
	mu   sync.Mutex
	next uint64
	err  error
	slow time.Duration
}

func (s *tokens) Next(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	s.next++
	return s.next, s.err
}

func (s *tokens) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func TestTokensFromElsewhereAreNeededToBecomeActiveNotToStay(t *testing.T) {
	bubble(t, func(w *world) {
		src := &tokens{next: 40, err: errors.New("API server away")}
		a := w.run("a", func(c *election.Config) { c.Tokens = src })
		a.wantStandby("waiting for a fencing token")
		time.Sleep(3 * ttl)
		a.wantStandby("waiting for a fencing token")
		src.set(nil)
		a.activeWithin(3 * time.Second)
		if got := a.wantActive(); got <= 40 {
			t.Fatalf("token %d", got)
		}
		src.set(errors.New("API server away"))
		time.Sleep(3 * ttl)
		a.wantActive()
	})
}

func TestUnfitMajorityEndsBeforeTheFirstContactOnly(t *testing.T) {
	unfit := func(redlock.Request) error {
		return &redlock.NodeError{Node: "n", Kind: redlock.KindUnfit, Err: errors.New("is a replica")}
	}
	bubble(t, func(w *world) {
		w.servers[0].Fail(unfit)
		w.servers[1].Fail(unfit)
		a := w.run("a")
		time.Sleep(time.Second)
		if err := <-a.ended; !errors.Is(err, election.ErrUnfit) || !strings.Contains(err.Error(), "is a replica") {
			t.Fatalf("error %v", err)
		}
	})
	bubble(t, func(w *world) {
		a := w.run("a")
		a.wantActive()
		w.servers[0].Fail(unfit)
		w.servers[1].Fail(unfit)
		time.Sleep(3 * ttl)
		a.wantStandby("no quorum")
		if a.count(election.NodeUnfit) != 2 {
			t.Fatalf("events %v", a.events)
		}
		w.servers[0].Fail(nil)
		a.activeWithin(ttl)
	})
}

func TestChangesAreTold(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.run("a", native), w.run("b")
		a.wantActive()
		b.wantStandby("held by a")
		told := a.Changed()
		time.Sleep(10 * time.Minute)
		select {
		case <-told:
			t.Fatal("told of a change although nothing happened but time")
		default:
		}
		a.stop()
		synctest.Wait()
		select {
		case <-told:
		default:
			t.Fatal("the end of the term was not told")
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	locker, err := redlock.New(redlocktest.Nodes(redlocktest.NewServer("a", time.Hour)), redlock.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]election.Config{
		"Lock is empty": {},
		"Priority 101":  {Lock: "x", Priority: 101},
		"Priority -101": {Lock: "x", Priority: -101},
	} {
		if _, err := election.New(locker, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// halting stops the goroutine that sends a take just before it is handed over, as the
// scheduler may at any time.
type halting struct {
	redlock.Node
	armed   atomic.Bool
	reached chan struct{}
	goOn    chan struct{}
}

func (h *halting) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	if req.Op == redlock.OpTake && h.armed.CompareAndSwap(true, false) {
		close(h.reached)
		<-h.goOn
	}
	h.Node.Send(ctx, req, done)
}

// A renewal that is being sent as the term ends would set the key again behind the
// release, and keep that vote from others for a TTL.
func TestNothingIsTakenBehindTheRelease(t *testing.T) {
	bubble(t, func(w *world) {
		h := &halting{Node: w.servers[0].Connect(), reached: make(chan struct{}), goOn: make(chan struct{})}
		locker, err := redlock.New([]redlock.Node{h, w.servers[1].Connect(), w.servers[2].Connect()}, redlock.Options{
			TTL: ttl, StopBudget: stopBudget, Quarantine: quarantine, KeyPrefix: "podlease:", Identity: "a",
			Clock: func() time.Duration { return time.Since(w.start) + time.Hour },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close()
		c, err := election.New(locker, election.Config{Lock: "orders", Identity: "a", NativeSidecar: true, Log: logr.Discard()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		h.armed.Store(true)
		<-h.reached // in the middle of a renewal
		cancel()    // the end of a native sidecar: released at once
		synctest.Wait()
		close(h.goOn)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if v := w.servers[0].Value("podlease:orders"); v != "" {
			t.Errorf("taken again behind the release: %s", v)
		}
	})
}
