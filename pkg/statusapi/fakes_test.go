package statusapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/statusapi"
)

// candidate is a source whose state the test sets. Its term ends by time alone.
type candidate struct {
	mu      sync.Mutex
	is      election.Leadership
	until   time.Time // when is.Role stops being active; zero: it does not
	health  election.Health
	changed chan struct{}
	asked   int
}

func newCandidate(is election.Leadership) *candidate {
	return &candidate{is: is, health: healthy, changed: make(chan struct{})}
}

var healthy = election.Health{TTL: 10 * time.Second, SinceLoop: time.Second, SinceQuorum: time.Second}

// at is an instant in another zone than UTC.
var at = time.Date(2026, 11, 30, 12, 0, 0, 123_456_789, time.FixedZone("", 2*3600))

func activeLeadership() election.Leadership {
	return election.Leadership{
		Lock: "orders", Identity: "shop/a", Role: election.Active, Holder: "shop/a", FencingToken: 1764495600123456, Term: "t-1",
		Since: at, ValidFor: 6512*time.Millisecond + 900*time.Microsecond, Quorum: election.Quorum{Size: 3, Needed: 2, Held: 3},
		AsOf: at.Add(2878 * time.Millisecond),
	}
}

func standbyLeadership(reason string) election.Leadership {
	return election.Leadership{
		Lock: "orders", Identity: "shop/a", Role: election.Standby, Holder: "shop/b", Since: at, AsOf: at,
		Quorum: election.Quorum{Size: 3, Needed: 2}, Reason: reason, Draining: reason == "draining",
	}
}

func (c *candidate) Leadership() election.Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	l := c.is
	if !c.until.IsZero() {
		if l.ValidFor = time.Until(c.until); l.ValidFor <= 0 {
			return standbyLeadership("contending")
		}
	}
	return l
}

func (c *candidate) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *candidate) Health() election.Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

// Nodes shows one node of each kind.
func (c *candidate) Nodes() []election.NodeState {
	status := func(s redlock.NodeStatus) election.NodeState { return election.NodeState{NodeStatus: s} }
	return []election.NodeState{
		status(redlock.NodeStatus{Name: "well", Up: true, Mature: true, LastReply: time.Second}),
		status(redlock.NodeStatus{Name: "young", Up: true, MatureIn: 12 * time.Second}),
		status(redlock.NodeStatus{Name: "replica", Up: true, Unfit: "is a replica"}),
		status(redlock.NodeStatus{Name: "shut", Err: errors.New("node shut: WRONGPASS")}),
		status(redlock.NodeStatus{Name: "silent"}),
	}
}

// become changes the state and tells of it.
func (c *candidate) become(is election.Leadership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.is = is
	close(c.changed)
	c.changed = make(chan struct{})
}

func request(handler http.Handler, method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, http.NoBody)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, body []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("body %q is not JSON: %v", body, err)
	}
	return v
}

type document = statusapi.Document
