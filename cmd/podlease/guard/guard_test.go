//go:build unix

package guard_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/cmd/podlease/guard"
)

const (
	valid  = 7 * time.Second
	budget = 2 * time.Second
	// deadline is how long after an answer nobody else can be given the lease.
	deadline = valid + budget
	// tick is how late the guard may notice what only time made true.
	tick = 30 * time.Millisecond
)

// stage is a guard in virtual time, between a leadership and a command that do as told.
type stage struct {
	t       *testing.T
	began   time.Time
	answers chan guard.Answer
	signals chan os.Signal
	broken  chan error
	rings   chan struct{}

	mu      sync.Mutex
	skipped time.Duration // time that Go's timers have not seen, as after a suspend
	alarm   *time.Timer
	alarmAt time.Duration
	told    []bool // what Ended was told
	started []*family
	got     map[*family][]signal

	start func(*family) error // what happens at the start of the command
	code  int
	err   error
	done  chan struct{}
}

// set makes a stage and runs the guard on it.
func set(t *testing.T, change ...func(*guard.Config)) *stage {
	s := &stage{
		t: t, began: time.Now(), answers: make(chan guard.Answer), signals: make(chan os.Signal, 8), broken: make(chan error, 1),
		done: make(chan struct{}), rings: make(chan struct{}, 1), got: map[*family][]signal{}, start: func(*family) error { return nil },
	}
	cfg := guard.Config{Leadership: s, Command: s, Signals: s.signals, Wait: guard.Forever, Clock: s.now, Alarm: s, Log: logr.Discard()}
	for _, c := range change {
		c(&cfg)
	}
	go func() {
		defer close(s.done)
		s.code, s.err = guard.Run(t.Context(), cfg)
	}()
	t.Cleanup(func() {
		for _, f := range s.families() {
			f.exits(0)
		}
		<-s.done
	})
	return s
}

func (s *stage) now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.began) + s.skipped
}

// Set implements guard.Alarm.
func (s *stage) Set(at time.Duration) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.alarmAt = at
	s.alarm = time.AfterFunc(at-now, s.ring)
}

func (s *stage) ring() {
	select {
	case s.rings <- struct{}{}:
	default:
	}
}

// Rings implements guard.Alarm.
func (s *stage) Rings() <-chan struct{} { return s.rings }

// suspend is time that Go's timers do not see, and the alarm does.
func (s *stage) suspend(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped += d
	if s.alarm != nil && time.Since(s.began)+s.skipped >= s.alarmAt {
		s.ring()
	}
}

// Follow implements guard.Leadership.
func (s *stage) Follow(ctx context.Context, tell func(guard.Answer)) error {
	for {
		select {
		case a := <-s.answers:
			tell(a)
		case err := <-s.broken:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// Ended implements guard.Leadership.
func (s *stage) Ended(_ context.Context, last bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, last)
	return nil
}

func (s *stage) ended() []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

func (s *stage) families() []*family {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.started)
}

// Start implements guard.Command.
func (s *stage) Start(env []string, allowed func() bool) (guard.Family, error) {
	f := &family{stage: s, env: env, main: make(chan struct{}), gone: make(chan struct{})}
	if err := s.start(f); err != nil {
		return nil, err
	}
	if !allowed() {
		return nil, guard.ErrTooLate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = append(s.started, f)
	return f, nil
}

// say gives an answer to a question that is sent now.
func (s *stage) say(a guard.Answer) {
	a.Sent = s.now()
	s.give(a)
}

func (s *stage) give(a guard.Answer) {
	select {
	case s.answers <- a:
	case <-s.done:
	}
	synctest.Wait()
}

func active(term string) guard.Answer {
	return guard.Answer{Active: true, ValidFor: valid, StopBudget: budget, Term: term, FencingToken: 42}
}

func standby(reason string) guard.Answer { return guard.Answer{Reason: reason} }

// begun says that the leadership is active, and returns the command that starts.
func (s *stage) begun(term string) *family {
	s.t.Helper()
	before := len(s.families())
	s.say(active(term))
	if len(s.families()) != before+1 {
		s.t.Fatalf("%d commands were started, want one more than %d", len(s.families()), before)
	}
	return s.families()[before]
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// result waits for the guard's end.
func (s *stage) result() (int, error) {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(time.Hour):
		s.t.Fatal("the guard does not end")
	}
	return s.code, s.err
}

// wantExit waits for the guard's end with a code of its own.
func (s *stage) wantExit(code int, says string) {
	s.t.Helper()
	_, err := s.result()
	exit, ok := errors.AsType[*guard.ExitError](err)
	if !ok || exit.Code != code || !strings.Contains(exit.Text, says) {
		s.t.Errorf("ended with %v, want code %d and %q", err, code, says)
	}
}

// goOn asks as often as a leadership is asked, and answers yes.
func (s *stage) goOn(term string, d time.Duration) {
	for end := s.now() + d; s.now() < end; pass(200 * time.Millisecond) {
		s.say(active(term))
	}
}

// family is a command that does as told.
type family struct {
	*stage
	env        []string
	obeys      bool // SIGTERM
	main, gone chan struct{}
	code       int
}

type signal struct {
	syscall.Signal
	at time.Duration
}

// Signal implements guard.Family.
func (f *family) Signal(sig syscall.Signal) {
	if sig == syscall.SIGCONT {
		return
	}
	now := f.now()
	f.mu.Lock()
	f.got[f] = append(f.got[f], signal{sig, now})
	f.mu.Unlock()
	if sig == syscall.SIGKILL || (sig == syscall.SIGTERM && f.obeys) {
		f.leave(128 + int(sig))
		f.finish()
	}
}

func (f *family) Main() <-chan struct{} { return f.main }
func (f *family) Gone() <-chan struct{} { return f.gone }
func (f *family) Code() int             { return f.code }

// leave ends the command's own process.
func (f *family) leave(code int) {
	if !closed(f.main) {
		f.code = code
		close(f.main)
	}
}

// finish ends all of its processes.
func (f *family) finish() {
	if !closed(f.gone) {
		close(f.gone)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// exits ends the command by itself.
func (f *family) exits(code int) {
	f.leave(code)
	f.finish()
	synctest.Wait()
}

func (f *family) signals() []signal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got[f])
}

// at is when the command first got a signal; -1 if it has not.
func (f *family) at(sig syscall.Signal) time.Duration {
	for _, s := range f.signals() {
		if s.Signal == sig {
			return s.at
		}
	}
	return -1
}

func (f *family) count(sig syscall.Signal) (n int) {
	for _, s := range f.signals() {
		if s.Signal == sig {
			n++
		}
	}
	return n
}

// wantAt checks when a signal came: not before, and not much later.
func (f *family) wantAt(sig syscall.Signal, want time.Duration) {
	f.t.Helper()
	if got := f.at(sig); got < want || got > want+tick {
		f.t.Errorf("%v at %v, want at %v (%v)", sig, got, want, f.signals())
	}
}

func TestACommandRunsWhileTheLeadershipIsActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		s.say(standby("held by shop/b"))
		pass(time.Hour)
		if len(s.families()) != 0 {
			t.Fatal("a command was started on a standby")
		}
		f := s.begun("one")
		s.goOn("one", time.Hour)
		if len(f.signals()) != 0 {
			t.Errorf("got %v while active", f.signals())
		}
		if !slices.Equal(f.env, []string{"PODLEASE_TERM=one", "PODLEASE_FENCING_TOKEN=42"}) {
			t.Errorf("environment %q", f.env)
		}
		f.exits(7)
		if code, err := s.result(); code != 7 || err != nil {
			t.Errorf("code %d, %v, want the command's", code, err)
		}
		if !slices.Equal(s.ended(), []bool{true}) {
			t.Errorf("the leadership was told %v, want that the last command has ended", s.ended())
		}
	})
}

func TestSilenceEndsTheCommandWhenTheLastAnswerRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		pass(5 * time.Second)
		s.say(active("one"))
		last := s.now()
		for range 20 {
			pass(200 * time.Millisecond)
			s.say(guard.Answer{Err: errors.New("no answer")})
		}
		pass(time.Minute)
		f.wantAt(syscall.SIGTERM, last+valid)
		f.wantAt(syscall.SIGKILL, last+deadline-500*time.Millisecond)
		if !slices.Equal(s.ended(), []bool{false}) {
			t.Errorf("the leadership was told %v", s.ended())
		}
	})
}

func TestAnAnswerIsDatedWithItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		asked := active("one")
		asked.Sent = s.now()
		pass(3 * time.Second) // the reply takes that long
		s.give(asked)
		pass(time.Minute)
		f.wantAt(syscall.SIGTERM, asked.Sent+valid)
	})
}

func TestTheEndOfTheLeadershipLeavesTheStopBudgetFromTheLastYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		s.goOn("one", 10*time.Second)
		lastYes := s.now() - 200*time.Millisecond
		s.say(standby("stepping down"))
		over := s.now()
		f.wantAt(syscall.SIGTERM, over)
		pass(time.Minute)
		f.wantAt(syscall.SIGKILL, lastYes+budget-500*time.Millisecond)
	})
}

func TestACommandThatObeysIsNotKilledAndStartsAgainWithTheNextTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		s.start = func(f *family) error { f.obeys = true; return nil }
		f := s.begun("one")
		s.say(standby("held by shop/b"))
		pass(time.Minute)
		if f.count(syscall.SIGTERM) != 1 || f.count(syscall.SIGKILL) != 0 {
			t.Errorf("got %v, want one SIGTERM", f.signals())
		}
		if s.begun("two").env[0] != "PODLEASE_TERM=two" {
			t.Error("the second command has another term's name")
		}
		if !slices.Equal(s.ended(), []bool{false}) {
			t.Errorf("the leadership was told %v, want that one command has ended", s.ended())
		}
	})
}

func TestWhoeverWakesAfterTheDeadlineKillsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		s.goOn("one", time.Minute)
		s.suspend(time.Hour)
		woke := s.now()
		pass(tick)
		f.wantAt(syscall.SIGKILL, woke)
		if n := f.count(syscall.SIGTERM); n != 0 {
			t.Errorf("got %v: a SIGTERM would let the command act once more", f.signals())
		}
	})
}

func TestAYesToAQuestionFromBeforeTheSuspendIsWorthNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		asked := active("one")
		asked.Sent = s.now()
		s.suspend(valid)
		s.give(asked)
		if len(s.families()) != 0 {
			t.Error("a command was started after its term")
		}
	})
}

func TestACommandIsNotStartedAfterItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		s.start = func(*family) error {
			s.suspend(valid) // between the answer and the start
			return nil
		}
		s.say(active("one"))
		if len(s.families()) != 0 {
			t.Error("a command was started after its term")
		}
		s.start = func(*family) error { return nil }
		s.begun("two")
	})
}

func TestATermOfOnesOwnAfterAnotherEndsTheCommandAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		pass(time.Second)
		s.say(active("two"))
		pass(tick)
		f.wantAt(syscall.SIGKILL, time.Second)
	})
}

func TestAnAnswerFromBeforeTheWaitStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		stale := active("one")
		stale.Sent = s.now()
		pass(time.Second)
		s.say(standby("stepping down"))
		f.exits(0)
		s.give(stale)
		if len(s.families()) != 1 {
			t.Error("the command was started again under a term that has ended")
		}
		if s.say(active("two")); len(s.families()) != 2 {
			t.Error("the command was not started under the next term")
		}
	})
}

func TestALossIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, func(c *guard.Config) { c.ExitOnLoss = true })
		f := s.begun("one")
		s.say(standby("held by shop/b"))
		f.exits(0) // it obeyed, and calls that a success
		s.wantExit(guard.ExitLost, "lost")
		if !slices.Equal(s.ended(), []bool{true}) {
			t.Errorf("the leadership was told %v", s.ended())
		}
	})
}

func TestACommandThatEndedInTimeHasEndedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, func(c *guard.Config) { c.ExitOnLoss = true })
		f := s.begun("one")
		f.leave(0) // something it started is still there
		s.say(standby("held by shop/b"))
		f.finish()
		if code, err := s.result(); code != 0 || err != nil {
			t.Errorf("code %d, %v", code, err)
		}
	})
}

func TestWhatACommandLeavesBehindIsEndedBeforeTheLeaseIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		pass(time.Second)
		f.leave(3)
		synctest.Wait()
		f.wantAt(syscall.SIGTERM, time.Second)
		s.goOn("one", time.Second)
		if len(s.ended()) != 0 || closed(s.done) {
			t.Error("the lease was given up while something of the command ran")
		}
		s.goOn("one", 2*time.Second)
		f.wantAt(syscall.SIGKILL, 3*time.Second)
		if code, err := s.result(); code != 3 || err != nil {
			t.Errorf("code %d, %v", code, err)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		wait  time.Duration
		last  guard.Answer
		code  int
		after time.Duration
		says  string
	}{
		"0s, held":              {0, standby("held by shop/b"), 75, 0, "held by shop/b"},
		"0s, quarantine":        {0, standby("nodes in quarantine, 12 s left"), 75, 0, "quarantine"},
		"0s, not known yet":     {0, standby("contending"), 75, 3 * time.Second, "contending"},
		"0s, asking":            {0, standby("asking the nodes"), 75, 3 * time.Second, "asking"},
		"0s, no quorum yet":     {0, standby("no quorum: 0 of 3 nodes answered"), 75, 3 * time.Second, "no quorum"},
		"0s, nobody answers":    {0, guard.Answer{Err: errors.New("connection refused")}, 1, 3 * time.Second, "connection refused"},
		"a while":               {time.Minute, standby("held by shop/b"), 75, time.Minute, "held by shop/b"},
		"a while, nobody there": {time.Minute, guard.Answer{Err: errors.New("connection refused")}, 1, time.Minute, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := set(t, func(c *guard.Config) { c.Wait = tc.wait })
				s.say(tc.last)
				s.wantExit(tc.code, tc.says)
				if took := s.now(); took < tc.after || took > tc.after+time.Second {
					t.Errorf("gave up after %v, want %v", took, tc.after)
				}
			})
		})
	}
}

func TestEachWaitHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t, func(c *guard.Config) { c.Wait = time.Minute })
		pass(50 * time.Second)
		f := s.begun("one")
		s.goOn("one", time.Hour)
		s.say(standby("held by shop/b"))
		f.exits(0)
		pass(50 * time.Second)
		f = s.begun("two")
		s.say(standby("held by shop/b"))
		f.exits(0)
		s.say(standby("held by shop/b"))
		s.wantExit(guard.ExitGaveUp, "held by shop/b")
	})
}

func TestSignalsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		s.signals <- syscall.SIGUSR1
		s.signals <- syscall.SIGWINCH
		pass(time.Second)
		if closed(s.done) {
			t.Fatal("ended by a signal that asks for nothing")
		}
		s.signals <- syscall.SIGINT
		s.wantExit(130, "interrupt")
	})
}

func TestSignalsArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		f := s.begun("one")
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGTERM} {
			s.signals <- sig
			pass(time.Millisecond)
		}
		var got []syscall.Signal
		for _, g := range f.signals() {
			got = append(got, g.Signal)
		}
		if !slices.Equal(got, []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGTERM}) {
			t.Errorf("got %v", got)
		}
		s.goOn("one", time.Hour) // it may take its time: the lease is held
		if f.count(syscall.SIGKILL) != 0 {
			t.Error("killed while the lease is held")
		}
		f.exits(0)
		if code, err := s.result(); code != 0 || err != nil {
			t.Errorf("code %d, %v", code, err)
		}
	})
}

// When a Pod is deleted, the container gets SIGTERM and the sidecar drains, in any order.
func TestOneEndIsOneSIGTERM(t *testing.T) {
	for name, steps := range map[string][]func(*stage){
		"signal first": {func(s *stage) { s.signals <- syscall.SIGTERM }, func(s *stage) { s.say(standby("draining")) }},
		"drain first":  {func(s *stage) { s.say(standby("draining")) }, func(s *stage) { s.signals <- syscall.SIGTERM }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := set(t)
				f := s.begun("one")
				for _, step := range steps {
					step(s)
					pass(10 * time.Millisecond)
				}
				if f.count(syscall.SIGTERM) != 1 {
					t.Errorf("got %v, want one SIGTERM", f.signals())
				}
				f.exits(5)
				if code, err := s.result(); code != 5 || err != nil {
					t.Errorf("code %d, %v: want the command's, and no more waiting", code, err)
				}
			})
		})
	}
}

func TestACommandThatCannotBeStartedIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		s.start = func(*family) error { return &guard.ExitError{Code: 126, Text: "exec format error"} }
		s.say(active("one"))
		s.wantExit(126, "exec format error")
		if !slices.Equal(s.ended(), []bool{true}) {
			t.Errorf("the leadership was told %v: the lease is to be given up", s.ended())
		}
	})
}

func TestALeadershipThatCannotBeIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		unfit := errors.New("all nodes are replicas")
		s.broken <- unfit
		if _, err := s.result(); !errors.Is(err, unfit) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestWithoutAStopBudgetThereIsNoWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		a := active("one")
		a.StopBudget = 0
		s.say(a)
		f := s.families()[0]
		pass(time.Second)
		s.say(standby("held by shop/b"))
		pass(tick)
		f.wantAt(syscall.SIGKILL, time.Second)
		if n := f.count(syscall.SIGTERM); n != 0 {
			t.Errorf("got %v, want no SIGTERM", f.signals())
		}
	})
}
