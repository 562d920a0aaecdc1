package statusapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/statusapi"
)

const (
	ok          = http.StatusOK
	unavailable = http.StatusServiceUnavailable
)

// states are what a candidate can be, with what the endpoints answer then.
var states = map[string]struct {
	is                            election.Leadership
	health                        election.Health
	leader, standby, ready, alive int
}{
	"active":             {activeLeadership(), healthy, ok, unavailable, ok, ok},
	"held by another":    {standbyLeadership("held by shop/b"), healthy, unavailable, ok, ok, ok},
	"contending":         {standbyLeadership("contending"), healthy, unavailable, ok, ok, ok},
	"contending again":   {standbyLeadership("contending; lease lost"), healthy, unavailable, ok, ok, ok},
	"draining":           {standbyLeadership("draining"), healthy, unavailable, unavailable, ok, ok},
	"paused":             {standbyLeadership("paused"), healthy, unavailable, unavailable, ok, ok},
	"stepped down":       {standbyLeadership("stepped down"), healthy, unavailable, unavailable, ok, ok},
	"stepping down":      {standbyLeadership("stepping down"), healthy, unavailable, unavailable, ok, ok},
	"shutting down":      {standbyLeadership("shutting down"), healthy, unavailable, unavailable, ok, ok},
	"app unhealthy":      {standbyLeadership("app unhealthy: refused"), healthy, unavailable, unavailable, ok, ok},
	"quarantine":         {standbyLeadership("nodes in quarantine, 12 s left"), healthy, unavailable, unavailable, ok, ok},
	"no quorum of late":  {standbyLeadership("held by shop/b"), with(func(h *election.Health) { h.SinceQuorum = 21 * time.Second }), unavailable, unavailable, unavailable, ok},
	"no quorum ever":     {standbyLeadership("no quorum: 1 of 3 nodes answered"), with(func(h *election.Health) { h.SinceQuorum = -1 }), unavailable, unavailable, unavailable, ok},
	"at the limit":       {standbyLeadership("held by shop/b"), with(func(h *election.Health) { h.SinceQuorum, h.SinceLoop = 20*time.Second, 20*time.Second }), unavailable, ok, ok, ok},
	"stuck":              {standbyLeadership("held by shop/b"), with(func(h *election.Health) { h.SinceLoop = 21 * time.Second }), unavailable, ok, ok, unavailable},
	"stuck while active": {activeLeadership(), with(func(h *election.Health) { h.SinceLoop = 21 * time.Second }), ok, unavailable, ok, unavailable},
}

func with(f func(*election.Health)) election.Health {
	h := healthy
	f(&h)
	return h
}

func TestStatusOfEachPathInEachState(t *testing.T) {
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			c := newCandidate(state.is)
			c.health = state.health
			h := statusapi.NewHandler(c, statusapi.NewMetrics(statusapi.Build{}))
			want := map[string]int{
				"/leader": state.leader, "/active": state.leader, "/standby": state.standby, "/readyz": state.ready, "/livez": state.alive,
				"/v1/leadership": ok, "/v1/leadership?watch=false": ok, "/metrics": ok, "/": ok,
			}
			for path, status := range want {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					if w := request(h, method, path); w.Code != status {
						t.Errorf("%s %s: status %d, want %d: %s", method, path, w.Code, status, w.Body)
					}
				}
			}
		})
	}
}

func TestLeadershipDocument(t *testing.T) {
	const active = `{"lock":"orders","identity":"shop/a","role":"active","active":true,"holder":"shop/a",` +
		`"fencingToken":1764495600123456,"term":"t-1","since":"2026-11-30T10:00:00.123Z","validForMs":6512,` +
		`"quorum":{"size":3,"needed":2,"held":3},"draining":false,"reason":"","asOf":"2026-11-30T10:00:03.001Z"}` + "\n"
	const standby = `{"lock":"orders","identity":"shop/a","role":"standby","active":false,"holder":"shop/b",` +
		`"fencingToken":0,"term":"","since":"2026-11-30T10:00:00.123Z","validForMs":0,` +
		`"quorum":{"size":3,"needed":2,"held":0},"draining":true,"reason":"draining","asOf":"2026-11-30T10:00:00.123Z"}` + "\n"
	overdrawn := standbyLeadership("draining")
	overdrawn.ValidFor, overdrawn.FencingToken = time.Second, 7 // has no meaning in a standby
	for want, is := range map[string]election.Leadership{active: activeLeadership(), standby: overdrawn} {
		h := statusapi.NewHandler(newCandidate(is), nil)
		for _, path := range []string{"/leader", "/active", "/standby", "/v1/leadership"} {
			w := request(h, http.MethodGet, path)
			if w.Body.String() != want {
				t.Errorf("%s: got  %swant %s", path, w.Body, want)
			}
			token := ""
			if is.Active() {
				token = "1764495600123456"
			}
			if got := w.Header().Get("Podlease-Fencing-Token"); got != token {
				t.Errorf("%s: header %q, want %q", path, got, token)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	h := statusapi.NewHandler(newCandidate(activeLeadership()), statusapi.NewMetrics(statusapi.Build{}))
	for _, path := range []string{"/leader", "/standby", "/readyz", "/livez", "/v1/leadership", "/", "/nothing"} {
		w := request(h, http.MethodGet, path)
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", path, got)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: Content-Type %q", path, got)
		}
		decode[map[string]any](t, w.Body.Bytes())
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	h := statusapi.NewHandler(newCandidate(activeLeadership()), statusapi.NewMetrics(statusapi.Build{}))
	for _, path := range []string{"/", "/leader", "/active", "/standby", "/readyz", "/livez", "/v1/leadership", "/metrics"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"} {
			w := request(h, method, path)
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: status %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
			decode[map[string]any](t, w.Body.Bytes())
		}
	}
}

func TestUnknownPaths(t *testing.T) {
	h := statusapi.NewHandler(newCandidate(activeLeadership()), nil)
	for _, path := range []string{"/nothing", "/leader/", "//leader", "/v1", "/v1/", "/LEADER", "/metrics"} {
		w := request(h, http.MethodGet, path)
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), path) {
			t.Errorf("%s: status %d, body %s", path, w.Code, w.Body)
		}
	}
}

func TestWhoAsksTheWrongAddressForAControlEndpointIsToldTheRightOne(t *testing.T) {
	h := statusapi.NewHandler(newCandidate(activeLeadership()), nil)
	for _, path := range []string{"/v1/drain", "/v1/step-down", "/v1/pause", "/v1/resume", "/v1/stopped"} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			w := request(h, method, path)
			if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "--control-listen") {
				t.Errorf("%s %s: status %d, body %s", method, path, w.Code, w.Body)
			}
		}
	}
}

func TestHolder(t *testing.T) {
	h := statusapi.NewHandler(newCandidate(standbyLeadership("held by shop/b")), nil)
	if got := request(h, http.MethodGet, "/").Body.String(); got != "{\"name\":\"shop/b\"}\n" {
		t.Errorf("got %s", got)
	}
	h = statusapi.NewHandler(newCandidate(election.Leadership{}), nil)
	if got := request(h, http.MethodGet, "/").Body.String(); got != "{\"name\":\"\"}\n" {
		t.Errorf("got %s", got)
	}
}

func TestEachAnswerIsComputedAnew(t *testing.T) {
	c := newCandidate(activeLeadership())
	h := statusapi.NewHandler(c, nil)
	if w := request(h, http.MethodGet, "/leader"); w.Code != ok {
		t.Fatalf("status %d", w.Code)
	}
	c.is = standbyLeadership("held by shop/b") // without telling of it
	if w := request(h, http.MethodGet, "/leader"); w.Code != unavailable {
		t.Fatalf("status %d after the role had changed", w.Code)
	}
}

func BenchmarkLeader(b *testing.B) {
	h := statusapi.NewHandler(newCandidate(activeLeadership()), nil)
	b.ReportAllocs()
	for b.Loop() {
		request(h, http.MethodGet, "/leader")
	}
}

func TestReadinessSaysOfEachNodeHowItIs(t *testing.T) {
	c := newCandidate(election.Leadership{Role: election.Active})
	body := request(statusapi.NewHandler(c, nil), http.MethodGet, "/readyz").Body.String()
	for _, want := range []string{
		`{"name":"well","ok":true,"detail":"answered 1s ago"}`,
		`{"name":"young","ok":true,"detail":"answers; in quarantine, grants a new lease in 12s"}`,
		`{"name":"replica","ok":false,"detail":"not counted: is a replica"}`,
		`{"name":"shut","ok":false,"detail":"WRONGPASS"}`,
		`{"name":"silent","ok":false,"detail":"has not answered yet"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
}

func TestEveryAnswerSaysTheStopBudget(t *testing.T) {
	h := statusapi.WithStopBudget(statusapi.NewHandler(newCandidate(standbyLeadership("paused")), nil), 2500*time.Millisecond)
	for _, path := range []string{"/v1/leadership", "/leader", "/nothing"} {
		if got := request(h, http.MethodGet, path).Header().Get("Podlease-Stop-Budget"); got != "2.5s" {
			t.Errorf("%s: stop budget %q", path, got)
		}
	}
}
