// Package election runs one candidate of a lock: it contends, renews, drains and
// steps down, and tells at any instant whether it is active.
package election

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/redlock"
)

// Config is what a candidate needs to know. Zero values of optional fields are
// documented with the field.
type Config struct {
	Lock     string
	Identity string

	// Priority, -100 to 100: a candidate of lower priority starts contending later
	// by a part of the TTL. It never takes a held lease away.
	Priority int
	// NativeSidecar says that the end of Run's context means that the workload has
	// already ended.
	NativeSidecar bool
	// DrainTimeout is how long to wait at the end for a workload to be seen stopped.
	DrainTimeout time.Duration

	// Publisher is told of role changes and waited for, at most one second, at the
	// end of a term; nil when nobody publishes.
	Publisher Publisher
	// Workload tells whether the workload runs and is healthy; nil when it cannot be
	// seen.
	Workload Workload
	// Tokens makes fencing tokens elsewhere than on the nodes; nil uses the nodes'.
	Tokens TokenSource
	// OnEvent is called for each event, in order, and must not block; may be nil.
	OnEvent func(Event)
	Log     logr.Logger
}

// Publisher tells the outside world of the role, for example in a Pod's label.
type Publisher interface {
	// Sync returns when what was published agrees with the candidate's role, or
	// with an error when ctx ends before.
	Sync(ctx context.Context) error
}

// Workload is the program that acts while the candidate is active.
type Workload interface {
	// Healthy reports whether the workload is fit to act, and if not, why.
	Healthy() (bool, string)
	// Stopped reports whether the workload was seen to have stopped acting.
	Stopped() bool
}

// TokenSource makes fencing tokens outside the nodes.
type TokenSource interface {
	// Next returns a token greater than all it returned before, to anybody.
	Next(ctx context.Context) (uint64, error)
}

// Candidate takes part in the election of one lock.
type Candidate struct{}

// Health is what the liveness and readiness of a candidate are judged by.
type Health struct {
	// SinceLoop is how long ago the election loop last ran.
	SinceLoop time.Duration
	// SinceQuorum is how long ago a quorum of fit nodes had answered; negative when
	// never.
	SinceQuorum time.Duration
	// TTL is the lease's, the measure for both.
	TTL time.Duration
}

// Stats are counters and last values for metrics.
type Stats struct {
	ToActive, ToStandby uint64            // transitions
	Attempts            map[string]uint64 // by result: acquired, held, split, no-quorum, error
	Pauses              uint64
	LastRenew           time.Time
}

// New makes a candidate. It does nothing until Run.
func New(locker *redlock.Locker, cfg Config) (*Candidate, error) { panic("stub") }

// Run takes part in the election until ctx ends, and then ends the term in order.
// It returns nil after an orderly end, and an error wrapping ErrUnfit when the nodes
// can never make a quorum of fit nodes.
func (c *Candidate) Run(ctx context.Context) error { panic("stub") }

// Leadership answers from the clock and the deadline as of now.
func (c *Candidate) Leadership() Leadership { panic("stub") }

// Changed returns a channel that is closed at the next change of what Leadership
// tells (other than the passing of time). Get the channel first, then ask.
func (c *Candidate) Changed() <-chan struct{} { panic("stub") }

// Drain stops being active, keeps the lease and does not contend.
func (c *Candidate) Drain() error { panic("stub") }

// StepDown stops being active, gives the lease up in order and does not contend
// for that long.
func (c *Candidate) StepDown(pause time.Duration) error { panic("stub") }

// Pause takes no part until Resume; a held lease is given up as in StepDown.
func (c *Candidate) Pause() error { panic("stub") }

// Resume ends Pause, Drain and a step-down's wait.
func (c *Candidate) Resume() error { panic("stub") }

// Stopped says that the workload has stopped acting, so a hand-over need not wait
// for the stop budget.
func (c *Candidate) Stopped() error { panic("stub") }

// SetPriority changes the priority for the next contention.
func (c *Candidate) SetPriority(p int) { panic("stub") }

// Health tells how the candidate is doing.
func (c *Candidate) Health() Health { panic("stub") }

// Nodes tells what is known of each node, in the configured order, with whether
// the own lease has a valid vote there.
func (c *Candidate) Nodes() []NodeState { panic("stub") }

// Stats tells what was counted since the start.
func (c *Candidate) Stats() Stats { panic("stub") }

// NodeState is a node's status with the own vote there.
type NodeState struct {
	redlock.NodeStatus
	// Voted reports whether the own lease has a valid vote at the node.
	Voted bool
}

// RefusedError is a control verb that makes no sense in the present state.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }
