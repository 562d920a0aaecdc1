package election

import (
	"fmt"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

// shown is what waiters are told the change of.
type shown struct {
	role     Role
	holder   string
	token    uint64
	draining bool
	held     int
	reason   string
}

// Leadership answers from the clock and the deadline as of now.
func (c *Candidate) Leadership() Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leadership()
}

// leadership needs c.mu.
func (c *Candidate) leadership() Leadership {
	l := Leadership{
		Lock: c.cfg.Lock, Identity: c.cfg.Identity, Role: Standby, Draining: c.draining,
		Quorum: Quorum{Size: c.locker.Size(), Needed: redlock.Quorum(c.locker.Size())},
	}
	remaining := c.holdTerm(&l)
	view := c.contest.View()
	if remaining > 0 && c.actingTerm() {
		l.Role, l.FencingToken, l.ValidFor, l.Holder = Active, c.term.token, remaining, c.cfg.Identity
	} else {
		l.Holder, l.Reason = view.Holder, c.reason(remaining > 0, view)
		if remaining > 0 {
			l.Holder = c.cfg.Identity
		}
	}
	now := time.Now()
	c.noteRole(l.Role == Active, now)
	l.Since, l.AsOf = c.since, now
	return l
}

// holdTerm fills in the lease, and returns how much longer it is held.
func (c *Candidate) holdTerm(l *Leadership) time.Duration {
	if c.term == nil {
		return 0
	}
	for _, voted := range c.term.lease.Votes() {
		if voted {
			l.Quorum.Held++
		}
	}
	remaining := c.term.lease.Remaining()
	if remaining > 0 {
		l.Term = c.term.lease.Term()
	}
	return remaining
}

// actingTerm reports whether a term that is held makes its holder active.
func (c *Candidate) actingTerm() bool {
	return c.term.granted && !c.term.over && !c.draining && !c.paused && !c.stepping && c.unhealthy == ""
}

// reason says why the candidate is not active.
func (c *Candidate) reason(held bool, view redlock.View) string {
	switch why := c.whyNotContend(); {
	case why != "":
		return why
	case c.stepping, held && c.term.over:
		return "stepping down"
	case held:
		return "waiting for a fencing token"
	case view.Reason != "":
		return view.Reason
	case c.lastLoss != "":
		return "contending; " + c.lastLoss
	}
	return "contending"
}

// noteRole counts transitions, and dates the role.
func (c *Candidate) noteRole(active bool, now time.Time) {
	if active == c.wasActive {
		return
	}
	c.wasActive, c.since = active, now
	if active {
		c.stats.ToActive++
	} else {
		c.stats.ToStandby++
	}
}

// tellChange closes the channel of those who wait, if what they see has changed. It
// needs c.mu.
func (c *Candidate) tellChange() {
	l := c.leadership()
	next := shown{
		role: l.Role, holder: l.Holder, token: l.FencingToken, draining: l.Draining, held: l.Quorum.Held,
		reason: strings.Map(withoutDigits, l.Reason),
	}
	if next == c.shown {
		return
	}
	c.shown = next
	close(c.changed)
	c.changed = make(chan struct{})
}

// withoutDigits keeps a countdown from being a change each second.
func withoutDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

// Changed returns a channel that is closed at the next change of what Leadership tells
// (other than the passing of time). Get the channel first, then ask.
func (c *Candidate) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// look is what the loop does at each turn: it notes that it runs, and what has changed
// without telling.
func (c *Candidate) look() error {
	nodes := c.locker.Nodes()
	quorum := c.locker.SinceQuorum()
	healthy, why := true, ""
	if c.cfg.Workload != nil {
		healthy, why = c.cfg.Workload.Healthy()
	}
	c.mu.Lock()
	c.lookAtOthers()
	events := c.lookAt(nodes, quorum)
	c.unhealthy = ""
	if !healthy {
		c.unhealthy = why
	}
	c.tellChange()
	fit := c.seenFit
	c.mu.Unlock()
	for _, e := range events {
		c.event(e.Kind, e.FencingToken, e.Message)
	}
	if fit {
		return nil
	}
	return unfitMajority(nodes)
}

// lookAtOthers takes in what is known of another holder. It needs c.mu.
func (c *Candidate) lookAtOthers() {
	if c.term != nil {
		return
	}
	view := c.contest.View()
	if view.Holder != "" {
		c.lastLoss = "" // what ended the own term says no longer why it is not active
	}
	if view.Conflict && !c.conflict {
		c.cfg.Log.Info("does not contend: the holder's settings and the own cannot be safe together", "lock", c.cfg.Lock, "reason", view.Reason)
	}
	c.conflict = view.Conflict
}

// lookAt needs c.mu.
func (c *Candidate) lookAt(nodes []redlock.NodeStatus, quorum time.Duration) []Event {
	events := c.lookForPause()
	for _, n := range nodes {
		if n.Unfit != "" && !c.unfit[n.Name] {
			events = append(events, Event{Kind: NodeUnfit, Message: fmt.Sprintf("node %s is not counted: %s", n.Name, n.Unfit)})
		}
		c.unfit[n.Name] = n.Unfit != ""
	}
	return append(events, c.lookForQuorum(len(nodes), quorum)...)
}

// lookForQuorum finds that a quorum has not answered for long, or answers again, given
// how long ago it did.
func (c *Candidate) lookForQuorum(size int, since time.Duration) []Event {
	c.seenFit = c.seenFit || since >= 0
	// Who stood still heard nobody: that is no silence of the nodes.
	out := c.seenFit && (since < 0 || min(since, c.beat-c.awake) > c.quorumPatience())
	was := c.quorumOut
	c.quorumOut = out
	switch {
	case out && !was:
		return []Event{{Kind: RedisQuorumLost, Message: fmt.Sprintf("fewer than %d of %d nodes answer", redlock.Quorum(size), size)}}
	case was && !out:
		return []Event{{Kind: RedisQuorumRegained, Message: fmt.Sprintf("at least %d of %d nodes answer again", redlock.Quorum(size), size)}}
	}
	return nil
}

// quorumPatience is for how long a quorum may be silent before people are told, once for
// each silence: a holder asks at each renewal, a standby once a TTL.
func (c *Candidate) quorumPatience() time.Duration {
	if c.term != nil || c.quorumOut {
		return 2*c.opt.RenewInterval + c.opt.NodeTimeout
	}
	return 2 * c.opt.TTL
}

// lookForPause finds that the loop did not run for long: the process was stopped, the
// machine suspended, or the CPU taken away.
func (c *Candidate) lookForPause() []Event {
	now := c.locker.Now()
	gap := now - c.beat
	c.beat = now
	if gap >= c.opt.RenewInterval {
		c.awake = now
	}
	if gap < max(time.Second, 2*c.opt.RenewInterval) {
		return nil
	}
	c.stats.Pauses++
	return []Event{{Kind: PauseDetected, Message: fmt.Sprintf("the process stood still for %v", gap.Round(time.Millisecond))}}
}

// unfitMajority returns an error when too many nodes are unfit for a quorum ever to be.
func unfitMajority(nodes []redlock.NodeStatus) error {
	var why []string
	for _, n := range nodes {
		if n.Unfit != "" {
			why = append(why, n.Name+": "+n.Unfit)
		}
	}
	if len(nodes)-len(why) >= redlock.Quorum(len(nodes)) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d nodes are unfit: %s", ErrUnfit, len(why), len(nodes), strings.Join(why, "; "))
}

func (c *Candidate) lossReason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastLoss
}

// Health tells how the candidate is doing.
func (c *Candidate) Health() Health {
	quorum := c.locker.SinceQuorum()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Health{SinceLoop: c.locker.Now() - c.beat, SinceQuorum: quorum, TTL: c.opt.TTL}
}

// Nodes tells what is known of each node, in the configured order, with whether the own
// lease has a valid vote there.
func (c *Candidate) Nodes() []NodeState {
	statuses := c.locker.Nodes()
	out := make([]NodeState, len(statuses))
	for i, s := range statuses {
		out[i].NodeStatus = s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != nil {
		for i, voted := range c.term.lease.Votes() {
			out[i].Voted = voted
		}
	}
	return out
}

// Stats tells what was counted since the start.
func (c *Candidate) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leadership() // counts a transition that only time made
	s := c.stats
	s.Attempts = map[string]uint64{}
	for result, n := range c.contest.Attempts() {
		s.Attempts[string(result)] = n
	}
	if c.term != nil {
		if d := c.term.lease.Deadline(); d > 0 {
			s.LastRenew = time.Now().Add(d - c.opt.TTL + c.opt.TTL/100 - c.locker.Now())
		}
	}
	return s
}
