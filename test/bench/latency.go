package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/podlease/podlease/test/redistest"
)

const (
	warmup         = 20
	patientSamples = 5
)

// timings are what one contender's rounds took.
type timings struct {
	acquire, renew samples
}

// measureLatency times acquire and renew. Each round uses a key of its own: a key
// that a fail-fast release left behind must not count against the next acquire.
func measureLatency(ctx context.Context, set settings, rep *report) error {
	for _, n := range []int{3, 5} {
		err := withRig(func(r *rig) error {
			servers := r.servers(n)
			field := contenders(r, servers, set.ttl)
			if err := latencyIn(ctx, "healthy", field, servers, set, rep); err != nil {
				return err
			}
			servers[n-1].Freeze()
			defer servers[n-1].Thaw()
			return latencyIn(ctx, "one frozen", field, servers, set, rep)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func latencyIn(ctx context.Context, state string, field []contender, servers []*redistest.Server, set settings, rep *report) error {
	took := make([]timings, len(field))
	var patient sync.WaitGroup
	var quick []int
	for i, c := range field {
		if c.patient && state != "healthy" {
			patient.Go(func() { took[i] = patientRounds(ctx, c) })
			continue
		}
		quick = append(quick, i)
	}
	for round := range warmup + set.rounds {
		for turn := range quick {
			i := quick[(round+turn)%len(quick)]
			var t timings
			t.round(ctx, field[i], fmt.Sprintf("%s-%d-%d", state[:1], i, round))
			if round >= warmup {
				took[i].merge(t)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	patient.Wait()
	for i, c := range field {
		line := result{Library: c.name, Nodes: len(servers), State: state}
		line.Measure = "acquire"
		rep.add(took[i].acquire.result(line))
		line.Measure = "renew"
		rep.add(took[i].renew.result(line))
	}
	rep.compareAcquire(len(servers), state, field, took)
	return nil
}

// compareAcquire holds podlease's medians against the better one of redsync.
func (rep *report) compareAcquire(nodes int, state string, field []contender, took []timings) {
	var best time.Duration
	for i, c := range field {
		if p50 := took[i].acquire.quantile(0.5); !ours(c) && p50 > 0 && (best == 0 || p50 < best) {
			best = p50
		}
	}
	for i, c := range field {
		if ours(c) {
			rep.aim(fmt.Sprintf("acquire p50 on %d nodes, %s, in ms, %s against the faster redsync", nodes, state, c.name), ms(took[i].acquire.quantile(0.5)), ms(best))
		}
	}
}

func ours(c contender) bool { return c.name == ourName || c.name == unfenced }

// round takes, renews and releases one lock, with pauses, because in use nothing
// else is under way on the connections when a lease is taken or renewed.
func (t *timings) round(ctx context.Context, c contender, lock string) {
	if h, ok := t.take(ctx, c, lock); ok {
		t.renewal(ctx, h)
		discard(ctx, h)
	}
}

// pause is longer than what any library still does after its call has returned.
const pause = time.Millisecond

func (t *timings) take(ctx context.Context, c contender, lock string) (held, bool) {
	sleep(ctx, pause)
	start := time.Now()
	h, err := c.take(ctx, lock)
	t.acquire.add(time.Since(start), err)
	return h, err == nil
}

func (t *timings) renewal(ctx context.Context, h held) {
	sleep(ctx, pause)
	start := time.Now()
	err := h.renew(ctx)
	t.renew.add(time.Since(start), err)
}

// discard releases without waiting: a release that asks a frozen node as well takes
// its time, which is nobody's wait.
func discard(ctx context.Context, h held) {
	go func() { _ = h.release(ctx) }() // what fails runs out by itself
}

func (t *timings) merge(o timings) {
	t.acquire.merge(o.acquire)
	t.renew.merge(o.renew)
}

func (s *samples) merge(o samples) {
	s.took = append(s.took, o.took...)
	s.failed += o.failed
	s.failure = cmp.Or(s.failure, o.failure)
}

// patientRounds runs a few rounds at the same time, because each takes seconds.
func patientRounds(ctx context.Context, c contender) timings {
	var all timings
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range patientSamples {
		wg.Go(func() {
			var t timings
			t.round(ctx, c, fmt.Sprintf("patient-%d", i))
			mu.Lock()
			defer mu.Unlock()
			all.merge(t)
		})
	}
	wg.Wait()
	return all
}
