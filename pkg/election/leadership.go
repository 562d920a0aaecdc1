package election

import "time"

// Role is what a candidate is at an instant.
type Role string

// The roles.
const (
	Active  Role = "active"
	Standby Role = "standby"
)

// Leadership is what a candidate can say of its lock at one instant. It is a
// value: it does not change, and it is right only for the instant AsOf, so ask
// again rather than keep it.
type Leadership struct {
	Lock     string
	Identity string
	Role     Role
	// Holder is the identity of whoever holds the lease as far as this candidate
	// knows: itself, what the nodes answered last and is not yet expired, or empty.
	Holder string
	// FencingToken grows with every term; 0 unless active, or with fencing off.
	FencingToken uint64
	// Term is random and unique to the term; empty unless holding.
	Term string
	// Since is the wall-clock time at which this candidate took its role.
	Since time.Time
	// ValidFor is how much longer the candidate is active if no renewal succeeds;
	// 0 unless active.
	ValidFor time.Duration
	Quorum   Quorum
	// Draining says that the workload is about to be stopped: the candidate keeps a lease
	// that it holds, is not active, and does not contend.
	Draining bool
	// Reason says why a standby is not active; empty when active.
	Reason string
	// AsOf is the wall-clock time of this answer.
	AsOf time.Time
}

// Active reports whether the candidate was active at AsOf.
func (l Leadership) Active() bool { return l.Role == Active }

// Quorum tells how many votes the own lease has.
type Quorum struct {
	Size   int // configured nodes
	Needed int // votes that make a lease
	Held   int // valid votes of the own lease
}

// EventKind names what happened. The values are the reasons of the Kubernetes
// events made from them.
type EventKind string

// The kinds of events.
const (
	LeaderElected       EventKind = "LeaderElected"
	LeaderLost          EventKind = "LeaderLost"
	LeaderReleased      EventKind = "LeaderReleased"
	RedisQuorumLost     EventKind = "RedisQuorumLost"
	RedisQuorumRegained EventKind = "RedisQuorumRegained"
	NodeUnfit           EventKind = "NodeUnfit"
	PauseDetected       EventKind = "PauseDetected"
)

// Event is something that people want to be told of.
type Event struct {
	Kind    EventKind
	Message string
	// FencingToken is that of the term the event is about, or 0.
	FencingToken uint64
}
