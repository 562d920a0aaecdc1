package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
)

const (
	probeInterval = 20 * time.Millisecond
	probeTimeout  = time.Second
)

// reply is what one new connection to the Service got.
type reply struct {
	// Sent is the time of CLOCK_BOOTTIME just before the connection was asked for.
	Sent   time.Duration
	Err    error
	Name   string `json:"name"`
	Active bool   `json:"active"`
	Token  uint64 `json:"fencingToken"`
}

// prober opens new connections to the Service, and keeps what they got.
type prober struct {
	url  string
	http *http.Client

	mu      sync.Mutex
	replies []reply
}

func newProber(url string) *prober {
	return &prober{url: url, http: &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

// run probes until ctx ends. A probe that hangs delays no other.
func (p *prober) run(ctx context.Context) {
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			asked.Go(func() { p.keep(p.probe(ctx)) })
		}
	}
}

func (p *prober) probe(ctx context.Context) reply {
	r := reply{Sent: boottime.Now()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		r.Err = err
		return r
	}
	response, err := p.http.Do(request)
	if err != nil {
		r.Err = err
		return r
	}
	defer func() { _ = response.Body.Close() }()
	r.Err = json.NewDecoder(response.Body).Decode(&r)
	return r
}

func (p *prober) keep(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = append(p.replies, r)
}

// between are the replies to connections asked for in a span of time.
func (p *prober) between(from, to time.Duration) []reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []reply
	for _, r := range p.replies {
		if from <= r.Sent && r.Sent < to {
			found = append(found, r)
		}
	}
	return found
}

// tally counts replies.
type tally struct {
	// All are replies and errors; Refused those that got no reply; Inactive those of
	// Pods that said they are not active.
	All, Refused, Inactive int
	// From counts the replies of each Pod.
	From map[string]int
}

func count(replies []reply) tally {
	t := tally{From: map[string]int{}}
	for _, r := range replies {
		t.All++
		if r.Err != nil {
			t.Refused++
			continue
		}
		t.From[r.Name]++
		if !r.Active {
			t.Inactive++
		}
	}
	return t
}
