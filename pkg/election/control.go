package election

import (
	"fmt"
	"time"
)

// RefusedError is a control verb that makes no sense in the present state.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// command changes the state and makes the loop act on it.
func (c *Candidate) command(f func() error) error {
	c.mu.Lock()
	err := f()
	if err == nil {
		c.tellChange()
	}
	c.mu.Unlock()
	c.kick()
	return err
}

// Drain stops being active, keeps the lease and does not contend: the workload is about
// to be stopped, and nobody else may act before it has.
func (c *Candidate) Drain() error {
	return c.command(func() error {
		c.draining = true
		return nil
	})
}

// StepDown stops being active, gives the lease up in order and does not contend for that
// long. It is refused to a candidate that does not hold the lease.
func (c *Candidate) StepDown(pause time.Duration) error {
	return c.command(func() error {
		if pause < 0 {
			return &RefusedError{fmt.Sprintf("cannot step down for %v: must not be negative", pause)}
		}
		if c.term == nil || !c.term.lease.Holding() {
			return &RefusedError{"not active: there is no lease to give up"}
		}
		c.stepping = !c.term.over
		c.restUntil = c.locker.Now() + pause
		return nil
	})
}

// Pause takes no part until Resume; a held lease is given up as in StepDown.
func (c *Candidate) Pause() error {
	return c.command(func() error {
		c.paused = true
		return nil
	})
}

// Resume ends a pause, a drain, and the wait after a step-down.
func (c *Candidate) Resume() error {
	return c.command(func() error {
		if !c.paused && !c.draining && c.locker.Now() >= c.restUntil {
			return &RefusedError{"not paused, draining or stepped down: there is nothing to resume"}
		}
		c.paused, c.draining, c.restUntil = false, false, 0
		if c.term != nil && !c.term.over {
			c.term.stopped = false // the workload acts again
		}
		return nil
	})
}

// Stopped says that the workload has stopped acting, so a hand-over need not wait for the
// stop budget. It is refused to an active candidate: its workload may act at any time.
func (c *Candidate) Stopped() error {
	return c.command(func() error {
		if c.term == nil {
			return &RefusedError{"holds no lease: there is no hand-over that could be waiting"}
		}
		if l := c.leadership(); l.Active() {
			return &RefusedError{"active: drain or step down before saying that the workload has stopped"}
		}
		c.term.stopped = true
		return nil
	})
}

// SetPriority changes the priority for the next contention, -100 to 100; values beyond
// are cut.
func (c *Candidate) SetPriority(p int) {
	c.contest.SetPriority(min(max(p, -MaxPriority), MaxPriority))
	c.kick()
}
