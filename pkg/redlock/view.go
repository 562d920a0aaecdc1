package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// View is what a candidate without the lease knows of the lock. It is made of what
// the nodes answered last, so it may be up to a TTL old.
type View struct {
	// Holder is the identity of whoever has the lock at a quorum of nodes, if its
	// lease cannot have run out since; empty when there is none, or nothing is known.
	Holder string
	// HolderFor is how long that lease lives on if it is not renewed.
	HolderFor time.Duration
	// Reason says why the lock is not ours, in words; empty when nothing is in the way.
	Reason string
	// Conflict reports whether the reason is that the holder's settings and ours cannot
	// be safe together. Somebody has to change one of them.
	Conflict bool
}

// View tells what the candidate knows of the lock.
func (c *Contest) View() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	owner, until := c.holder(now)
	why, failures := c.reason(now, owner)
	for _, err := range failures {
		why += "; " + err.Error()
	}
	v := View{Reason: why, Conflict: c.refusal != ""}
	if owner != "" && !c.endless(owner) { // a key that never expires is nobody's lease
		v.Holder, v.HolderFor = ownerName(owner), until-now
	}
	return v
}

// holder returns the token that a quorum of nodes last showed and that has not run
// out, and until when.
func (c *Contest) holder(now time.Duration) (token string, until time.Duration) {
	counts, last := map[string]int{}, map[string]time.Duration{}
	for _, s := range c.sights {
		if s.owner == "" || s.at == 0 {
			continue
		}
		counts[s.owner]++
		last[s.owner] = max(last[s.owner], s.freeAt)
		if counts[s.owner] >= Quorum(len(c.sights)) {
			token = s.owner
		}
	}
	if now >= last[token] {
		return "", 0
	}
	return token, last[token]
}

// holderToken returns the token that most nodes last showed, or nothing.
func (c *Contest) holderToken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts, best := map[string]int{}, ""
	for _, s := range c.sights {
		if s.owner == "" {
			continue
		}
		if counts[s.owner]++; counts[s.owner] > counts[best] {
			best = s.owner
		}
	}
	return best
}

// reason says why the lock is not ours, and what is wrong at nodes that are to blame.
func (c *Contest) reason(now time.Duration, owner string) (why string, failures []error) {
	answered, young := 0, 0
	var left time.Duration
	for i := range c.sights {
		s := &c.sights[i]
		if s.err != nil {
			failures = append(failures, s.err)
			continue
		}
		if s.at > 0 {
			answered++
		}
		if s.young && now < s.freeAt {
			young++
			left = max(left, s.freeAt-now)
		}
	}
	q, n := Quorum(len(c.sights)), len(c.sights)
	switch {
	case c.refusal != "":
		return c.refusal, nil
	case owner != "" && c.endless(owner):
		return "no lease can be had", failures
	case owner != "":
		return "held by " + ownerName(owner), nil
	case answered < q:
		return fmt.Sprintf("no quorum: %d of %d nodes answered", answered, n), failures
	case n-young < q:
		return fmt.Sprintf("nodes in quarantine, %d s left", int(left.Seconds())+1), nil
	}
	return "", nil
}

// endless reports whether an owner's key never expires on some node.
func (c *Contest) endless(owner string) bool {
	return slices.ContainsFunc(c.sights, func(s sight) bool { return s.endless && s.owner == owner })
}

// whyNot turns a withdrawn attempt into an error for a caller.
func (c *Contest) whyNot(err error) error {
	v := c.View()
	if v.Holder != "" {
		return &HeldError{Lock: c.lock, Holder: v.Holder, Remaining: v.HolderFor}
	}
	if qe, ok := errors.AsType[*QuorumError](err); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := c.locker.opt.Clock()
		owner, _ := c.holder(now)
		if why, failures := c.reason(now, owner); why != "" {
			qe.Reason, qe.Nodes = why, failures
		}
		return qe
	}
	return err
}
