package fencing_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/podlease/podlease/pkg/fencing"
)

func TestGuard(t *testing.T) {
	for name, test := range map[string]struct {
		oncePerTerm bool
		tokens      []uint64
		accepted    []uint64
	}{
		"a term may write several times":                   {tokens: []uint64{7, 7, 7}, accepted: []uint64{7, 7, 7}},
		"an older term is refused, also twice":             {tokens: []uint64{7, 9, 7, 8, 9}, accepted: []uint64{7, 9, 9}},
		"a term may write once":                            {oncePerTerm: true, tokens: []uint64{7, 7, 9, 9}, accepted: []uint64{7, 9}},
		"an older term is refused where it may write once": {oncePerTerm: true, tokens: []uint64{9, 7}, accepted: []uint64{9}},
		"no token is refused":                              {tokens: []uint64{0, 1, 0}, accepted: []uint64{1}},
		"a token that cannot be one shuts nobody out":      {tokens: []uint64{fencing.MaxToken + 1, 7, 1<<64 - 1, 8}, accepted: []uint64{7, 8}},
		"the greatest token is one":                        {tokens: []uint64{fencing.MaxToken}, accepted: []uint64{fencing.MaxToken}},
	} {
		t.Run(name, func(t *testing.T) {
			guard := fencing.Guard{OncePerTerm: test.oncePerTerm}
			var accepted []uint64
			for _, token := range test.tokens {
				_ = guard.Do(token, func() error {
					accepted = append(accepted, token)
					return nil
				})
			}
			if !slices.Equal(accepted, test.accepted) {
				t.Errorf("of the tokens %v wrote %v, want %v", test.tokens, accepted, test.accepted)
			}
		})
	}
}

func TestGuardSaysWhyItRefuses(t *testing.T) {
	guard := fencing.Guard{OncePerTerm: true}
	guard.Remember(9)
	for _, test := range []struct {
		token uint64
		want  string
	}{
		{7, "fencing token 7 is older than 9, the greatest one seen here: a newer holder has written since; stop, and ask for the leadership again before acting"},
		{9, "fencing token 9 has been used, and each term may write once: look at what was written instead of writing again"},
		{0, "fencing token 0: want 1 to 9007199254740991; 0 is what a sidecar answers that is not active, or has --fencing=off"},
		{10, ""},
	} {
		err := guard.Check(test.token)
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("token %d: %v, want %q", test.token, err, test.want)
		}
	}
	stale, ok := errors.AsType[*fencing.StaleError](guard.Check(3))
	if !ok || stale.Token != 3 || stale.Greatest != 10 {
		t.Errorf("a refusal of 3 after 10 is %+v", stale)
	}
}

func TestGuardReturnsWhatTheWriteReturns(t *testing.T) {
	guard := fencing.Guard{OncePerTerm: true}
	full := errors.New("disk full")
	if err := guard.Do(7, func() error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v, want the write's error", err)
	}
	if err := guard.Check(7); err == nil {
		t.Error("a write that came back with an error may have landed: its token has to count as used")
	}
}

func TestGuardRemembersNothingSmaller(t *testing.T) {
	var guard fencing.Guard
	guard.Remember(9)
	guard.Remember(7)
	if guard.Greatest() != 9 {
		t.Errorf("the greatest token is %d, want 9", guard.Greatest())
	}
}

// An accepted write that takes its time must not land after a newer one: the newer one
// waits for it.
func TestGuardLetsNoWriteBeOvertaken(t *testing.T) {
	var guard fencing.Guard
	var landed []uint64
	var newer sync.WaitGroup
	write := func(token uint64) func() error {
		return func() error {
			landed = append(landed, token)
			return nil
		}
	}
	err := guard.Do(7, func() error {
		newer.Go(func() { _ = guard.Do(9, write(9)) })
		for range 10_000 {
			runtime.Gosched() // the newer one has every opportunity
		}
		if guard.Greatest() != 7 {
			t.Error("to ask for the greatest token must not wait for a write, and a newer one must")
		}
		return write(7)()
	})
	newer.Wait()
	if err != nil || !slices.Equal(landed, []uint64{7, 9}) {
		t.Errorf("landed: %v, want 7 before 9", landed)
	}
}

func TestGuardIsSafeForConcurrentUse(t *testing.T) {
	var guard fencing.Guard
	var landed []uint64 // guarded by the guard: the race detector watches it
	var all sync.WaitGroup
	for token := range uint64(200) {
		all.Go(func() {
			_ = guard.Do(token+1, func() error {
				landed = append(landed, token+1)
				return nil
			})
		})
	}
	all.Wait()
	if !slices.IsSorted(landed) || guard.Greatest() != 200 || landed[len(landed)-1] != 200 {
		t.Errorf("tokens landed in the order %v", landed)
	}
}
