//go:build unix

package guard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/cmd/podlease/guard"
	"github.com/podlease/podlease/pkg/boottime"
)

const (
	activeDocument  = `{"lock":"orders","active":true,"term":"one","fencingToken":42,"validForMs":7000,"since":"2026-11-30T10:00:00.123Z","asOf":"2026-11-30T10:00:00.123Z"}`
	standbyDocument = `{"lock":"orders","active":false,"term":"one","reason":"stepping down","since":"2026-11-30T10:00:00.123Z","asOf":"2026-11-30T10:00:00.123Z"}`
)

// fakeSidecar answers as told.
type fakeSidecar struct {
	mu     sync.Mutex
	answer func(http.ResponseWriter)
	events chan string
	verbs  []string
	status int // of verbs
	done   <-chan struct{}
}

func (f *fakeSidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.verbs = append(f.verbs, r.URL.RequestURI())
		w.WriteHeader(f.status)
	case r.URL.Query().Has("watch"):
		f.stream(w)
	default:
		f.mu.Lock()
		answer := f.answer
		f.mu.Unlock()
		answer(w)
	}
}

func (f *fakeSidecar) stream(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case document := <-f.events:
			fmt.Fprintf(w, ": still here\n\nevent: leadership\ndata: %s\n\n", document)
			_ = http.NewResponseController(w).Flush()
		case <-f.done:
			return
		}
	}
}

func (f *fakeSidecar) set(answer func(http.ResponseWriter)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func answers(status int, document string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Podlease-Stop-Budget", "2.5s")
		w.WriteHeader(status)
		fmt.Fprintln(w, document)
	}
}

// followed starts a sidecar and follows it.
func followed(t *testing.T) (*fakeSidecar, *guard.Sidecar, <-chan guard.Answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &fakeSidecar{answer: answers(200, activeDocument), events: make(chan string), status: http.StatusAccepted, done: ctx.Done()}
	server := httptest.NewServer(f)
	s := guard.NewSidecar(server.URL, server.URL, boottime.Now, logr.Discard())
	told := make(chan guard.Answer)
	var following sync.WaitGroup
	following.Go(func() {
		_ = s.Follow(ctx, func(a guard.Answer) {
			select {
			case told <- a:
			case <-ctx.Done():
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
		server.Close()
	})
	return f, s, told
}

// next is the next answer that is as wanted; others were on their way.
func next(t *testing.T, told <-chan guard.Answer, wanted func(guard.Answer) bool) guard.Answer {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		select {
		case a := <-told:
			if wanted(a) {
				return a
			}
		case <-end:
			t.Fatal("no such answer")
		}
	}
}

func TestAnswersOfASidecar(t *testing.T) {
	f, _, told := followed(t)
	before := boottime.Now()
	a := next(t, told, func(a guard.Answer) bool { return a.Sent > before })
	if a.Sent > boottime.Now() {
		t.Errorf("dated %v", a.Sent)
	}
	a.Sent = 0
	want := guard.Answer{Active: true, ValidFor: 7 * time.Second, StopBudget: 2500 * time.Millisecond, Term: "one", FencingToken: 42}
	if a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
	for name, bad := range map[string]func(http.ResponseWriter){
		"no document": answers(200, "<html>"), "another program": answers(200, `{"active":true}`),
		"no term": answers(200, `{"lock":"orders","active":true}`), "a proxy": answers(502, activeDocument),
	} {
		f.set(bad)
		if a := next(t, told, func(a guard.Answer) bool { return !a.Active }); a.Err == nil {
			t.Errorf("%s: %+v, want an error", name, a)
		}
		f.set(answers(200, activeDocument))
		next(t, told, func(a guard.Answer) bool { return a.Active })
	}
}

func TestAChangeIsToldAtOnceAlsoWhenNothingElseIs(t *testing.T) {
	f, _, told := followed(t)
	next(t, told, func(a guard.Answer) bool { return a.Active })
	f.set(func(http.ResponseWriter) { <-f.done }) // hangs
	f.events <- activeDocument                    // proves nothing: it may be old
	if a := next(t, told, func(a guard.Answer) bool { return a.Err != nil || !a.Active }); a.Err == nil {
		t.Errorf("%+v, want that there was no answer", a)
	}
	go func() { f.events <- standbyDocument }()
	if a := next(t, told, func(a guard.Answer) bool { return a.Err == nil && !a.Active }); a.Reason != "stepping down" {
		t.Errorf("%+v", a)
	}
}

func TestTheSidecarIsToldOfTheEnd(t *testing.T) {
	f, s, _ := followed(t)
	for _, last := range []bool{false, true} {
		if err := s.Ended(t.Context(), last); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"/v1/stopped", "/v1/step-down?for=2s", "/v1/stopped"}; !slices.Equal(f.verbs, want) {
		t.Errorf("asked for %q, want %q", f.verbs, want)
	}
	f.status = http.StatusConflict // there is no hand-over that waits
	if err := s.Ended(t.Context(), true); err != nil {
		t.Error(err)
	}
}

func TestWhenTheControlAddressIsWrongTheErrorNamesItAndTheFlag(t *testing.T) {
	f, s, _ := followed(t)
	wantErr := func(what, says string) {
		t.Helper()
		err := s.Ended(t.Context(), true)
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		for _, part := range []string{says, s.Control, "--sidecar-control"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %s", what, err, part)
			}
		}
	}
	f.status = http.StatusNotFound // something else listens there
	wantErr("not a control endpoint", "404")
	nobody := httptest.NewServer(f)
	nobody.Close()
	s.Control = nobody.URL
	wantErr("nobody listens", "refused")
}
