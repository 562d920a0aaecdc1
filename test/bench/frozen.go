package main

import (
	"context"
	"fmt"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/test/redistest"
)

// block is how many rounds run between two changes of which node is frozen.
const block = 25

// measureFrozen holds one lease throughout and takes others, with each node frozen
// in turn and healthy blocks in between, so that the machine's noise hits both.
func measureFrozen(ctx context.Context, set settings, rep *report) error {
	return withRig(func(r *rig) error {
		servers := r.servers(3)
		c := podlease(ourName, newLocker(r, servers, redlock.Options{TTL: set.ttl, Identity: "bench"}))
		kept, err := c.take(ctx, "kept")
		if err != nil {
			return fmt.Errorf("take the lease to keep: %w", err)
		}
		var healthy timings
		frozen := make([]timings, len(servers))
		if err := healthy.rounds(ctx, c, kept, "warm-up"); err != nil {
			return err
		}
		healthy = timings{}
		for done := 0; done < set.rounds; done += block {
			for i, s := range servers {
				if err := healthy.rounds(ctx, c, kept, fmt.Sprintf("healthy-%d-%d", i, done)); err != nil {
					return err
				}
				s.Freeze()
				err := frozen[i].rounds(ctx, c, kept, fmt.Sprintf("frozen-%d-%d", i, done))
				s.Thaw()
				if err != nil {
					return err
				}
				catchUp(ctx, s)
			}
		}
		rep.frozen(healthy, frozen)
		return nil
	})
}

// catchUp waits until a thawed server has worked off what it was sent.
func catchUp(ctx context.Context, s *redistest.Server) {
	_ = s.Client().Ping(ctx).Err()
}

// rounds renews the kept lease and takes a new one, a block of times.
func (t *timings) rounds(ctx context.Context, c contender, kept held, name string) error {
	for i := range block {
		t.renewal(ctx, kept)
		if h, ok := t.take(ctx, c, fmt.Sprintf("%s-%d", name, i)); ok {
			discard(ctx, h)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (rep *report) frozen(healthy timings, frozen []timings) {
	rep.addTimings("healthy", healthy)
	lost := healthy.renew.failed
	for i, t := range frozen {
		state := fmt.Sprintf("node %d frozen", i+1)
		rep.addTimings(state, t)
		rep.ratio("acquire", state, t.acquire, healthy.acquire)
		rep.ratio("renew", state, t.renew, healthy.renew)
		lost += t.renew.failed
	}
	rep.aim("renewals of the kept lease that failed", float64(lost), 0)
}

func (rep *report) addTimings(state string, t timings) {
	rep.add(t.acquire.result(result{Measure: "acquire", Library: ourName, Nodes: 3, State: state}))
	rep.add(t.renew.result(result{Measure: "renew", Library: ourName, Nodes: 3, State: state}))
}

func (rep *report) ratio(what, state string, got, base samples) {
	for _, q := range []float64{0.5, 0.99} {
		rep.aim(fmt.Sprintf("%s p%.0f, %s, times healthy", what, q*100, state), float64(got.quantile(q))/float64(base.quantile(q)), 1.3)
	}
}
