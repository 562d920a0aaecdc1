package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/podlease/podlease/test/redistest"
)

const (
	commandNodes = 3
	// commandTTL is shorter than that of the other measures, so that several fit.
	commandTTL  = 4 * time.Second
	commandTTLs = 5
	standbys    = 4
)

// measureCommands counts what clients send to the nodes: first a holder alone, then
// with standbys. Counts come from MONITOR, which tells commands of clients from
// those that scripts execute; INFO's counters add up both.
func measureCommands(ctx context.Context, _ settings, rep *report) error {
	for _, library := range []struct {
		name string
		join joiner
	}{{ourName, joinPodlease}, {"redsync fail-fast", joinRedsync}} {
		holder, standby, err := countCommands(ctx, library.join)
		if err != nil {
			return fmt.Errorf("%s: %w", library.name, err)
		}
		for who, n := range map[string]float64{"holder": holder, "standby": standby} {
			rep.add(result{Measure: "commands", Library: library.name, Nodes: commandNodes, State: who, Count: commandTTLs,
				Unit: "per node and TTL", P50: n, P99: n, Max: n})
		}
		if library.name == ourName {
			rep.aim("commands of a standby per node and TTL", standby, 1.5)
		}
	}
	return nil
}

// joiner makes one more candidate take part until the measure ends.
type joiner func(ctx context.Context, r *rig, servers []*redistest.Server, id int) error

func countCommands(ctx context.Context, join joiner) (holder, standby float64, err error) {
	err = withRig(func(r *rig) error {
		servers := r.servers(commandNodes)
		for i := range 1 + standbys {
			if err := join(ctx, r, servers, i); err != nil {
				return err
			}
			if i == 0 {
				if holder, err = perNodeAndTTL(ctx, servers); err != nil {
					return err
				}
			}
		}
		all, err := perNodeAndTTL(ctx, servers)
		standby = (all - holder) / standbys
		return err
	})
	return holder, standby, err
}

// perNodeAndTTL counts for a few TTLs.
func perNodeAndTTL(ctx context.Context, servers []*redistest.Server) (float64, error) {
	sleep(ctx, commandTTL) // what joining costs is not counted
	var count atomic.Int64
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range servers {
		if err := monitor(ctx, s.Addr(), &count); err != nil {
			return 0, err
		}
	}
	sleep(ctx, commandTTLs*commandTTL)
	return float64(count.Load()) / float64(commandTTLs*len(servers)), ctx.Err()
}

var errMonitor = errors.New("MONITOR was refused")

// monitor counts the commands that clients send to a server, until ctx ends.
func monitor(ctx context.Context, addr string, count *atomic.Int64) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	if !lines.Scan() || lines.Text() != "+OK" {
		return fmt.Errorf("%s: %w: %s", addr, errMonitor, lines.Text())
	}
	go func() {
		for lines.Scan() {
			if !strings.Contains(lines.Text(), " lua] ") { // +1764.5 [0 lua] "get" "key"
				count.Add(1)
			}
		}
	}()
	return nil
}

func joinPodlease(ctx context.Context, r *rig, servers []*redistest.Server, id int) error {
	_, err := startCandidate(ctx, r, servers, "commands", commandTTL, fmt.Sprintf("candidate-%d", id))
	return err
}

// joinRedsync waits for the lock as redsync does, and renews it as often as podlease
// would, since redsync leaves that to its user.
func joinRedsync(ctx context.Context, r *rig, servers []*redistest.Server, _ int) error {
	mutex := newRedsync(r, servers, nil).NewMutex("commands", redsync.WithExpiry(commandTTL), redsync.WithFailFast(true))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if mutex.LockContext(ctx) == nil {
				keep(ctx, mutex)
			}
		}
	}()
	r.Cleanup(func() { cancel(); <-ended })
	return nil
}

func keep(ctx context.Context, mutex *redsync.Mutex) {
	for ctx.Err() == nil {
		sleep(ctx, commandTTL/5)
		if ok, _ := mutex.ExtendContext(ctx); !ok {
			return
		}
	}
}
