package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/test/redistest"
)

const (
	orphanCycles = 60
	orphanDelay  = 25 * time.Millisecond
	orphanTTL    = 30 * time.Second // longer than the cycles take
)

// reproduceOrphans takes and releases locks in order on five nodes, three of them
// behind a jittery network, and counts the locks whose key is still on some node
// afterwards: a release on one connection overtook the set on another, and whoever
// wants the lock next finds these nodes taken for a whole TTL.
func reproduceOrphans(ctx context.Context, _ settings, rep *report) error {
	return withRig(func(r *rig) error {
		servers := r.servers(5)
		ways := map[string]string{}
		for i, s := range servers {
			ways[s.Addr()] = s.Addr()
			if i < 3 {
				ways[s.Addr()] = jitter(r, s.Addr(), orphanDelay)
			}
		}
		through := func(addr string) string { return ways[addr] }
		locker, err := redlock.New(podleaseNodes(r, servers, through), redlock.Options{TTL: orphanTTL, Identity: "bench", KeyPrefix: "podlease:"})
		if err != nil {
			return err
		}
		fast := redsyncContender("redsync fail-fast", newRedsync(r, servers, through), redsync.WithExpiry(orphanTTL), redsync.WithFailFast(true))
		patient := redsyncContender("redsync", newRedsync(r, servers, through), redsync.WithExpiry(orphanTTL))
		for _, c := range []contender{podlease(ourName, locker), fast, patient} {
			left, err := orphansOf(ctx, c, servers)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			rep.figure("orphaned locks", c.name, len(servers), "0 to 25 ms jitter on 3", orphanCycles, float64(left), fmt.Sprintf("of %d", orphanCycles))
			if c.name == ourName {
				rep.aim("orphaned locks of podlease", float64(left), 0)
			}
		}
		return nil
	})
}

func orphansOf(ctx context.Context, c contender, servers []*redistest.Server) (left int, err error) {
	for i := range orphanCycles {
		h, err := c.take(ctx, fmt.Sprintf("%s:%d", c.name, i))
		if err != nil {
			return 0, err
		}
		if err := h.release(ctx); err != nil {
			return 0, err
		}
	}
	sleep(ctx, 10*orphanDelay) // everything has arrived by then
	locks := map[string]bool{}
	for _, s := range servers {
		keys, err := s.Client().Keys(ctx, "*"+c.name+":*[0-9]").Result()
		if err != nil {
			return 0, err
		}
		for _, key := range keys {
			locks[key] = true
		}
	}
	return len(locks), nil
}
