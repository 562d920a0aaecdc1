package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	// From counts the replies of each Pod, Why the errors of each kind.
	From, Why map[string]int
}

func count(replies []reply) tally {
	t := tally{From: map[string]int{}, Why: map[string]int{}}
	for _, r := range replies {
		t.All++
		if r.Err != nil {
			t.Refused++
			t.Why[cause(r.Err)]++
			continue
		}
		t.From[r.Name]++
		if !r.Active {
			t.Inactive++
		}
	}
	return t
}

// cause is what an error comes down to.
func cause(err error) string {
	var call syscall.Errno
	var wait net.Error
	switch {
	case errors.As(err, &call):
		return call.Error()
	case errors.As(err, &wait) && wait.Timeout():
		return fmt.Sprintf("nothing within %v", probeTimeout)
	}
	return err.Error()
}

func (t tally) String() string {
	var why []string
	for _, cause := range slices.Sorted(maps.Keys(t.Why)) {
		why = append(why, fmt.Sprintf("%s: %d", cause, t.Why[cause]))
	}
	text := fmt.Sprintf("%d: %d replies, %d of them from a Pod whose /leader was 503; %d without a reply",
		t.All, t.All-t.Refused, t.Inactive, t.Refused)
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}
