package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seed    = flag.Uint64("sim.seed", 0, "replay this seed only")
	first   = flag.Uint64("sim.first", 1, "the first seed")
	seeds   = flag.Uint64("sim.seeds", 100, "how many seeds to run")
	length  = flag.Duration("sim.length", 100*time.Second, "virtual time during which faults happen, a seed")
	kind    = flag.String("sim.world", "", "a special kind of world, see worlds; those that break an assumption show the harm")
	verbose = flag.Bool("sim.timeline", false, "print the timeline of -sim.seed although nothing is wrong")
	replays = flag.Uint64("sim.replays", 40, "how many seeds to run twice, to see that they take the same course")
	wallFor = flag.Duration("sim.for", 0, "go on with further seeds for that long, in real time")
)

// worlds are the settings that runs may start from.
var worlds = map[string]Setting{
	"":             {},
	"noquarantine": {NoQuarantine: true},
	"go-clock":     {GoClock: true},
	"swap-two":     {SwapTwo: true},
	"stall":        {Stall: true},
	"mid-round":    {Favour: "process pauses as it asks"},
	"late-replies": {Favour: "pauses in mid-round, then is cut off"},
	"slow":         {Favour: "slow election, then cut off"},
	"forgetful":    {Favour: "holder is cut off, then a majority restarts"},
	"freed-twice":  {Favour: "node freed twice"},
	"stale":        {Favour: "answer that went stale", Stall: true},
	"astray":       {Favour: "one server under all names"},
}

// setting is the one that flags ask for.
func setting(t *testing.T) Setting {
	t.Helper()
	set, ok := worlds[*kind]
	if !ok {
		t.Fatalf("-sim.world=%s: must be one of %q", *kind, slices.Sorted(maps.Keys(worlds)))
	}
	set.Length = *length
	return set
}

// play runs one seed in a bubble of virtual time.
func play(t *testing.T, set Setting) Result {
	t.Helper()
	var r Result
	synctest.Test(t, func(*testing.T) { r = Run(set) })
	return r
}

func report(t *testing.T, r Result) {
	t.Helper()
	if len(r.Violations) == 0 {
		return
	}
	lines := strings.Split(r.Timeline, "\n")
	if len(lines) > 120 {
		lines = append(append(lines[:20:20], fmt.Sprintf("             … %d lines …", len(lines)-120)), lines[len(lines)-100:]...)
	}
	t.Errorf("seed %d: %s\nreplay: go test ./test/sim -run 'TestSeeds$' -sim.seed=%d -sim.length=%v -sim.world=%s\n%s",
		r.Seed, strings.Join(r.Violations, "; "), r.Seed, *length, *kind, strings.Join(lines, "\n"))
}

// totals add up over seeds.
type totals struct {
	mu      sync.Mutex
	seeds   int
	virtual time.Duration
	terms   int
	refused int
}

func (s *totals) add(r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	s.virtual += r.Virtual
	s.terms += r.Terms
	s.refused += r.Refused
}

func (s *totals) String() string {
	return fmt.Sprintf("%d seeds, %.0f virtual seconds, %d terms, %d writes refused by their token", s.seeds, s.virtual.Seconds(), s.terms, s.refused)
}

// across runs seeds on all processors: so many, and then more until the time is over.
func across(t *testing.T, set Setting, from, count uint64, lasting time.Duration) {
	t.Helper()
	const workers = 2
	var sum totals
	end := time.Now().Add(lasting)
	t.Run("seeds", func(t *testing.T) {
		for k := range uint64(workers) {
			t.Run(fmt.Sprintf("worker-%d", k+1), func(t *testing.T) {
				t.Parallel()
				for s := from + k; s < from+count || time.Now().Before(end); s += workers {
					one := set
					one.Seed = s
					r := play(t, one)
					sum.add(r)
					report(t, r)
					if t.Failed() {
						return
					}
				}
			})
		}
	})
	t.Logf("from seed %d: %v", from, &sum)
}

// TestSeeds breaks everything that the assumptions allow to break.
func TestSeeds(t *testing.T) {
	set := setting(t)
	if *seed == 0 {
		across(t, set, *first, *seeds, *wallFor)
		return
	}
	set.Seed = *seed
	r := play(t, set)
	report(t, r)
	if *verbose {
		t.Log("\n" + r.Timeline)
	}
}

// TestWildSeeds breaks the assumptions as well: then only the tokens protect.
func TestWildSeeds(t *testing.T) {
	across(t, Setting{Length: *length, Wild: true}, *first, max(*seeds/10, 2), 0)
}

// TestSeedsReplayExactly runs seeds twice: a seed that fails must fail again.
func TestSeedsReplayExactly(t *testing.T) {
	for s := *first; s < *first+*replays; s++ {
		set := Setting{Seed: s, Length: 30 * time.Second}
		a, b := play(t, set), play(t, set)
		if a.History != b.History {
			t.Errorf("seed %d took another course the second time:\n%s", s, firstDifference(a.Timeline, b.Timeline))
		}
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return x[i] + "\n" + y[i]
		}
	}
	return fmt.Sprintf("%d lines and %d", len(x), len(y))
}
