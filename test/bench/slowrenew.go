package main

import (
	"context"
	"fmt"
	"time"
)

// slowRenewTTL is redsync's default.
const slowRenewTTL = 8 * time.Second

// reproduceSlowRenew takes a lock on three healthy nodes, freezes one and renews. A
// renewal that waits for the frozen node ends after the lock has run out.
func reproduceSlowRenew(ctx context.Context, _ settings, rep *report) error {
	return withRig(func(r *rig) error {
		servers := r.servers(3)
		for i, c := range contenders(r, servers, slowRenewTTL) {
			h, err := c.take(ctx, fmt.Sprintf("slow-%d", i))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			servers[2].Freeze()
			start := time.Now()
			err = h.renew(ctx)
			took := time.Since(start)
			servers[2].Thaw()
			state := "renewed"
			if err != nil {
				state = "lost"
			}
			rep.figure("renew, a node frozen", c.name, len(servers), state, 1, ms(took), "ms")
			if c.name == ourName {
				rep.aim("podlease's renewal with a node frozen, share of the TTL", float64(took)/float64(slowRenewTTL), 0.1)
			}
		}
		return nil
	})
}
