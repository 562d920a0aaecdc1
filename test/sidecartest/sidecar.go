package sidecartest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/podlease/podlease/test/child"
)

// readyTimeout bounds how long a sidecar may take to listen; it is long because a
// machine that runs tests may be overloaded.
const readyTimeout = 20 * time.Second

// Sidecar is a running sidecar.
type Sidecar struct {
	*child.Process
	// Name is its identity.
	Name string
	// Addr and Control are host:port of the read-only and the control endpoints.
	Addr, Control string

	tb TB
}

// Options are what a sidecar is started with.
type Options struct {
	Name  string
	Lock  string
	Redis []string
	// Addr and Control are where it listens; free addresses of loopback when empty.
	Addr, Control string
	// Args are further flags; the last of a kind wins.
	Args []string
	Env  []string
}

// Start starts a sidecar outside Kubernetes, without quarantine and as a native
// sidecar, and waits until it listens. It is killed with the test.
func (p Program) Start(tb TB, opt Options) *Sidecar {
	tb.Helper()
	s := &Sidecar{Name: opt.Name, Addr: addrOr(tb, opt.Addr), Control: addrOr(tb, opt.Control), tb: tb}
	args := append([]string{
		"--lock=" + opt.Lock, "--redis=" + strings.Join(opt.Redis, ","), "--identity=" + opt.Name,
		"--listen=" + s.Addr, "--control-listen=" + s.Control,
		"--publish=none", "--quarantine=0s", "--native-sidecar",
	}, opt.Args...)
	cmd := exec.CommandContext(context.Background(), string(p), args...)
	cmd.Env = append([]string{}, opt.Env...)
	process, err := child.Start(cmd)
	if err != nil {
		tb.Fatalf("sidecartest: start %s: %v", opt.Name, err)
	}
	s.Process = process
	tb.Cleanup(s.end)
	s.waitListening()
	return s
}

// end kills the sidecar, and shows what it said if the test failed.
func (s *Sidecar) end() {
	_ = s.Kill()
	if s.tb.Failed() {
		s.tb.Logf("--- %s (%s) printed:\n%s", s.Name, s.Addr, s.Output())
	}
}

func addrOr(tb TB, given string) string {
	tb.Helper()
	if given != "" {
		return given
	}
	port, err := child.FreePort()
	if err != nil {
		tb.Fatalf("sidecartest: %v", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func (s *Sidecar) waitListening() {
	s.tb.Helper()
	for end := time.Now().Add(readyTimeout); ; time.Sleep(2 * time.Millisecond) {
		_, err := s.Get(context.Background(), "/v1/leadership")
		if err == nil {
			return
		}
		if state := s.Ended(); state != nil {
			s.tb.Fatalf("sidecartest: %s ended at its start (%v):\n%s", s.Name, state, s.Output())
		}
		if time.Now().After(end) {
			s.tb.Fatalf("sidecartest: %s does not listen: %v\n%s", s.Name, err, s.Output())
		}
	}
}

// Terminate sends SIGTERM.
func (s *Sidecar) Terminate() { s.must("terminate", s.Signal(syscall.SIGTERM)) }

// Crash kills it by SIGKILL.
func (s *Sidecar) Crash() { s.must("kill", s.Kill()) }

// ExitCode waits for the end and returns the exit code, -1 after a signal.
func (s *Sidecar) ExitCode(ctx context.Context) (int, error) {
	select {
	case <-s.Done():
		return s.Ended().ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s still runs: %w", s.Name, ctx.Err())
	}
}

func (s *Sidecar) must(what string, err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("sidecartest: %s %s: %v", what, s.Name, err)
	}
}

// Response is an answer that was read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// client keeps no connections: sidecars come and go.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: readyTimeout}

// Get asks a read-only endpoint.
func (s *Sidecar) Get(ctx context.Context, path string) (Response, error) {
	return s.Do(ctx, http.MethodGet, s.Addr, path)
}

// Post asks a control endpoint.
func (s *Sidecar) Post(ctx context.Context, path string) (Response, error) {
	return s.Do(ctx, http.MethodPost, s.Control, path)
}

// Do asks whatever at whichever address.
func (s *Sidecar) Do(ctx context.Context, method, addr, path string) (Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
	if err != nil {
		return Response{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return Response{Status: response.StatusCode, Header: response.Header, Body: string(body)}, err
}

// Leadership is the leadership document.
type Leadership struct {
	Lock         string    `json:"lock"`
	Identity     string    `json:"identity"`
	Role         string    `json:"role"`
	Active       bool      `json:"active"`
	Holder       string    `json:"holder"`
	FencingToken uint64    `json:"fencingToken"`
	Term         string    `json:"term"`
	Since        time.Time `json:"since"`
	ValidForMs   int64     `json:"validForMs"`
	Quorum       struct {
		Size   int `json:"size"`
		Needed int `json:"needed"`
		Held   int `json:"held"`
	} `json:"quorum"`
	Draining bool      `json:"draining"`
	Reason   string    `json:"reason"`
	AsOf     time.Time `json:"asOf"`
}

// Leadership asks for the leadership document.
func (s *Sidecar) Leadership(ctx context.Context) (Leadership, error) {
	response, err := s.Get(ctx, "/v1/leadership")
	if err != nil {
		return Leadership{}, err
	}
	var doc Leadership
	if err := json.Unmarshal([]byte(response.Body), &doc); err != nil {
		return Leadership{}, fmt.Errorf("leadership document %q: %w", response.Body, err)
	}
	return doc, nil
}

// Metric is the sum of the samples of a metric that have all the labels, each given
// as `name="value"`; found is false when there is none.
func (s *Sidecar) Metric(ctx context.Context, name string, labels ...string) (sum float64, found bool, err error) {
	response, err := s.Get(ctx, "/metrics")
	if err != nil {
		return 0, false, err
	}
	sample := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `(\{.*\})? (\S+)$`)
	for _, m := range sample.FindAllStringSubmatch(response.Body, -1) {
		if !hasAll(m[1], labels) {
			continue
		}
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, false, fmt.Errorf("metric %s: %w", m[0], err)
		}
		sum, found = sum+value, true
	}
	return sum, found, nil
}

func hasAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
