//go:build unix

package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// Forever waits for the lease without limit.
const Forever time.Duration = -1

const (
	// waitInterval is how often a wait that has an end looks whether that has come.
	waitInterval = 100 * time.Millisecond
	// killInterval is how often processes are killed until none is left.
	killInterval = 25 * time.Millisecond
	// settleTime is how long a wait of nothing gives a candidate that has just started to
	// find out who holds the lease.
	settleTime = 3 * time.Second
	// leftoverGrace is for how long processes that the command left behind may end by
	// themselves. The lease is held in the meantime.
	leftoverGrace = 2 * time.Second
	// endTimeout bounds how long others are told that the command has ended.
	endTimeout = 2 * time.Second
)

// Answer is what was true of the leadership at an instant not before Sent.
type Answer struct {
	// Sent is when the question was sent, on the guard's clock.
	Sent   time.Duration
	Active bool
	// ValidFor is how much longer it is active if nothing more is heard.
	ValidFor time.Duration
	// StopBudget is for how long after the end of being active nobody else can be given
	// the lease.
	StopBudget   time.Duration
	Term         string
	FencingToken uint64 // 0 without fencing
	// Reason says why it is not active.
	Reason string
	// Err says that there was no answer; nothing else is set then.
	Err error
}

// interval is how long after the answer to ask again. While active it is what may be lost
// of the stop budget, because an answer proves nothing later than its question.
func (a Answer) interval() time.Duration {
	switch {
	case a.Err != nil:
		return 100 * time.Millisecond
	case a.Active:
		return min(max(a.StopBudget/10, 20*time.Millisecond), 250*time.Millisecond)
	}
	return time.Second // a change is told at once
}

// Leadership is what a command's right to run comes from.
type Leadership interface {
	// Follow tells of answers, regularly and when something changed, until ctx ends or no
	// more answers can come, which is an error.
	Follow(ctx context.Context, tell func(Answer)) error
	// Ended says that all of the command's processes have ended, so that nobody needs to
	// wait for that. After the last command the lease is given up.
	Ended(ctx context.Context, last bool) error
}

// Command starts the command.
type Command interface {
	// Start starts it with variables added to its environment, unless allowed, which is
	// asked at the last possible instant, says no; then it returns ErrTooLate.
	Start(env []string, allowed func() bool) (Family, error)
}

// Family is a running command with all processes that come of it.
type Family interface {
	// Signal sends a signal to all of them that can be reached.
	Signal(sig syscall.Signal)
	// Main is closed when the process that was started has ended.
	Main() <-chan struct{}
	// Gone is closed when all have ended.
	Gone() <-chan struct{}
	// Code is the exit code of the process that was started, 128 and the signal's number
	// when it was killed, after Main.
	Code() int
}

// Alarm rings at a time of the guard's clock, at once if that has passed, and also where
// the machine was suspended in between.
type Alarm interface {
	// Set replaces the time at which it rings.
	Set(at time.Duration)
	Rings() <-chan struct{}
}

// ErrTooLate says that the leadership was over before the command was started.
var ErrTooLate = errors.New("the leadership ended before the command was started")

// Config says what to guard.
type Config struct {
	Leadership Leadership
	Command    Command
	// Signals are those that were sent to the guard.
	Signals <-chan os.Signal
	// Wait is how long to wait for the lease, again after each loss; 0 gives up when
	// somebody else holds it.
	Wait time.Duration
	// ExitOnLoss ends when the lease was lost while the command ran, instead of waiting
	// for it again.
	ExitOnLoss bool
	// Clock is a monotonic clock that counts suspends.
	Clock func() time.Duration
	Alarm Alarm
	Log   logr.Logger
}

type guard struct {
	Config

	answers chan Answer
	broken  chan error // why no more answers come
	// asked says that whoever runs the guard wants the command to end for good.
	asked bool
}

// Run waits for the lease, runs the command while it is held, and returns the command's
// exit code. Its errors are *ExitError, those of Command.Start and of Leadership.Follow.
func Run(ctx context.Context, cfg Config) (int, error) {
	g := &guard{Config: cfg, answers: make(chan Answer), broken: make(chan error, 1)}
	ctx, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		g.follow(ctx)
	}()
	defer func() {
		stop()
		<-followed
	}()
	for {
		first, err := g.await(ctx)
		if err != nil {
			return 0, err
		}
		code, lost, err := g.hold(ctx, first)
		switch {
		case errors.Is(err, ErrTooLate):
			g.Log.Info("lease held, but not long enough to start the command", "term", first.Term)
			continue
		case err != nil:
			g.ended(ctx, true)
			return 0, err
		}
		last := !lost || g.asked || g.ExitOnLoss
		g.ended(ctx, last)
		switch {
		case !lost || g.asked:
			return code, nil
		case last:
			return 0, &ExitError{ExitLost, "the lease was lost while the command ran"}
		}
	}
}

func (g *guard) follow(ctx context.Context) {
	err := g.Leadership.Follow(ctx, func(a Answer) {
		select {
		case g.answers <- a:
		case <-ctx.Done():
		}
	})
	if err != nil && ctx.Err() == nil {
		g.broken <- err
	}
}

func (g *guard) ended(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := g.Leadership.Ended(ctx, last); err != nil {
		g.Log.Info("not told that the command has ended, so the next holder may have to wait", "reason", err.Error())
	}
}

// await waits until the leadership is active, and returns the answer that says so.
func (g *guard) await(ctx context.Context) (Answer, error) {
	w := waiting{guard: g, began: g.Clock()}
	look, stop := g.looks()
	defer stop()
	for {
		select {
		case a := <-g.answers:
			if w.take(a) {
				return a, nil
			}
		case sig := <-g.Signals:
			if n, ends := ending(sig); ends {
				return Answer{}, &ExitError{128 + n, fmt.Sprintf("ended by signal %q while waiting for the lease", sig)}
			}
		case err := <-g.broken:
			return Answer{}, err
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-look:
		}
		if w.over() {
			return Answer{}, w.giveUp()
		}
	}
}

// looks is when to look whether a wait is over; never if that has no end.
func (g *guard) looks() (c <-chan time.Time, stop func()) {
	if g.Wait < 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(waitInterval)
	return ticker.C, ticker.Stop
}

// ending tells whether a signal ends a program that does not say otherwise, among those
// that people send.
func ending(sig os.Signal) (number int, ends bool) {
	s, _ := sig.(syscall.Signal)
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return int(s), true
	default:
		return int(s), false
	}
}

// waiting is one wait for the lease.
type waiting struct {
	*guard
	began time.Duration
	last  Answer
	heard bool
	told  string
}

// take reports whether an answer lets the command start. One to a question from before
// the wait may be about a term that has ended since.
func (w *waiting) take(a Answer) bool {
	if a.Sent < w.began {
		return false
	}
	if a.Active && w.Clock() < a.Sent+a.ValidFor {
		return true
	}
	w.last = a
	w.heard = w.heard || a.Err == nil
	if why := strings.Map(withoutDigits, w.why()); why != w.told {
		w.told = why
		w.Log.Info("waiting for the lease", "reason", w.why())
	}
	return false
}

// withoutDigits keeps a countdown from being told each second.
func withoutDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

func (w *waiting) why() string {
	switch {
	case w.last.Err != nil:
		return w.last.Err.Error()
	case w.last.Reason != "":
		return w.last.Reason
	}
	return "no answer yet"
}

// over reports whether it is time to give up.
func (w *waiting) over() bool {
	waited := w.Clock() - w.began
	if w.Wait == 0 {
		return w.settled() || waited >= settleTime
	}
	return w.Wait > 0 && waited >= w.Wait
}

// settled reports whether the candidate knows why it is not active. One that has just
// started does not: it contends, or has not heard of enough nodes.
func (w *waiting) settled() bool {
	if w.last.Err != nil || w.last.Active || w.last.Reason == "" {
		return false
	}
	for _, soon := range []string{asking, "contending", "waiting for a fencing token", "no quorum"} {
		if strings.HasPrefix(w.last.Reason, soon) {
			return false
		}
	}
	return true
}

// giveUp tells a lease that is not to be had from a question that nobody ever answered,
// which is a mistake in the settings and must not look like a lock that is held.
func (w *waiting) giveUp() error {
	code := ExitGaveUp
	if !w.heard {
		code = 1
	}
	waited := (w.Clock() - w.began).Round(time.Millisecond)
	return &ExitError{code, fmt.Sprintf("gave up waiting for the lease after %v: %s", waited, w.why())}
}
