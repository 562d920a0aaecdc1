package leasetoken

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/transport"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
)

var _ election.TokenSource = (*Source)(nil)

// leases is an API server that holds one Lease and compares resource versions.
type leases struct {
	mu      sync.Mutex
	version int
	object  *lease
	silent  bool
	fault   int
}

func (l *leases) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent lease
	if req.Body != nil {
		_ = json.NewDecoder(req.Body).Decode(&sent) // a GET has none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.silent:
		l.mu.Unlock()
		<-req.Context().Done()
		l.mu.Lock()
		return nil, req.Context().Err()
	case l.fault != 0:
		return answer(l.fault, map[string]any{"kind": "Status", "reason": "Fault"})
	case req.Method == http.MethodGet && l.object == nil:
		return answer(404, map[string]any{"kind": "Status", "reason": "NotFound"})
	case req.Method == http.MethodGet:
		return answer(200, l.object)
	case req.Method == http.MethodPost && l.object != nil, req.Method == http.MethodPut && sent.Metadata.ResourceVersion != l.object.Metadata.ResourceVersion:
		return answer(409, map[string]any{"kind": "Status", "reason": "Conflict"})
	}
	l.version++
	sent.Metadata.ResourceVersion = strings.Repeat("v", l.version)
	l.object = &sent
	return answer(201, l.object)
}

func answer(code int, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(raw)))}, err
}

func source(t *testing.T, l *leases) *Source {
	t.Helper()
	api, err := apiserver.New("https://api.test", &transport.Config{Transport: l})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{API: api, Namespace: "shop", Lock: "shop/orders", Identity: "shop/orders-1"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTokensAreUniqueAndGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{}
		var mu sync.Mutex
		seen := map[uint64]bool{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				s := source(t, l)
				var last uint64
				for range 20 {
					token, err := s.Next(t.Context())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					if token <= last || seen[token] {
						t.Errorf("token %d after %d, seen before: %v", token, last, seen[token])
					}
					seen[token], last = true, token
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(seen) != 160 {
			t.Errorf("%d tokens", len(seen))
		}
	})
}

func TestTokenGrowsOverTheClockAndOverTheNodes(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	micro := uint64(now.UnixMicro())
	for _, tc := range []struct {
		last uint64
		now  time.Time
		want uint64
	}{
		{0, now, micro},
		{micro + 5, now, micro + 6}, // the clock went back
		{7, time.Unix(-1, 0), 8},    // or is absurd
		{7, time.Unix(1<<50, 0), 8}, // or absurdly late: tokens stay below 2^53
		{micro, now.Add(time.Second), micro + 1e6},
	} {
		if got := next(tc.last, tc.now); got != tc.want {
			t.Errorf("next(%d, %v) = %d, want %d", tc.last, tc.now, got, tc.want)
		}
	}
}

func TestNoTokenWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leases{silent: true}
		begun := time.Now()
		if token, err := source(t, l).Next(t.Context()); token != 0 || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%d, %v after %v", token, err, time.Since(begun))
		}
	})
}

func TestMissingRightIsNamed(t *testing.T) {
	token, err := source(t, &leases{fault: 403}).Next(t.Context())
	if token != 0 || err == nil || !strings.Contains(err.Error(), "podlease-sidecar-leases") {
		t.Errorf("%d, %v", token, err)
	}
}

func TestConflictsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if token, err := source(t, &leases{fault: 409}).Next(ctx); token != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v", token, err)
		}
	})
}

func TestSpoiltCounterIsRefused(t *testing.T) {
	for _, text := range []string{"", "x", "-1", "9007199254740991", "99999999999999999999"} {
		l := &leases{object: &lease{Metadata: metadata{Annotations: map[string]string{tokenKey: text}}}}
		if token, err := source(t, l).Next(t.Context()); err == nil || token != 0 {
			t.Errorf("%q gave %d", text, token)
		}
	}
}

func TestLeaseNames(t *testing.T) {
	seen := map[string]bool{}
	for _, lock := range []string{"shop/orders", "shop-orders", "Shop/orders", "a", "ü ber", strings.Repeat("x", 250)} {
		name := LeaseName(lock)
		if seen[name] || len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q gave %q", lock, name)
		}
		seen[name] = true
	}
}
