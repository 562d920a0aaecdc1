package workload_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/workload"
)

// run checks an app until the test ends, every 20 ms unless cfg says otherwise.
func run(t *testing.T, cfg workload.HealthConfig) *workload.Health {
	t.Helper()
	if cfg.Interval == 0 {
		cfg.Interval = 20 * time.Millisecond
	}
	h, err := workload.NewHealth(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		h.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return h
}

// eventually waits for what must come about; the test's own limit is its end.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("never: " + what)
		}
	}
}

func healthy(h *workload.Health) bool   { ok, _ := h.Healthy(); return ok }
func unhealthy(h *workload.Health) bool { return !healthy(h) }

// app answers with a status that the test sets, and counts how often it was asked.
type app struct {
	status atomic.Int32
	asked  atomic.Int32
}

func (a *app) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.asked.Add(1)
	w.Header().Set("Location", "http://example.invalid/")
	w.WriteHeader(int(a.status.Load()))
}

func (a *app) answers(status int) { a.status.Store(int32(status)) }

func TestStatuses(t *testing.T) {
	for status, want := range map[int]bool{200: true, 204: true, 302: true, 399: true, 400: false, 404: false, 500: false, 503: false} {
		a := &app{}
		a.answers(status)
		server := httptest.NewServer(a)
		h := run(t, workload.HealthConfig{URL: server.URL + "/healthz"})
		if want {
			eventually(t, "healthy", func() bool { return healthy(h) })
		} else {
			eventually(t, "asked again", func() bool { return a.asked.Load() > 1 })
			if ok, why := h.Healthy(); ok || !strings.Contains(why, http.StatusText(status)) {
				t.Errorf("%d: healthy %v, because %q", status, ok, why)
			}
		}
		server.Close()
	}
}

func TestNotHealthyBeforeTheFirstAnswer(t *testing.T) {
	h, err := workload.NewHealth(workload.HealthConfig{URL: "tcp://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if ok, why := h.Healthy(); ok || why != "starting" {
		t.Errorf("healthy %v, because %q", ok, why)
	}
	if h.Stopped() {
		t.Error("an app that was never looked at was seen to have stopped")
	}
}

func TestUnhealthyAfterFailuresInARowAndHealthyAfterOneSuccess(t *testing.T) {
	a := &app{}
	a.answers(200)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	var changes atomic.Int32
	h := run(t, workload.HealthConfig{URL: server.URL, Failures: 3, OnChange: func() { changes.Add(1) }})
	eventually(t, "healthy", func() bool { return healthy(h) })

	a.answers(500)
	before := a.asked.Load()
	eventually(t, "unhealthy", func() bool { return unhealthy(h) })
	if failures := a.asked.Load() - before; failures < 3 {
		t.Errorf("unhealthy after %d failures, want 3", failures)
	}
	a.answers(200)
	eventually(t, "healthy again", func() bool { return healthy(h) })
	if n := changes.Load(); n != 3 {
		t.Errorf("told of %d changes, want 3", n)
	}
}

func TestTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := run(t, workload.HealthConfig{URL: "tcp://" + ln.Addr().String(), Failures: 2})
	eventually(t, "healthy", func() bool { return healthy(h) })
	if h.Stopped() {
		t.Error("stopped while it listens")
	}
	ln.Close()
	eventually(t, "unhealthy", func() bool { return unhealthy(h) })
	if !h.Stopped() {
		t.Error("not stopped although nothing listens")
	}
}

func TestCertificateIsNotVerified(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	h := run(t, workload.HealthConfig{URL: server.URL})
	eventually(t, "healthy", func() bool { return healthy(h) })
}

func TestStoppedIsSeenSoonerThanTheInterval(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h := run(t, workload.HealthConfig{URL: server.URL, Interval: time.Hour})
	eventually(t, "healthy", func() bool { return healthy(h) })
	server.Close()
	eventually(t, "stopped", h.Stopped) // not within an hour, if asking did not hurry
}

// An app that is too busy to answer still runs.
func TestSilentAppHasNotStopped(t *testing.T) {
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	h := run(t, workload.HealthConfig{URL: server.URL})
	for range 3 {
		<-asked
	}
	if healthy(h) || h.Stopped() {
		t.Errorf("healthy %v, stopped %v", healthy(h), h.Stopped())
	}
}

func TestRedirects(t *testing.T) {
	var followed atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/local", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/broken", http.StatusFound) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		followed.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	local := run(t, workload.HealthConfig{URL: server.URL + "/local"})
	eventually(t, "redirect on the same host followed", func() bool { return followed.Load() > 1 })
	if healthy(local) {
		t.Error("healthy although what it redirects to is not")
	}
	away := run(t, workload.HealthConfig{URL: server.URL + "/away"})
	eventually(t, "redirect to another host taken as an answer", func() bool { return healthy(away) })
	loop := run(t, workload.HealthConfig{URL: server.URL + "/loop"})
	eventually(t, "loop found", func() bool { _, why := loop.Healthy(); return strings.Contains(why, "redirects") })
}

func TestTargets(t *testing.T) {
	for _, good := range []string{
		"http://127.0.0.1:8080/healthz", "http://localhost", "https://[::1]:8443/x?y=z", "tcp://127.0.0.1:5432", "tcp://localhost:1/",
	} {
		if _, err := workload.ParseTarget(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "127.0.0.1:80", "http://", "http://10.0.0.1/", "http://example.org/", "http://localhost.example.org/", "http://0.0.0.0/",
		"tcp://127.0.0.1", "tcp://127.0.0.1:1/path", "ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://127.0.0.1:x/",
	} {
		if _, err := workload.ParseTarget(bad); !errors.Is(err, workload.ErrTarget) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}
