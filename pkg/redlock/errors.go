package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNoQuorum is wrapped when too few nodes confirmed a request in time. It says
	// nothing of who holds the lock.
	ErrNoQuorum = errors.New("no quorum")
	// ErrLost is wrapped when a lease is over: it ran out, was taken away, or was
	// released.
	ErrLost = errors.New("lease lost")
	// ErrHeld is wrapped when somebody else holds the lock.
	ErrHeld = errors.New("lock is held")
)

// HeldError is a lock that somebody else holds. It wraps ErrHeld.
type HeldError struct {
	// Lock is the name of the lock.
	Lock string
	// Holder is the identity of the holder, or "another Redlock client".
	Holder string
	// Remaining is how long the lease lives on if it is not renewed, as the nodes
	// said.
	Remaining time.Duration
}

// Error names the lock, who holds it and for how long.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lock %q: held by %s, for at most another %v", e.Lock, e.Holder, e.Remaining.Round(time.Millisecond))
}

// Unwrap returns ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// QuorumError is a round that got too few votes. It wraps ErrNoQuorum and the
// errors of the nodes.
type QuorumError struct {
	// Lock is the name of the lock.
	Lock string
	// Got is how many votes there were, Needed how many make a quorum of the Size nodes
	// that are configured.
	Got, Needed, Size int
	// Reason is why more votes could not be had, or empty.
	Reason string
	// Nodes are the errors of the nodes that did not vote, most of them *NodeError.
	Nodes []error
}

// Error tells the votes, the reason and what each node said.
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q: no quorum: %d of %d votes, %d needed", e.Lock, e.Got, e.Size, e.Needed)
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	for _, err := range e.Nodes {
		b.WriteString("; " + err.Error())
	}
	return b.String()
}

// Unwrap returns ErrNoQuorum and what the nodes answered.
func (e *QuorumError) Unwrap() []error { return append([]error{ErrNoQuorum}, e.Nodes...) }
