package redlock

import "time"

// NodeStatus is what a Locker knows of one node.
type NodeStatus struct {
	Name string
	// Up reports whether the last request was answered.
	Up bool
	// Unfit says why the node is not counted (a replica, a cluster member, the
	// same server as another name, …); empty when it is fit or not yet known.
	Unfit string
	// Mature reports whether the node may grant a new lease to us; MatureIn is how
	// long until then, 0 if mature or unknown.
	Mature   bool
	MatureIn time.Duration
	// RunID is the server's own identifier from the last reply; empty before it.
	RunID string
	// Latency is the round trip of the last answered request, 0 before it.
	Latency time.Duration
	// LastReply is the age of the last answer; negative when there was none.
	LastReply time.Duration
	// Err is why the last request failed, nil if it was answered.
	Err error
	// Errors counts failed requests by kind since the start.
	Errors map[ErrorKind]uint64
}
