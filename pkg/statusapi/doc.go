// Package statusapi answers over HTTP for one candidate: the read-only endpoints that
// anybody in the Pod's network may ask, the control verbs on loopback, and metrics.
//
// Nothing is cached. Each answer is computed from the clock and the deadline after
// the request was read, so a process that was frozen, suspended or cut off answers
// that it is not active before it has spoken to anyone. An answer is right as of its
// asOf; for how long after that it may be relied on is its validForMs.
package statusapi

import (
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// Source is what the read-only endpoints answer from. *election.Candidate is one.
type Source interface {
	// Leadership answers as of now.
	Leadership() election.Leadership
	// Changed returns a channel that is closed at the next change other than the
	// passing of time.
	Changed() <-chan struct{}
	// Health tells how the candidate is doing.
	Health() election.Health
	// Nodes tells what is known of each node.
	Nodes() []election.NodeState
}

// Verbs are what the control endpoints do. *election.Candidate has them. A verb that
// makes no sense now returns an *election.RefusedError.
type Verbs interface {
	Drain() error
	StepDown(pause time.Duration) error
	Pause() error
	Resume() error
	Stopped() error
}
