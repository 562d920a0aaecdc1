//go:build unix

package guard_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/cmd/podlease/guard"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

// own follows a candidate of its own over nodes that take that long to answer, until that
// many different answers have come, and returns why each was not active.
func own(t *testing.T, count int, trips ...time.Duration) (reasons []string) {
	t.Helper()
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) }
	var servers []*redlocktest.Server
	for i := range trips {
		servers = append(servers, redlocktest.NewServer(fmt.Sprint("node-", i+1), time.Hour))
	}
	nodes := redlocktest.Nodes(servers...)
	for i, trip := range trips {
		if trip == never {
			nodes[i].(*redlocktest.Node).Cut(true)
			continue
		}
		nodes[i].(*redlocktest.Node).Delay(func() time.Duration { return trip / 2 })
	}
	locker, err := redlock.New(nodes, redlock.Options{TTL: 10 * time.Second, KeyPrefix: "podlease:", Identity: "me", Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	candidate, err := election.New(locker, election.Config{Lock: "orders", Identity: "me", NativeSidecar: true, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	o := &guard.Own{Candidate: candidate, StopBudget: budget, Clock: clock}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan string)
	var following sync.WaitGroup
	following.Go(func() {
		if err := o.Follow(ctx, func(a guard.Answer) {
			select {
			case told <- a.Reason:
			case <-ctx.Done():
			}
		}); err != nil {
			t.Error(err)
		}
	})
	defer following.Wait()
	defer cancel()
	for len(reasons) < count {
		select {
		case r := <-told:
			if len(reasons) == 0 || reasons[len(reasons)-1] != r {
				reasons = append(reasons, r)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no other answer after %q", reasons)
		}
	}
	return reasons
}

const (
	ms = time.Millisecond
	// never is how long a node takes that does not answer.
	never time.Duration = -1
)

func TestACandidateThatHasJustStartedIsAsking(t *testing.T) {
	for name, tc := range map[string]struct {
		trips []time.Duration
		then  string
	}{
		"and has the lease":         {[]time.Duration{ms, 2 * ms, 3 * ms}, ""},
		"and one node is silent":    {[]time.Duration{never, 2 * ms, 3 * ms}, "contending"},
		"and too many nodes are so": {[]time.Duration{never, never, ms}, "no quorum: 1 of 3 nodes answered; node node-"},
		"and all nodes are so":      {[]time.Duration{never, never, never}, "no quorum: 0 of 3 nodes answered; node node-"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reasons := own(t, 2, tc.trips...)
				if reasons[0] != "asking the nodes" || !strings.HasPrefix(reasons[1], tc.then) || tc.then == "" && reasons[1] != "" {
					t.Errorf("%q, want that it asks, and then %q", reasons, tc.then)
				}
			})
		})
	}
}
