package statusapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

const (
	// DefaultPause is how long a step-down does not contend unless told otherwise.
	DefaultPause = 30 * time.Second
	// MaxPause is how long it may be told.
	MaxPause = 24 * time.Hour
)

const pauseAllowed = "a duration from 0s to 24h, such as 30s"

// ParsePause reads how long a step-down does not contend. The error completes
// "want …".
func ParsePause(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > MaxPause {
		return 0, errors.New(pauseAllowed)
	}
	return d, nil
}

// controlPaths are those of the control endpoints.
var controlPaths = []string{"/v1/drain", "/v1/pause", "/v1/resume", "/v1/step-down", "/v1/stopped"}

// control serves the control endpoints.
type control struct {
	leadership func() election.Leadership
	routes     map[string]http.HandlerFunc
	origin     *http.CrossOriginProtection
}

// NewControlHandler serves the control verbs of a candidate. Whoever can connect may
// use them, so it belongs on a loopback address (see ListenLoopback); it refuses
// requests that a browser makes for another site, and those that reached loopback
// under another name.
func NewControlHandler(source Source, verbs Verbs) http.Handler {
	c := &control{leadership: source.Leadership, origin: http.NewCrossOriginProtection()}
	c.routes = map[string]http.HandlerFunc{
		"/v1/drain":     c.plain(verbs.Drain),
		"/v1/pause":     c.plain(verbs.Pause),
		"/v1/resume":    c.plain(verbs.Resume),
		"/v1/stopped":   c.plain(verbs.Stopped),
		"/v1/step-down": func(w http.ResponseWriter, r *http.Request) { c.stepDown(w, r, verbs) },
	}
	return c
}

// ServeHTTP implements http.Handler.
func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.origin.Check(r); err != nil || r.Header.Get("Origin") != "" {
		writeProblem(w, http.StatusForbidden, "requests from web pages are not allowed")
		return
	}
	if !loopbackHost(r.Host) {
		writeProblem(w, http.StatusForbidden, fmt.Sprintf("host %q is not allowed: want localhost or a loopback address", r.Host))
		return
	}
	serve(w, r, c.routes, http.MethodPost)
}

func (c *control) plain(verb func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("query %q is not allowed: want none", r.URL.RawQuery))
			return
		}
		c.answer(w, verb())
	}
}

func (c *control) stepDown(w http.ResponseWriter, r *http.Request, verbs Verbs) {
	pause, err := parseStepDown(r.URL.RawQuery)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	c.answer(w, verbs.StepDown(pause))
}

func parseStepDown(raw string) (time.Duration, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return 0, fmt.Errorf("query %q is not allowed: want for=30s or none", raw)
	}
	pause := DefaultPause
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case name != "for":
			return 0, badParameter(name, values.Get(name), "for=30s or no parameter")
		case len(values[name]) != 1:
			return 0, badParameter(name, values[name][1], "it once")
		}
		if pause, err = ParsePause(values.Get(name)); err != nil {
			return 0, badParameter(name, values.Get(name), err.Error())
		}
	}
	return pause, nil
}

// answer tells what came of a verb.
func (c *control) answer(w http.ResponseWriter, err error) {
	var refused *election.RefusedError
	switch {
	case err == nil:
		writeLeadership(w, http.StatusAccepted, c.leadership())
	case errors.As(err, &refused):
		writeProblem(w, http.StatusConflict, refused.Reason)
	default:
		writeProblem(w, http.StatusInternalServerError, err.Error())
	}
}

// loopbackHost reports whether a Host header names loopback. A page that made its own
// name resolve to loopback (DNS rebinding) sends that name.
func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// ErrNotLoopback is wrapped for an address that other machines could reach.
var ErrNotLoopback = errors.New("not a loopback address")

// CheckLoopback reports whether an address to listen on can be reached from this
// machine (in Kubernetes: this Pod) only.
func CheckLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if !isLoopback(host) {
		return fmt.Errorf("address %q: %w", address, ErrNotLoopback)
	}
	return nil
}

// ListenLoopback listens on a loopback address, and on no other whatever names resolve
// to.
func ListenLoopback(ctx context.Context, address string) (net.Listener, error) {
	if err := CheckLoopback(address); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		_ = ln.Close()
		return nil, fmt.Errorf("address %q resolves to %v: %w", address, ln.Addr(), ErrNotLoopback)
	}
	return ln, nil
}
