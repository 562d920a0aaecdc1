package fencing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/fencing"
)

// answer is a sidecar that answers after a while.
type answer struct {
	status   int
	body     string
	there    time.Duration // until the question arrives
	back     time.Duration // until the answer does
	asked    string
	deadline bool
}

func (a *answer) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked = r.URL.String()
	_, a.deadline = r.Context().Deadline()
	select {
	case <-time.After(a.there + a.back):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func (a *answer) sidecar() fencing.Sidecar {
	return fencing.Sidecar{URL: "http://sidecar/", Client: &http.Client{Transport: a}}
}

const activeDocument = `{"lock":"orders","role":"active","active":true,"holder":"a","fencingToken":1764495600123456,"term":"t1","validForMs":5000,"reason":""}`

func TestLeadershipIsDatedFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answer{status: http.StatusOK, body: activeDocument, there: time.Second / 4, back: time.Second / 2}
		l, err := a.sidecar().Leadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l.Token != 1764495600123456 || l.Term != "t1" || l.Holder != "a" || a.asked != "http://sidecar/v1/leadership" {
			t.Errorf("asked %s, got %+v", a.asked, l)
		}
		if got, want := l.ValidFor(), 4250*time.Millisecond; got != want {
			t.Errorf("valid for %v, want %v: 5 s from when the question was sent", got, want)
		}
		time.Sleep(4249 * time.Millisecond)
		if !l.Active() {
			t.Error("not active a millisecond before the end")
		}
		time.Sleep(time.Millisecond)
		if l.Active() || l.ValidFor() != 0 {
			t.Errorf("active at the end, for another %v", l.ValidFor())
		}
	})
}

func TestLeadershipOfOneThatIsNotActive(t *testing.T) {
	for name, body := range map[string]string{
		"a standby":       `{"role":"standby","active":false,"holder":"b","fencingToken":0,"validForMs":0,"reason":"held by b"}`,
		"a contradiction": `{"role":"standby","active":false,"validForMs":5000}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := (&answer{status: http.StatusOK, body: body}).sidecar().Leadership(t.Context())
				if err != nil || l.Active() || l.ValidFor() != 0 {
					t.Errorf("active for %v, error %v", l.ValidFor(), err)
				}
			})
		})
	}
	if (fencing.Leadership{}).Active() {
		t.Error("nobody was asked, and the answer is active")
	}
}

func TestLeadershipIsAskedWithinADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answer{there: time.Hour}
		start := time.Now()
		_, err := a.sidecar().Leadership(context.Background())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "ask podlease-sidecar at http://sidecar for the leadership: ") {
			t.Errorf("got error %v", err)
		}
		if took := time.Since(start); took > 2*time.Second || !a.deadline {
			t.Errorf("a sidecar that does not answer was waited for for %v", took)
		}
	})
}

func TestLeadershipOfSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range []*answer{
			{status: http.StatusNotFound, body: "404 page not found"},
			{status: http.StatusOK, body: "<html>"},
			{status: http.StatusOK, body: "{}"},
		} {
			if l, err := a.sidecar().Leadership(t.Context()); err == nil || l.Active() {
				t.Errorf("status %d, body %q: active is %v, error %v", a.status, a.body, l.Active(), err)
			}
		}
	})
}

func TestSidecarIsFoundByItsVariable(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, activeDocument) }))
	defer server.Close()
	t.Setenv("PODLEASE_URL", server.URL)
	l, err := fencing.Sidecar{}.Leadership(t.Context())
	if err != nil || !l.Active() {
		t.Errorf("active is %v, error %v", l.Active(), err)
	}
}
