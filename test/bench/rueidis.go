package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/test/link"
	"github.com/podlease/podlease/test/redistest"
)

// validity is rueidislock's default, and the TTL for podlease beside it.
const validity = 5 * time.Second

// duel is two users of one lock on one node: the first reaches it over a link that
// can be cut, the second directly.
type duel struct {
	name string
	key  string // the lock's, on the node
	// hold takes the lock over the link, and closes ended when its holder is told
	// that it does not hold it any more.
	hold func(ctx context.Context) (ended <-chan struct{}, err error)
	// wait takes the lock directly, and returns when it has it.
	wait func(ctx context.Context) error
}

// duels are rueidislock and podlease, each with connections of its own.
func duels(r *rig, server *redistest.Server, way *link.Link) ([]duel, error) {
	theirs, err := rueidisDuel(r, server, way)
	if err != nil {
		return nil, err
	}
	ours, err := podleaseDuel(r, server, way)
	return []duel{ours, theirs}, err
}

func rueidisDuel(r *rig, server *redistest.Server, way *link.Link) (duel, error) {
	var lockers []rueidislock.Locker
	for _, addr := range []string{way.Addr(), server.Addr()} {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
			KeyMajority:  1, // one key on one node
		})
		if err != nil {
			return duel{}, fmt.Errorf("rueidislock: %w", err)
		}
		r.Cleanup(l.Close)
		lockers = append(lockers, l)
	}
	return duel{
		name: "rueidislock", key: "rueidislock:0:duel",
		hold: func(ctx context.Context) (<-chan struct{}, error) {
			held, release, err := lockers[0].WithContext(ctx, "duel")
			if err != nil {
				return nil, err
			}
			r.Cleanup(release)
			return held.Done(), nil
		},
		wait: func(ctx context.Context) error {
			_, release, err := lockers[1].WithContext(ctx, "duel")
			if err == nil {
				r.Cleanup(release)
			}
			return err
		},
	}, nil
}

func podleaseDuel(r *rig, server *redistest.Server, way *link.Link) (duel, error) {
	var lockers []*redlock.Locker
	for _, through := range []func(string) string{func(string) string { return way.Addr() }, nil} {
		l, err := redlock.New(podleaseNodes(r, []*redistest.Server{server}, through), redlock.Options{TTL: validity, Identity: "bench", KeyPrefix: "podlease:"})
		if err != nil {
			return duel{}, err
		}
		lockers = append(lockers, l)
	}
	return duel{
		name: ourName, key: "podlease:duel",
		hold: func(ctx context.Context) (<-chan struct{}, error) {
			lease, err := lockers[0].Acquire(ctx, "duel")
			if err != nil {
				return nil, err
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = lease.Keep(ctx)
			}()
			return ended, nil
		},
		wait: func(ctx context.Context) error {
			_, err := lockers[1].Acquire(ctx, "duel")
			return err
		},
	}, nil
}

// reproduceTwoHolders cuts the holder off, and compares when it is told that it lost
// the lock with when the other one has it.
func reproduceTwoHolders(ctx context.Context, _ settings, rep *report) error {
	return eachDuel(ctx, 0, func(ctx context.Context, d duel, way *link.Link, _ *redistest.Server) error {
		ended, won, err := d.cutOff(ctx, way)
		if err != nil {
			return err
		}
		start, err := first(ctx, won)
		if err != nil {
			return err
		}
		end, err := first(ctx, ended)
		if err != nil {
			return err
		}
		both := max(end-start, 0)
		rep.figure("both hold the lock", d.name, 1, "holder cut off", 1, ms(both), "ms")
		if d.name == ourName {
			rep.aim("podlease: two holders, in ms", ms(both), 0)
		}
		return nil
	})
}

const (
	volatileKeys  = 200_000
	takeoverLimit = 20 * time.Second
)

// reproduceLateTakeover cuts the holder off and measures how long after the lock ran
// out the other one has it, on a node with many other keys that have an expiry: Redis
// removes an expired key when somebody asks for it, or when its sampling happens to
// find it, and only then tells those who wait for its removal.
func reproduceLateTakeover(ctx context.Context, _ settings, rep *report) error {
	return eachDuel(ctx, volatileKeys, func(ctx context.Context, d duel, way *link.Link, server *redistest.Server) error {
		_, won, err := d.cutOff(ctx, way)
		if err != nil {
			return err
		}
		left, err := server.Client().PTTL(ctx, d.key).Result()
		if err != nil || left <= 0 {
			return fmt.Errorf("%s: the lock's key %s lives for %v: %w", d.name, d.key, left, err)
		}
		expired := boottime.Now() + left
		late, state := takeoverLimit, "not taken over in time"
		limited, cancel := context.WithTimeout(ctx, left+takeoverLimit)
		defer cancel()
		if at, err := first(limited, won); err == nil {
			late, state = at-expired, "taken over"
		}
		rep.figure("take-over after expiry", d.name, 1, state, 1, ms(late), "ms")
		if d.name == ourName {
			rep.aim("podlease: take-over after expiry, in ms", ms(late), 100)
		}
		return ctx.Err()
	})
}

// eachDuel lets each of the duels play on a node that has so many other keys.
func eachDuel(ctx context.Context, keys int, play func(ctx context.Context, d duel, way *link.Link, server *redistest.Server) error) error {
	return withRig(func(r *rig) error {
		server := r.servers(1)[0]
		if err := fill(ctx, server, keys); err != nil {
			return fmt.Errorf("fill the node: %w", err)
		}
		way := link.Start(r, server.Addr())
		list, err := duels(r, server, way)
		if err != nil {
			return err
		}
		r.Cleanup(way.Mend) // before the rest is cleared up
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for _, d := range list {
			way.Mend()
			if err := play(ctx, d, way, server); err != nil {
				return err
			}
		}
		return nil
	})
}

// cutOff lets the first take the lock and the second wait for it, and cuts the first
// off. It returns where the times come from at which the first was told that it lost
// the lock, and at which the second had it.
func (d duel) cutOff(ctx context.Context, way *link.Link) (ended, won <-chan time.Duration, err error) {
	lost, err := d.hold(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: take the lock: %w", d.name, err)
	}
	ended = timed(func() bool { <-lost; return true })
	won = timed(func() bool { return d.wait(ctx) == nil })
	sleep(ctx, validity/5) // the other one waits by now
	way.Cut()
	sleep(ctx, validity/50) // what was under way has arrived
	return ended, won, ctx.Err()
}

// timed tells when f returned true.
func timed(f func() bool) <-chan time.Duration {
	at := make(chan time.Duration, 1)
	go func() {
		if f() {
			at <- boottime.Now()
		}
	}()
	return at
}

func first(ctx context.Context, at <-chan time.Duration) (time.Duration, error) {
	select {
	case t := <-at:
		return t, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// fill sets so many keys that expire in an hour.
func fill(ctx context.Context, server *redistest.Server, keys int) error {
	const batch = 1000
	for done := 0; done < keys; done += batch {
		pipe := server.Client().Pipeline()
		for i := range batch {
			pipe.Set(ctx, fmt.Sprintf("other:%d", done+i), "", time.Hour)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
