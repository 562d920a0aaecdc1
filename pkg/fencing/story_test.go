package fencing_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/fencing"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

// The client that is paused between asking and writing (Kleppmann, "How to do
// distributed locking", 2016), in virtual time with the default TTL of 10 s: it takes the
// lease at 0 s, hears that it is holding, stands still from there to 16 s, and writes.
func TestPausedClient(t *testing.T) {
	for name, test := range map[string]struct {
		fenced bool
		want   []string
	}{
		"without the check the old write lands": {false, []string{"second at 10 s", "first at 16 s"}},
		"with the check it does not":            {true, []string{"second at 10 s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				landed := tellPausedClient(t, test.fenced)
				if !slices.Equal(landed, test.want) {
					t.Errorf("landed: %q, want %q", landed, test.want)
				}
			})
		})
	}
}

func tellPausedClient(t *testing.T, fenced bool) (landed []string) {
	start := time.Now()
	var guard fencing.Guard
	write := func(who string, token uint64) {
		land := func() error {
			landed = append(landed, fmt.Sprintf("%s at %.0f s", who, time.Since(start).Truncate(time.Second).Seconds()))
			return nil
		}
		if !fenced {
			_ = land()
			return
		}
		_ = guard.Do(token, land)
	}

	nodes := servers(3)
	first, err := candidate(t, "first", start, nodes).TryAcquire(t.Context(), "orders")
	if err != nil || !first.Holding() {
		t.Fatalf("the first has no lease: %v", err)
	}
	second, err := candidate(t, "second", start, nodes).Acquire(t.Context(), "orders") // waits until the keys run out
	if err != nil || !second.Holding() {
		t.Fatalf("the second has no lease: %v", err)
	}
	if second.FencingToken() <= first.FencingToken() {
		t.Fatalf("tokens %d and then %d: they have to grow", first.FencingToken(), second.FencingToken())
	}
	write("second", second.FencingToken())
	time.Sleep(16*time.Second - time.Since(start))
	if first.Holding() {
		t.Fatal("the first is still holding at 16 s") // it had asked at 0 s, and asks no more
	}
	write("first", first.FencingToken())
	return landed
}

func servers(n int) []*redlocktest.Server {
	servers := make([]*redlocktest.Server, n)
	for i := range servers {
		servers[i] = redlocktest.NewServer(fmt.Sprintf("node-%d", i+1), time.Hour)
	}
	return servers
}

func candidate(t *testing.T, name string, start time.Time, nodes []*redlocktest.Server) *redlock.Locker {
	t.Helper()
	locker, err := redlock.New(redlocktest.Nodes(nodes...), redlock.Options{
		TTL: 10 * time.Second, StopBudget: 2500 * time.Millisecond, Quarantine: 31 * time.Second, KeyPrefix: "podlease:", Identity: name,
		Clock: func() time.Duration { return time.Since(start) + time.Hour },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return locker
}
