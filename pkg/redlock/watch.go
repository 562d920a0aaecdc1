package redlock

import (
	"errors"
	"maps"
	"time"
)

// clockRate is the largest relative difference of two clocks that each run within
// 0.5 % of true time.
const clockRate = 100 // one part in a hundred

// nodeClock bounds a node's clock against ours: node time in µs since 1970, less
// our clock, lies between lo and hi.
type nodeClock struct {
	known  bool
	lo, hi time.Duration
	at     time.Duration // our clock at the last observation
}

// observe takes in that the node's clock showed t at some instant between sent and
// received, and reports whether that cannot be unless the clock stepped by more than
// the allowance or stood still. Windows are compared, not points: a late reply makes
// a wide window, not a false alarm (review B.2).
func (c *nodeClock) observe(t, sent, received, allowance time.Duration) (stepped bool) {
	lo, hi := t-received, t-sent
	if !c.known {
		*c = nodeClock{known: true, lo: lo, hi: hi, at: received}
		return false
	}
	slack := max(received-c.at, 0) / clockRate
	oldLo, oldHi := c.lo-slack, c.hi+slack
	stepped = lo > oldHi+allowance || hi < oldLo-allowance
	if l, h := max(lo, oldLo), min(hi, oldHi); !stepped && l <= h {
		lo, hi = l, h
	}
	*c = nodeClock{known: true, lo: lo, hi: hi, at: received}
	return stepped
}

// latest is the latest time that the node's clock can show at our time at.
func (c *nodeClock) latest(at time.Duration) time.Duration {
	return at + c.hi + max(at-c.at, 0)/clockRate
}

// middle is the likeliest time of the node's clock at our time at.
func (c *nodeClock) middle(at time.Duration) time.Duration { return at + c.lo + (c.hi-c.lo)/2 }

// watch is what the Locker knows of one node, over all locks.
type watch struct {
	clock nodeClock
	runID string
	// since is the latest instant at which the server may have started: of a server
	// never seen before by its own word, else when we first heard of it.
	since     time.Duration
	answered  bool
	lastReply time.Duration
	latency   time.Duration
	lastErr   error
	unfit     string
	errors    map[ErrorKind]uint64
}

// answer takes in a reply that was received at now.
func (w *watch) answer(sent, now, allowance time.Duration, r Reply) {
	stepped := w.clock.observe(time.Duration(r.Time)*time.Microsecond, sent, now, allowance)
	switch {
	case !w.answered:
		w.since = now
		// Uptime counts whole seconds, so a second of it may not have passed (review
		// A.4d), and it is wall time: it is believed only of a server we cannot have
		// seen restart (review A.4c).
		if r.Uptime > time.Second {
			w.since = sent - (r.Uptime - time.Second)
		}
	case r.RunID != w.runID, stepped:
		w.since = now
	}
	w.runID, w.answered, w.lastReply, w.latency, w.lastErr = r.RunID, true, now, now-sent, nil
	w.unfit = ""
	if r.Outcome == Held && r.PTTL == NoExpiry {
		w.count(KindNoExpiry)
	}
}

func (w *watch) count(kind ErrorKind) {
	if w.errors == nil {
		w.errors = map[ErrorKind]uint64{}
	}
	w.errors[kind]++
}

// fail takes in a request that was not answered.
func (w *watch) fail(err error) {
	w.lastErr = err
	kind := KindOther
	if ne, ok := errors.AsType[*NodeError](err); ok {
		kind = ne.Kind
		if kind == KindUnfit {
			w.unfit = ne.Err.Error()
		}
	}
	w.count(kind)
}

// mature reports whether the server has been watched for a quarantine.
func (w *watch) mature(now, quarantine time.Duration) bool {
	return quarantine == 0 || w.answered && now-w.since >= quarantine
}

// matureIn is how long until then, 0 if mature.
func (w *watch) matureIn(now, quarantine time.Duration) time.Duration {
	if !w.answered || w.mature(now, quarantine) {
		return 0
	}
	return w.since + quarantine - now
}

func (w *watch) status(name string, now, quarantine time.Duration) NodeStatus {
	s := NodeStatus{
		Name: name, Up: w.answered && w.lastErr == nil, Unfit: w.unfit,
		Mature: w.mature(now, quarantine), MatureIn: w.matureIn(now, quarantine),
		RunID: w.runID, Latency: w.latency, LastReply: -1, Err: w.lastErr, Errors: maps.Clone(w.errors),
	}
	if w.answered {
		s.LastReply = now - w.lastReply
	}
	return s
}
