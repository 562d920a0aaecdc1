package recorder_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podlease/podlease/test/recorder"
)

// fake is a candidate that is active with a token, or not with 0.
type fake struct{ token atomic.Uint64 }

func (f *fake) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	token := f.token.Load()
	if token == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Podlease-Fencing-Token", strconv.FormatUint(token, 10))
}

func watch(t *testing.T, fakes map[string]*fake) *recorder.Recorder {
	t.Helper()
	r := recorder.Start(time.Millisecond)
	for name, f := range fakes {
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		r.Watch(name, strings.TrimPrefix(s.URL, "http://"))
	}
	t.Cleanup(r.Stop)
	return r
}

func wait(t *testing.T, r *recorder.Recorder, who string, token uint64, answers int) recorder.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	run, err := r.Wait(ctx, func(run recorder.Run) bool { return run.Who == who && run.Token == token })
	if err != nil {
		t.Fatal(err)
	}
	for run.Answers < answers && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		for _, now := range r.Active() {
			if now.Who == who && now.Token == token {
				run = now
			}
		}
	}
	return run
}

func TestHandOverMakesTwoRunsThatDoNotOverlap(t *testing.T) {
	a, b := &fake{}, &fake{}
	r := watch(t, map[string]*fake{"a": a, "b": b})
	a.token.Store(1)
	wait(t, r, "a", 1, 3)
	a.token.Store(0)
	if err := r.WaitNone(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.token.Store(2)
	wait(t, r, "b", 2, 3)
	runs := r.Runs()
	if len(runs) != 2 || runs[0].Who != "a" || runs[1].Who != "b" {
		t.Fatalf("runs %v, want one of a and then one of b", runs)
	}
	if bad := recorder.Overlaps(runs); bad != nil {
		t.Errorf("overlaps: %v", bad)
	}
	if first := runs[0].Then; first.Sent < runs[0].Last.Received || first.Received > runs[1].First.Received { // b may have been asked before
		t.Errorf("a's run was ended by the answer of %v, want one after %v and before b's", first, runs[0])
	}
}

func TestTwoActiveCandidatesAreFound(t *testing.T) {
	a, b := &fake{}, &fake{}
	a.token.Store(1)
	b.token.Store(2)
	r := watch(t, map[string]*fake{"a": a, "b": b})
	wait(t, r, "a", 1, 20)
	wait(t, r, "b", 2, 20)
	r.Stop()
	if bad := recorder.Overlaps(r.Runs()); len(bad) != 1 {
		t.Errorf("overlaps %v, want one", bad)
	}
}

func TestNewTokenBeginsANewRun(t *testing.T) {
	a := &fake{}
	a.token.Store(1)
	r := watch(t, map[string]*fake{"a": a})
	wait(t, r, "a", 1, 1)
	a.token.Store(2)
	wait(t, r, "a", 2, 1)
	if runs := r.Runs(); len(runs) != 2 {
		t.Errorf("runs %v, want two", runs)
	}
}

func TestNameUsedAgainKeepsItsHistory(t *testing.T) {
	a := &fake{}
	a.token.Store(1)
	r := watch(t, map[string]*fake{"a": a})
	wait(t, r, "a", 1, 1)
	r.Unwatch("a")
	again := &fake{}
	again.token.Store(2)
	s := httptest.NewServer(again)
	t.Cleanup(s.Close)
	r.Watch("a", strings.TrimPrefix(s.URL, "http://"))
	wait(t, r, "a", 2, 1)
	if runs := r.Runs(); len(runs) != 2 || runs[0].Token != 1 || runs[1].Token != 2 {
		t.Errorf("runs %v, want one of token 1 and then one of token 2", runs)
	}
}
