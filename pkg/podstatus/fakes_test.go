package podstatus

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/transport"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
)

var ownPod = Pod{Namespace: "shop", Name: "orders-x1", UID: "u-1"}

// candidate is a Source that a test commands.
type candidate struct {
	mu      sync.Mutex
	lead    election.Leadership
	until   time.Time // the end of the term if nobody renews it
	changed chan struct{}
}

func newCandidate() *candidate {
	return &candidate{changed: make(chan struct{}), lead: election.Leadership{Role: election.Standby, Since: time.Now()}}
}

func (c *candidate) Leadership() election.Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lead
	if l.Active() {
		l.ValidFor = time.Until(c.until)
		if l.ValidFor <= 0 {
			return election.Leadership{Role: election.Standby, Since: c.until}
		}
	}
	return l
}

func (c *candidate) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *candidate) set(l election.Leadership, validFor time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.Since = time.Now()
	c.lead, c.until = l, time.Now().Add(validFor)
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *candidate) elect(token uint64) {
	c.set(election.Leadership{Role: election.Active, FencingToken: token}, time.Hour)
}

func (c *candidate) lose() { c.set(election.Leadership{Role: election.Standby}, 0) }

// pods is an API server with one Pod; a test says how it answers.
type pods struct {
	mu          sync.Mutex
	labels      map[string]string
	annotations map[string]string
	conditions  map[string]string
	requests    []string // bodies of all requests, answered or not
	times       []time.Time
	// fault, if not nil, answers in place of the server; nil from it means no answer.
	fault func(*http.Request) *http.Response
	// dialling is called before the body is asked for.
	dialling func()
}

func newPods() *pods {
	return &pods{labels: map[string]string{}, annotations: map[string]string{}, conditions: map[string]string{}}
}

func (p *pods) client(t *testing.T) *apiserver.Client {
	t.Helper()
	c, err := apiserver.New("https://api.test", &transport.Config{Transport: p})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// RoundTrip is the wire and the server.
func (p *pods) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.dialling != nil {
		p.dialling()
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.requests = append(p.requests, string(body))
	p.times = append(p.times, time.Now())
	fault := p.fault
	p.mu.Unlock()
	if fault == nil {
		return p.apply(req, body), nil
	}
	if resp := fault(req); resp != nil {
		return resp, nil
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func (p *pods) apply(req *http.Request, body []byte) *http.Response {
	if req.Method == http.MethodPost {
		return answer(201, `{}`)
	}
	var patch struct {
		Metadata struct{ Labels, Annotations map[string]*string }
		Status   struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return answer(400, err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	merge(p.labels, patch.Metadata.Labels)
	merge(p.annotations, patch.Metadata.Annotations)
	for _, c := range patch.Status.Conditions {
		p.conditions[c.Type] = c.Status
	}
	shown, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": ownPod.UID, "annotations": p.annotations}})
	if err != nil {
		return answer(500, err.Error())
	}
	return answer(200, string(shown))
}

func merge(into map[string]string, patch map[string]*string) {
	for k, v := range patch {
		if v == nil {
			delete(into, k)
		} else {
			into[k] = *v
		}
	}
}

func (p *pods) fail(fault func(*http.Request) *http.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

func (p *pods) role() string { return p.label(DefaultRoleLabel) }

func (p *pods) label(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.labels[key]
}

func (p *pods) annotation(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.annotations[key]
}

func (p *pods) steal(role string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.labels[DefaultRoleLabel] = role
}

func (p *pods) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func refusing(code int, reason, message string) func(*http.Request) *http.Response {
	return func(*http.Request) *http.Response {
		b, _ := json.Marshal(map[string]any{"kind": "Status", "reason": reason, "message": message})
		return answer(code, string(b))
	}
}

func silent(*http.Request) *http.Response { return nil }

// publish runs a Publisher until the test ends.
func publish(t *testing.T, p *pods, c *candidate, gate bool) *Publisher {
	t.Helper()
	pub, err := New(Config{API: p.client(t), Pod: ownPod, ReadinessGate: gate, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	go pub.Run(t.Context(), c)
	return pub
}
