//go:build unix

package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// Own is the leadership of a candidate of the guard's own. The candidate must take the
// end of its context for the end of the workload (election.Config.NativeSidecar).
type Own struct {
	Candidate  *election.Candidate
	StopBudget time.Duration
	Clock      func() time.Duration
}

// Follow implements Leadership: it runs the candidate as well.
func (o *Own) Follow(ctx context.Context, tell func(Answer)) error {
	around, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- o.Candidate.Run(ctx)
	}()
	o.ask(around, tell)
	if err := <-ended; err != nil {
		return fmt.Errorf("hold the lease: %w", err)
	}
	return nil
}

func (o *Own) ask(ctx context.Context, tell func(Answer)) {
	for ctx.Err() == nil {
		changed := o.Candidate.Changed()
		a := Answer{Sent: o.Clock(), StopBudget: o.StopBudget}
		l := o.Candidate.Leadership()
		a.Active, a.ValidFor, a.Term, a.FencingToken, a.Reason = l.Active(), l.ValidFor, l.Term, l.FencingToken, l.Reason
		if !a.Active && o.asking(l.Quorum.Needed) {
			a.Reason = asking
		}
		tell(a)
		rest(ctx, changed, a)
	}
}

// asking is the reason of a candidate that has just started: that too few nodes answered
// would be true of it, and not why.
const asking = "asking the nodes"

// asking reports whether a quorum has not answered yet, and may still do so.
func (o *Own) asking(needed int) bool {
	answered, open := 0, 0
	for _, n := range o.Candidate.Nodes() {
		switch {
		case n.LastReply >= 0:
			answered++
		case n.Err == nil:
			open++
		}
	}
	return answered < needed && answered+open >= needed
}

// rest waits until it is time to ask again.
func rest(ctx context.Context, changed <-chan struct{}, last Answer) {
	timer := time.NewTimer(last.interval())
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Ended implements Leadership. After the last command the end of Follow gives the lease
// up.
func (o *Own) Ended(_ context.Context, last bool) error {
	if last {
		return nil
	}
	err := o.Candidate.Stopped()
	if _, refused := errors.AsType[*election.RefusedError](err); refused {
		return nil // there is no hand-over that could be waiting
	}
	return err
}
