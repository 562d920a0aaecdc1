package statusapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/statusapi"
)

// stream collects what is written to it, and when.
type stream struct {
	*httptest.ResponseRecorder
	mu    sync.Mutex
	parts []part
}

type part struct {
	text string
	at   time.Time
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part{string(b), time.Now()})
	return len(b), nil
}

// take returns what was written since the last take, of comments or of events.
func (s *stream) take() []part {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := s.parts
	s.parts = nil
	return parts
}

// watching runs during beside a request for the stream.
func watching(t *testing.T, c *candidate, during func(s *stream)) {
	t.Helper()
	s := &stream{ResponseRecorder: httptest.NewRecorder()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h := statusapi.NewHandler(c, nil)
		h.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/v1/leadership?watch=true", http.NoBody).WithContext(ctx))
	}()
	synctest.Wait()
	during(s)
	cancel()
	<-ended // the stream ends with the request
}

// event returns the document of a part that has to be an event.
func event(t *testing.T, p part) document {
	t.Helper()
	data, isEvent := strings.CutPrefix(p.text, "event: leadership\ndata: ")
	if !isEvent || strings.Count(data, "\n") != 2 || !strings.HasSuffix(data, "\n\n") {
		t.Fatalf("%q is not one event", p.text)
	}
	return decode[document](t, []byte(data))
}

func TestWatchTellsAtOnceAndAtEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(standbyLeadership("held by shop/b"))
		watching(t, c, func(s *stream) {
			first := s.take()
			if len(first) != 1 || event(t, first[0]).Active {
				t.Fatalf("at once: %v", first)
			}
			if got := s.Header().Get("Content-Type"); got != "text/event-stream" {
				t.Errorf("Content-Type %q", got)
			}
			if !s.Flushed {
				t.Error("the event was not flushed")
			}
			for _, is := range []election.Leadership{activeLeadership(), standbyLeadership("draining"), standbyLeadership("paused")} {
				start := time.Now()
				c.become(is)
				synctest.Wait()
				next := s.take()
				if len(next) != 1 || event(t, next[0]).Reason != is.Reason || event(t, next[0]).Active != is.Active() {
					t.Fatalf("after the change: %v", next)
				}
				if late := next[0].at.Sub(start); late != 0 {
					t.Errorf("told %v late", late)
				}
			}
			c.become(standbyLeadership("paused"))
			synctest.Wait()
			if again := s.take(); len(again) != 0 {
				t.Errorf("told although nothing had changed: %v", again)
			}
		})
	})
}

func TestWatchTellsWhenTimeAloneEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(activeLeadership())
		c.until = time.Now().Add(2500 * time.Millisecond)
		watching(t, c, func(s *stream) {
			s.take()
			time.Sleep(2499 * time.Millisecond)
			synctest.Wait()
			if early := s.take(); len(early) != 0 {
				t.Fatalf("told before the term was over: %v", early)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if told := s.take(); len(told) != 1 || event(t, told[0]).Active {
				t.Fatalf("a term that was over was not told of: %v", told)
			}
		})
	})
}

func TestWatchSendsACommentEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(standbyLeadership("held by shop/b"))
		watching(t, c, func(s *stream) {
			last := time.Now()
			for range 30 { // events in between do not stand in for comments
				time.Sleep(time.Second)
				c.become(standbyLeadership(time.Now().String()))
				synctest.Wait()
				for _, p := range s.take() {
					if !strings.HasPrefix(p.text, ":") {
						continue
					}
					if gap := p.at.Sub(last); gap > 5*time.Second {
						t.Errorf("no comment for %v", gap)
					}
					last = p.at
				}
			}
			if gap := time.Since(last); gap > 5*time.Second {
				t.Errorf("no comment for the last %v", gap)
			}
		})
	})
}

func TestWatchEndsWhenTheClientIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(activeLeadership())
		ended := make(chan struct{})
		go func() {
			statusapi.NewHandler(c, nil).ServeHTTP(gone{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/v1/leadership?watch=1", http.NoBody))
			close(ended)
		}()
		<-ended // or the bubble finds a deadlock
	})
}

// gone is a client that does not read any more.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }

func TestWatchOfHeadDoesNotStream(t *testing.T) {
	w := request(statusapi.NewHandler(newCandidate(activeLeadership()), nil), http.MethodHead, "/v1/leadership?watch=true")
	if w.Code != ok || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() != 0 {
		t.Errorf("status %d, header %v, body %q", w.Code, w.Header(), w.Body)
	}
}

func TestWait(t *testing.T) {
	in := func(d time.Duration, f func(*candidate)) func(*candidate) {
		return func(c *candidate) { time.Sleep(d); f(c) }
	}
	activated := func(c *candidate) { c.become(activeLeadership()) }
	tests := map[string]struct {
		is     election.Leadership
		lasts  time.Duration // of an active role without a renewal
		query  string
		during func(*candidate)
		status int
		after  time.Duration
	}{
		"is so already":       {activeLeadership(), 0, "wait=active", nil, ok, 0},
		"is standby already":  {standbyLeadership("paused"), 0, "wait=standby", nil, ok, 0},
		"becomes active":      {standbyLeadership("paused"), 0, "wait=active&timeout=1m", in(42*time.Second, activated), ok, 42 * time.Second},
		"changes otherwise":   {standbyLeadership("paused"), 0, "wait=active&timeout=9s", in(time.Second, func(c *candidate) { c.become(standbyLeadership("draining")) }), http.StatusGatewayTimeout, 9 * time.Second},
		"runs out":            {activeLeadership(), 3 * time.Second, "wait=standby", nil, ok, 3 * time.Second},
		"runs out of time":    {standbyLeadership("paused"), 0, "wait=active", nil, http.StatusGatewayTimeout, 30 * time.Second},
		"has no time":         {standbyLeadership("paused"), 0, "wait=active&timeout=0s", nil, http.StatusGatewayTimeout, 0},
		"has no time, is so":  {activeLeadership(), 0, "timeout=0s&wait=active", nil, ok, 0},
		"longest that may be": {standbyLeadership("paused"), 0, "wait=active&timeout=10m", nil, http.StatusGatewayTimeout, 10 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCandidate(tt.is)
				if tt.lasts > 0 {
					c.until = time.Now().Add(tt.lasts)
				}
				if tt.during != nil {
					go tt.during(c)
				}
				start := time.Now()
				w := request(statusapi.NewHandler(c, nil), http.MethodGet, "/v1/leadership?"+tt.query)
				if w.Code != tt.status || time.Since(start) != tt.after {
					t.Errorf("status %d after %v, want %d after %v", w.Code, time.Since(start), tt.status, tt.after)
				}
				if decode[document](t, w.Body.Bytes()).Lock != "orders" {
					t.Errorf("body %s is not the leadership document", w.Body)
				}
			})
		})
	}
}

func TestWaitEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		h := statusapi.NewHandler(newCandidate(standbyLeadership("paused")), nil)
		w := request(h, http.MethodGet, "/v1/leadership?wait=active", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if w.Code != unavailable {
			t.Errorf("status %d", w.Code)
		}
	})
}

func TestBadQueries(t *testing.T) {
	tests := map[string][]string{ // parts that have to be in the message
		"wait=leader":              {"wait", `"leader"`, "active or standby"},
		"wait=":                    {"wait", `""`, "active or standby"},
		"wait=active&timeout=30":   {"timeout", `"30"`, "0s to 10m"},
		"wait=active&timeout=-1s":  {"timeout", `"-1s"`, "0s to 10m"},
		"wait=active&timeout=601s": {"timeout", `"601s"`, "0s to 10m"},
		"timeout=3s":               {"timeout", `"3s"`, "wait=active"},
		"watch=maybe":              {"watch", `"maybe"`, "true or false"},
		"watch=true&wait=active":   {"wait", `"active"`, "watch"},
		"watch=true&watch=false":   {"watch", `"false"`, "once"},
		"wiat=active":              {"wiat", `"active"`, "wait=active"},
		"wait=active;timeout=3s":   {"wait=active;timeout=3s", "watch=true"},
		"watch=%zz":                {"watch=%zz", "watch=true"},
		"wait=active&wait=standby": {"wait", `"standby"`, "once"},
	}
	h := statusapi.NewHandler(newCandidate(activeLeadership()), nil)
	for query, want := range tests {
		w := request(h, http.MethodGet, "/v1/leadership", func(r *http.Request) { r.URL.RawQuery = query })
		message := decode[struct{ Error string }](t, w.Body.Bytes()).Error
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, w.Code)
		}
		for _, part := range want {
			if !strings.Contains(message, part) {
				t.Errorf("%s: message %q does not contain %q", query, message, part)
			}
		}
	}
}

func TestWatchersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := statusapi.NewHandler(newCandidate(standbyLeadership("paused")), nil)
		const waiting = 1000
		var all sync.WaitGroup
		for range waiting {
			all.Go(func() { request(h, http.MethodGet, "/v1/leadership?wait=active&timeout=1m") })
		}
		synctest.Wait()
		if w := request(h, http.MethodGet, "/v1/leadership?watch=true"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("beside %d waiting requests: status %d", waiting, w.Code)
		}
		if w := request(h, http.MethodGet, "/leader"); w.Code != unavailable {
			t.Errorf("/leader: status %d, it has to be answered however many wait", w.Code)
		}
		all.Wait()
		if w := request(h, http.MethodGet, "/v1/leadership?wait=standby"); w.Code != ok {
			t.Errorf("once they are gone: status %d", w.Code)
		}
	})
}
