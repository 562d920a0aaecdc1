package statusapi_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/statusapi"
)

// verbs notes what it was asked for, and acts on the candidate.
type verbs struct {
	c     *candidate
	asked []string
	err   error
}

func (v *verbs) do(verb string) error {
	v.asked = append(v.asked, verb)
	if v.err == nil {
		v.c.is = standbyLeadership(verb)
	}
	return v.err
}

func (v *verbs) Drain() error                   { return v.do("drain") }
func (v *verbs) StepDown(d time.Duration) error { return v.do("step-down " + d.String()) }
func (v *verbs) Pause() error                   { return v.do("pause") }
func (v *verbs) Resume() error                  { return v.do("resume") }
func (v *verbs) Stopped() error                 { return v.do("stopped") }

func newControl() (http.Handler, *verbs) {
	v := &verbs{c: newCandidate(activeLeadership())}
	return statusapi.NewControlHandler(v.c, v), v
}

// local is how a client in the Pod asks.
func local(r *http.Request) { r.Host = "127.0.0.1:8485" }

func TestVerbs(t *testing.T) {
	for target, want := range map[string]string{
		"/v1/drain": "drain", "/v1/pause": "pause", "/v1/resume": "resume", "/v1/stopped": "stopped",
		"/v1/step-down": "step-down 30s", "/v1/step-down?for=90s": "step-down 1m30s", "/v1/step-down?for=0s": "step-down 0s",
	} {
		h, v := newControl()
		w := request(h, http.MethodPost, target, local)
		if w.Code != http.StatusAccepted {
			t.Errorf("%s: status %d: %s", target, w.Code, w.Body)
		}
		if len(v.asked) != 1 || v.asked[0] != want {
			t.Errorf("%s: asked for %q, want %q", target, v.asked, want)
		}
		if doc := decode[document](t, w.Body.Bytes()); doc.Reason != want || doc.Active {
			t.Errorf("%s: the answer is from before the verb: %s", target, w.Body)
		}
	}
}

func TestVerbThatMakesNoSense(t *testing.T) {
	for err, want := range map[error]int{
		&election.RefusedError{Reason: "nothing is held"}: http.StatusConflict,
		errors.New("nothing is held"):                     http.StatusInternalServerError,
	} {
		for _, path := range []string{"/v1/drain", "/v1/pause", "/v1/resume", "/v1/stopped", "/v1/step-down"} {
			h, v := newControl()
			v.err = err
			w := request(h, http.MethodPost, path, local)
			if w.Code != want || decode[struct{ Error string }](t, w.Body.Bytes()).Error != "nothing is held" {
				t.Errorf("%s: status %d, body %s", path, w.Code, w.Body)
			}
		}
	}
}

func TestControlRefuses(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { local(r); r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	tests := map[string]struct {
		method, target string
		change         func(*http.Request)
		status         int
		want           string // a part of the message
	}{
		"GET":                    {"GET", "/v1/drain", local, http.StatusMethodNotAllowed, "POST"},
		"HEAD":                   {"HEAD", "/v1/drain", local, http.StatusMethodNotAllowed, "POST"},
		"PUT":                    {"PUT", "/v1/step-down", local, http.StatusMethodNotAllowed, "POST"},
		"unknown verb":           {"POST", "/v1/reboot", local, http.StatusNotFound, "/v1/reboot"},
		"read-only path":         {"POST", "/leader", local, http.StatusNotFound, "/leader"},
		"query of a plain verb":  {"POST", "/v1/drain?for=3s", local, http.StatusBadRequest, "for=3s"},
		"no duration":            {"POST", "/v1/step-down?for=soon", local, http.StatusBadRequest, `for="soon"`},
		"negative":               {"POST", "/v1/step-down?for=-1s", local, http.StatusBadRequest, "0s to 24h"},
		"too long":               {"POST", "/v1/step-down?for=25h", local, http.StatusBadRequest, "0s to 24h"},
		"empty":                  {"POST", "/v1/step-down?for=", local, http.StatusBadRequest, "0s to 24h"},
		"twice":                  {"POST", "/v1/step-down?for=1s&for=2s", local, http.StatusBadRequest, "once"},
		"unknown parameter":      {"POST", "/v1/step-down?pause=1s", local, http.StatusBadRequest, "pause"},
		"bad query":              {"POST", "/v1/step-down?for=%zz", local, http.StatusBadRequest, "for=%zz"},
		"page of another site":   {"POST", "/v1/drain", header("Origin", "https://example.org"), http.StatusForbidden, "web pages"},
		"page of the same host":  {"POST", "/v1/drain", header("Origin", "http://127.0.0.1:8485"), http.StatusForbidden, "web pages"},
		"page without an origin": {"POST", "/v1/drain", header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden, "web pages"},
		"name bound to loopback": {"POST", "/v1/drain", host("evil.example:8485"), http.StatusForbidden, "evil.example"},
		"no host":                {"POST", "/v1/drain", host(""), http.StatusForbidden, "loopback"},
		"the Pod's IP":           {"POST", "/v1/drain", host("10.0.0.7:8485"), http.StatusForbidden, "loopback"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, v := newControl()
			w := request(h, tt.method, tt.target, tt.change)
			if w.Code != tt.status || !strings.Contains(decode[struct{ Error string }](t, w.Body.Bytes()).Error, tt.want) {
				t.Errorf("status %d, body %s; want %d and %q", w.Code, w.Body, tt.status, tt.want)
			}
			if len(v.asked) != 0 {
				t.Errorf("did %q all the same", v.asked)
			}
			if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") != "POST" {
				t.Errorf("Allow %q", w.Header().Get("Allow"))
			}
		})
	}
}

func TestControlTakesEveryNameOfLoopback(t *testing.T) {
	for _, name := range []string{"localhost:8485", "localhost", "127.0.0.1", "127.9.9.9:1", "[::1]:8485"} {
		h, _ := newControl()
		if w := request(h, http.MethodPost, "/v1/drain", func(r *http.Request) { r.Host = name }); w.Code != http.StatusAccepted {
			t.Errorf("host %q: status %d: %s", name, w.Code, w.Body)
		}
	}
}

func TestListenLoopback(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "10.0.0.1:0", "example.org:0", "127.0.0.1"} {
		if ln, err := statusapi.ListenLoopback(t.Context(), address); err == nil {
			ln.Close()
			t.Errorf("%s was listened on", address)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		ln, err := statusapi.ListenLoopback(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		ln.Close()
	}
}
