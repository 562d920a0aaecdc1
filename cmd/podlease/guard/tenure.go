//go:build unix

package guard

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// tenure is one run of the command under one term of the lease.
type tenure struct {
	*guard
	family Family
	term   string

	confirmed   time.Duration // when the last question was sent whose answer was "active"
	activeUntil time.Duration // when being active ends, if nothing more is heard
	budget      time.Duration // the stop budget
	killBy      time.Duration // when the processes have to be killed, so as to be dead in time

	over      bool          // the leadership is known to be over
	lost      bool          // it was while the command ran
	endedAt   time.Duration // when the command's own process ended; 0 while it runs
	stopping  bool          // the processes have been told to end
	told      bool          // by a SIGTERM of ours
	passed    bool          // or by one that was passed on
	killed    bool
	swallowed bool
}

// killMargin is how long before the lease can be given away the processes are killed:
// it is what the kernel has for ending them.
func killMargin(budget time.Duration) time.Duration {
	return min(max(budget/4, 50*time.Millisecond), 500*time.Millisecond)
}

// hold runs the command until all its processes have ended, and reports whether the
// leadership was lost before the command ended by itself.
func (g *guard) hold(ctx context.Context, first Answer) (code int, lost bool, err error) {
	t := &tenure{guard: g, term: first.Term}
	t.extend(first)
	g.Log.Info("lease held, starting the command", "term", first.Term, "token", first.FencingToken)
	t.family, err = g.Command.Start(environment(first), func() bool { return g.Clock() < t.activeUntil })
	if err != nil {
		return 0, false, err
	}
	t.run(ctx)
	g.Log.Info("command ended", "term", t.term, "code", t.family.Code(), "lost", t.lost)
	return t.family.Code(), t.lost, nil
}

// environment is what the command is told of the lease.
func environment(a Answer) []string {
	env := []string{"PODLEASE_TERM=" + a.Term}
	if a.FencingToken != 0 {
		env = append(env, fmt.Sprintf("PODLEASE_FENCING_TOKEN=%d", a.FencingToken))
	}
	return env
}

func (t *tenure) run(ctx context.Context) {
	again := time.NewTicker(killInterval)
	again.Stop()
	defer again.Stop()
	main, done := t.family.Main(), ctx.Done()
	for {
		if now := t.Clock(); t.check(now) {
			again.Reset(killInterval)
		} else {
			t.Alarm.Set(t.next())
		}
		select {
		case <-t.family.Gone():
			return
		case <-main:
			main = nil
			t.commandEnded()
		case a := <-t.answers:
			t.take(a)
		case sig := <-t.Signals:
			t.pass(sig)
		case <-done:
			done = nil
			t.pass(syscall.SIGTERM)
		case <-t.Alarm.Rings():
		case <-again.C:
		}
	}
}

// check ends what the clock says has to end, and reports whether that was by killing.
// Whoever was suspended comes here first.
func (t *tenure) check(now time.Duration) (killed bool) {
	if !t.over && now >= t.activeUntil {
		t.end("not heard in time that the lease is still held")
	}
	leftover := t.endedAt != 0 && now >= t.endedAt+leftoverGrace
	if leftover || (t.over && now >= t.killBy) {
		t.kill()
		return true
	}
	return false
}

// next is when check has something to do unless something else happens.
func (t *tenure) next() time.Duration {
	next := t.activeUntil
	if t.over {
		next = t.killBy
	}
	if t.endedAt != 0 {
		next = min(next, t.endedAt+leftoverGrace)
	}
	return next
}

// take takes in an answer. None is neither yes nor no: the time goes on to run out.
func (t *tenure) take(a Answer) {
	switch {
	case a.Err != nil, t.over:
	case a.Active && a.Term == t.term:
		t.extend(a)
	case a.Active: // a new term of our own: others may have had one in between
		t.killBy = t.Clock()
		t.end("the lease was given away and taken again")
	default:
		// The term may have ended right after the last question whose answer was yes, and
		// for a hand-over the stop budget is all that is left from there on.
		t.killBy = min(t.killBy, t.confirmed+t.budget-killMargin(t.budget))
		t.end(a.Reason)
	}
}

// extend takes in that the term goes on.
func (t *tenure) extend(a Answer) {
	if a.Sent < t.confirmed {
		return
	}
	t.confirmed, t.budget = a.Sent, max(a.StopBudget, 0)
	t.activeUntil = a.Sent + a.ValidFor
	t.killBy = t.activeUntil + t.budget - killMargin(t.budget)
}

// end takes in that the leadership is over.
func (t *tenure) end(reason string) {
	t.over = true
	late := t.Clock() >= t.killBy
	if late { // it may have slept through its time: nothing comes before this
		t.kill()
	}
	select {
	case <-t.family.Main(): // it ended by itself, and in time
	default:
		t.lost = true
		t.Log.Info("leadership over, stopping the command", "term", t.term, "reason", reason,
			"killIn", max(t.killBy-t.Clock(), 0).String())
	}
	if !late {
		t.stop()
	}
}

// stop tells the processes to end. One SIGTERM is enough: a second makes some programs
// drop everything.
func (t *tenure) stop() {
	if t.stopping || t.killed {
		return
	}
	t.stopping = true
	if !t.passed {
		t.told = true
		t.family.Signal(syscall.SIGTERM)
	}
	t.family.Signal(syscall.SIGCONT) // one that is stopped could not obey
}

// kill is repeated until all are gone: what was just started may have been missed.
func (t *tenure) kill() {
	t.family.Signal(syscall.SIGKILL)
	if !t.killed {
		t.killed = true
		t.Log.Info("killing the command's processes", "term", t.term)
	}
}

// commandEnded sees to what the command has left behind: the lease is not given up while
// something of it still runs.
func (t *tenure) commandEnded() {
	t.endedAt = t.Clock()
	t.stop()
}

// pass passes a signal on. The one SIGTERM that says what we have said already is kept
// back: when a Pod is deleted, both come.
func (t *tenure) pass(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	if _, ends := ending(s); ends && s != syscall.SIGHUP { // which often means "read the settings again"
		t.asked = true
	}
	if s == syscall.SIGTERM {
		if t.told && !t.swallowed {
			t.swallowed = true
			return
		}
		t.passed = true
	}
	t.family.Signal(s)
}
