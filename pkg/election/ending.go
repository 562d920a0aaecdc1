package election

import (
	"context"
	"time"
)

// cause is why a term ends.
type cause uint8

const (
	goesOn   cause = iota
	lost           // the lease ran out or was taken
	handover       // step-down, pause, or an unhealthy workload
	closing        // Run's context ended
)

// ending ends a term in the order that keeps the workload exclusive: not active, told to
// the world, workload stopped, and only then released (pinniped#800,
// controller-runtime#1132). The release kills the token before anything else, so that the
// renewer sends nothing behind it; waiting for the renewer's end first would only cost the
// next holder time.
type ending struct {
	candidate    *Candidate
	term         *term
	kept         chan error // the renewer's end
	stopRenewing context.CancelFunc
	why          cause
	ended        bool // the renewer has ended by itself
}

// lost notes that the renewer ended.
func (e *ending) lost(err error) {
	e.ended = true
	if err != nil {
		e.candidate.set(func() { e.candidate.lastLoss = err.Error() })
	}
}

func (e *ending) run(ctx context.Context) {
	c := e.candidate
	c.set(func() {
		e.term.over, e.term.overAt = true, c.locker.Now()
		c.stepping = false
		c.closing = c.closing || e.why == closing
	})
	if e.why == lost {
		c.event(LeaderLost, e.term.token, "the lease was lost: "+c.lossReason())
	}
	detached := context.WithoutCancel(ctx)
	c.sync(detached)
	free := e.awaitStopped(ctx)
	e.stopRenewing()
	if free {
		c.release(e.term.lease)
		if e.why != lost {
			c.event(LeaderReleased, e.term.token, "the lease was given up")
		}
	} else {
		c.cfg.Log.Info("workload still runs: the lease is not released and runs out by itself", "lock", c.cfg.Lock)
	}
	if !e.ended {
		<-e.kept //nolint:errcheck // why the renewals ended no longer matters
	}
	if c.cfg.OnDemotion != nil {
		c.cfg.OnDemotion(c.locker.Now() - e.term.overAt)
	}
}

// awaitStopped waits until the workload cannot act any more, renewing all the while, and
// reports whether the lease may be released.
func (e *ending) awaitStopped(ctx context.Context) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, free := e.stopped(ctx); done {
			return free
		}
		select {
		case err := <-e.kept:
			e.lost(err)
		case <-tick.C:
		}
		_ = e.candidate.look()
	}
}

// stopped judges whether the waiting is over, and whether the lease may be released.
func (e *ending) stopped(ctx context.Context) (done, free bool) {
	c := e.candidate
	c.mu.Lock()
	said, since := e.term.stopped, c.locker.Now()-e.term.overAt
	c.mu.Unlock()
	shutdown := ctx.Err() != nil
	visible := c.cfg.Workload != nil
	switch {
	case said:
		return true, true
	case visible && c.cfg.Workload.Stopped():
		// A server that shuts down gracefully stops listening first, and may go on
		// writing: it has what is left of its stop budget.
		return since >= c.opt.StopBudget, true
	case shutdown && c.cfg.NativeSidecar:
		return true, true
	case shutdown && visible:
		// Seen running when the time is over: only the TTL can tell when it is safe.
		return since >= c.cfg.DrainTimeout, false
	}
	return since >= c.opt.StopBudget, true
}
