// Package leasetoken makes fencing tokens from a counter in a Lease object, that is,
// from etcd: they are unique and grow whatever happens to the Redis nodes. The API
// server is then needed to become active, and not to stay it.
package leasetoken

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/apiserver"
)

// tokenKey is the annotation of the Lease that holds the newest token: the object's own
// counter, spec.leaseTransitions, has 32 bits.
const tokenKey = "podlease.io/fencing-token" //nolint:gosec // a key, not a credential

// maxToken bounds a token that comes from a clock: tokens stay below 2^53, which
// JSON readers keep exact, with room to count on.
const maxToken = 1<<53 - 1<<40

// tryTimeout bounds one request.
const tryTimeout = time.Second

// Config is what a Source needs.
type Config struct {
	API       *apiserver.Client
	Namespace string
	// Lock is the lock's name; candidates of one lock must share the namespace.
	Lock string
	// Identity is written to the Lease for people to see.
	Identity string
}

// Source makes the fencing tokens of one lock. It is an election.TokenSource.
type Source struct {
	cfg  Config
	name string
}

// New makes a Source. It sends nothing before Next.
func New(cfg Config) (*Source, error) {
	if cfg.Namespace == "" || strings.Contains(cfg.Namespace, "/") {
		return nil, fmt.Errorf("namespace %q: want that of the Lease object that counts fencing tokens", cfg.Namespace)
	}
	return &Source{cfg: cfg, name: LeaseName(cfg.Lock)}, nil
}

// LeaseName is the name of the Lease object of a lock: readable, and unique by a hash.
func LeaseName(lock string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, lock)
	sum := sha256.Sum256([]byte(lock))
	return fmt.Sprintf("podlease-%.200s-%s", readable, hex.EncodeToString(sum[:4]))
}

// lease is the part of the object that is used; the rest of one that was made by hand
// is not kept.
type lease struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type spec struct {
	HolderIdentity string `json:"holderIdentity,omitempty"`
	AcquireTime    string `json:"acquireTime,omitempty"`
}

// Next counts up by compare-and-swap and returns the number when the API server has
// confirmed it: greater than all that were confirmed before, to anybody. A try without
// answer may have used a number up.
func (s *Source) Next(ctx context.Context) (uint64, error) {
	for {
		token, err := s.try(ctx)
		if !isConflict(err) {
			return token, err
		}
		select { // somebody else was faster
		case <-ctx.Done():
			return 0, fmt.Errorf("fencing token: %w; last try: %w", ctx.Err(), err)
		case <-time.After(rand.N(20 * time.Millisecond)):
		}
	}
}

func (s *Source) try(ctx context.Context) (uint64, error) {
	old, found, err := s.get(ctx)
	if err != nil {
		return 0, s.explain(err)
	}
	last, err := old.token()
	if err != nil {
		return 0, err
	}
	token := next(last, time.Now())
	if err := s.put(ctx, s.renewed(old, token), found); err != nil {
		return 0, s.explain(err)
	}
	return token, nil
}

// next is one more, or the time in microseconds as with tokens from the nodes: so
// tokens grow too when a lock's fencing moves from the nodes to a Lease.
func next(last uint64, now time.Time) uint64 {
	if t := uint64(max(now.UnixMicro(), 0)); t > last && t < maxToken {
		return t
	}
	return last + 1
}

func (l *lease) token() (uint64, error) {
	text, found := l.Metadata.Annotations[tokenKey]
	if !found {
		return 0, nil
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token >= 1<<53-1 {
		return 0, fmt.Errorf("lease %s/%s: annotation %s is %q, want an integer below 2^53: set it to the largest token ever seen",
			l.Metadata.Namespace, l.Metadata.Name, tokenKey, text)
	}
	return token, nil
}

func (s *Source) get(ctx context.Context) (old *lease, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	old = &lease{}
	err = s.cfg.API.Do(ctx, apiserver.Request{Method: http.MethodGet, Path: append(s.path(), s.name)}, old)
	if r := apiserver.Refused(err); r != nil && r.Code == http.StatusNotFound && r.Reason == "NotFound" {
		return old, false, nil
	}
	return old, err == nil, err
}

func (s *Source) put(ctx context.Context, l *lease, found bool) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r := apiserver.Request{Method: http.MethodPost, Path: s.path(), ContentType: apiserver.JSON, Body: l}
	if found {
		r.Method, r.Path = http.MethodPut, append(s.path(), s.name)
	}
	return s.cfg.API.Do(ctx, r, nil)
}

// renewed is the object with the new token, valid only on top of the old one.
func (s *Source) renewed(old *lease, token uint64) *lease {
	l := *old
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	l.Metadata.Name, l.Metadata.Namespace = s.name, s.cfg.Namespace
	l.Metadata.Annotations = map[string]string{tokenKey: strconv.FormatUint(token, 10)}
	for k, v := range old.Metadata.Annotations {
		if k != tokenKey {
			l.Metadata.Annotations[k] = v
		}
	}
	l.Spec = spec{HolderIdentity: s.cfg.Identity, AcquireTime: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
	return &l
}

func (s *Source) path() []string {
	return []string{"apis", "coordination.k8s.io", "v1", "namespaces", s.cfg.Namespace, "leases"}
}

func isConflict(err error) bool {
	r := apiserver.Refused(err)
	return r != nil && r.Code == http.StatusConflict
}

// explain says what to do about a missing right.
func (s *Source) explain(err error) error {
	if r := apiserver.Refused(err); r != nil && r.Code == http.StatusForbidden {
		return fmt.Errorf("fencing token: bind ClusterRole podlease-sidecar-leases to the Pod's ServiceAccount in namespace %s: %w", s.cfg.Namespace, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("fencing token: the API server did not answer in time: %w", err)
	}
	return fmt.Errorf("fencing token from Lease %s/%s: %w", s.cfg.Namespace, s.name, err)
}
