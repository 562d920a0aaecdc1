// Package workload sees to the program beside the candidate that acts while the
// candidate is active: whether it is healthy and whether it has stopped.
package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// What a HealthConfig that says nothing means.
const (
	DefaultInterval = time.Second
	DefaultFailures = 3
)

// maxTimeout bounds one check, however long the interval.
const maxTimeout = 5 * time.Second

// maxRedirects is what the kubelet follows for a probe.
const maxRedirects = 10

// HealthConfig says how an app's health is asked for.
type HealthConfig struct {
	// URL is http://, https:// or tcp:// on loopback, see ParseTarget.
	URL string
	// Interval is the time between checks, and the most that one may take up to 5 s;
	// 0 means DefaultInterval.
	Interval time.Duration
	// Failures is how many checks in a row have to fail before a healthy app counts as
	// unhealthy; 0 means DefaultFailures.
	Failures int
	// OnChange, if not nil, is called after the app's health changed, and must not
	// block.
	OnChange func()
}

// Health asks an app how it is, as the kubelet's probes do: 2xx and 3xx are healthy,
// certificates are not verified, redirects are followed only on the same host. One
// good answer makes it healthy; before the first answer it is not.
type Health struct {
	cfg    HealthConfig
	check  func(ctx context.Context) error
	hurry  chan struct{}
	mu     sync.Mutex
	reason string // why it is not healthy; empty when it is
	failed int    // checks in a row
	gone   bool   // the last check was refused a connection
}

var _ election.Workload = (*Health)(nil)

// NewHealth makes a checker that does nothing until Run.
func NewHealth(cfg HealthConfig) (*Health, error) {
	target, err := ParseTarget(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Failures == 0 {
		cfg.Failures = DefaultFailures
	}
	h := &Health{cfg: cfg, reason: "starting", hurry: make(chan struct{}, 1)}
	h.check = h.checkTCP(target.Host)
	if target.Scheme != "tcp" {
		h.check = h.checkHTTP(target)
	}
	return h, nil
}

// ErrTarget is wrapped for a URL that cannot be asked.
var ErrTarget = errors.New("want http://, https:// or tcp:// with a loopback host and a port, such as http://127.0.0.1:8080/healthz")

// ParseTarget reads the URL of an app. Only loopback is allowed: the app of this Pod
// is asked, never another one.
func ParseTarget(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || !isLoopback(u.Hostname()) {
		return nil, fmt.Errorf("%q: %w", s, ErrTarget)
	}
	switch u.Scheme {
	case "http":
		u.Host = withPort(u, "80")
	case "https":
		u.Host = withPort(u, "443")
	case "tcp":
		if u.Port() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
			return nil, fmt.Errorf("%q: %w", s, ErrTarget)
		}
	default:
		return nil, fmt.Errorf("%q: %w", s, ErrTarget)
	}
	return u, nil
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Healthy reports whether the app is fit to act, and if not, why.
func (h *Health) Healthy() (healthy bool, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason == "", h.reason
}

// Stopped reports whether nothing listened at the app's port when it was last looked
// at. It has the app looked at again soon, so whoever waits for the end may ask often.
//
// A listener is what a program closes first, and it may still be finishing work: a
// caller that hands the lease to somebody else still owes it the stop budget.
func (h *Health) Stopped() bool {
	select {
	case h.hurry <- struct{}{}:
	default:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// hurryInterval is how soon after one check Stopped may cause the next.
const hurryInterval = 50 * time.Millisecond

// Run checks until ctx ends.
func (h *Health) Run(ctx context.Context) {
	for {
		h.once(ctx)
		if !h.rest(ctx) {
			return
		}
	}
}

// rest waits until the next check is due; it reports false when there is none.
func (h *Health) rest(ctx context.Context) bool {
	soonest, latest := min(hurryInterval, h.cfg.Interval), h.cfg.Interval
	timer := time.NewTimer(soonest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	timer.Reset(latest - soonest)
	select {
	case <-timer.C:
	case <-h.hurry:
	case <-ctx.Done():
		return false
	}
	return true
}

func (h *Health) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, min(h.cfg.Interval, maxTimeout))
	defer cancel()
	err := h.check(ctx)
	if changed := h.judge(err); changed && h.cfg.OnChange != nil {
		h.cfg.OnChange()
	}
}

// judge takes in the result of a check; it reports whether the app's health changed.
func (h *Health) judge(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.reason
	h.gone = refused(err)
	if err == nil {
		h.failed, h.reason = 0, ""
		return before != ""
	}
	h.failed++
	if before != "" || h.failed >= h.cfg.Failures {
		h.reason = err.Error()
	}
	return (before == "") != (h.reason == "")
}

// checkTCP makes a check that is content with a connection.
func (h *Health) checkTCP(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := dialLoopback(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// checkHTTP makes a check that asks on a new connection each time, as a kept one would
// not show that the app stopped listening.
func (h *Health) checkHTTP(target *url.URL) func(context.Context) error {
	client := &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			DialContext:       dialLoopback,
			DisableKeepAlives: true,
			//nolint:gosec // the app's own certificate on loopback is not verified, as the kubelet does not
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("User-Agent", "podlease")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.CopyN(io.Discard, resp.Body, 10<<10) // so that the app does not see a broken pipe
		if resp.StatusCode < 200 || resp.StatusCode > 399 {
			return fmt.Errorf("%s answered %s", target, resp.Status)
		}
		return nil
	}
}

// checkRedirect follows redirects on the same host; one to another host is an answer
// of its own, 3xx and so healthy.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

// dialLoopback connects to loopback and nowhere else; for localhost to its IPv4 and
// then its IPv6 address, without asking a name server.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts := []string{host}
	if host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	var dialer net.Dialer
	var errs []error
	for _, h := range hosts {
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(h, port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, dialError{errs}
}

// dialError is that no address of a host took a connection.
type dialError struct{ errs []error }

func (e dialError) Error() string   { return e.errs[0].Error() }
func (e dialError) Unwrap() []error { return e.errs }

// refused reports whether nothing listens: every address refused, or does not exist.
func refused(err error) bool {
	var dial dialError
	if !errors.As(err, &dial) {
		return false
	}
	for _, e := range dial.errs {
		if !errors.Is(e, syscall.ECONNREFUSED) && !errors.Is(e, syscall.EADDRNOTAVAIL) {
			return false
		}
	}
	return true
}
