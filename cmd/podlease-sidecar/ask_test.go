package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/statusapi"
)

// beside stands for the sidecar that is asked, and remembers what for.
type beside struct {
	refusal error
	asked   []string
}

func (b *beside) note(verb string) error {
	b.asked = append(b.asked, verb)
	return b.refusal
}

func (b *beside) Drain() error                   { return b.note("drain") }
func (b *beside) StepDown(d time.Duration) error { return b.note("step-down " + d.String()) }
func (b *beside) Pause() error                   { return b.note("pause") }
func (b *beside) Resume() error                  { return b.note("resume") }
func (b *beside) Stopped() error                 { return b.note("stopped") }
func (b *beside) Changed() <-chan struct{}       { return nil }
func (b *beside) Health() election.Health        { return election.Health{} }
func (b *beside) Nodes() []election.NodeState    { return nil }

func (b *beside) Leadership() election.Leadership {
	return election.Leadership{Lock: "orders", Identity: "shop/a", Role: election.Standby, Reason: "as asked"}
}

func (b *beside) start(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(statusapi.NewControlHandler(b, b))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestSubcommands(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"drain":                 {[]string{"drain"}, "drain"},
		"pause":                 {[]string{"pause"}, "pause"},
		"resume":                {[]string{"resume"}, "resume"},
		"stopped":               {[]string{"stopped"}, "stopped"},
		"step-down":             {[]string{"step-down"}, "step-down 30s"},
		"step-down for":         {[]string{"step-down", "--for=5m"}, "step-down 5m0s"},
		"step-down for no time": {[]string{"step-down", "--for", "0s"}, "step-down 0s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := &beside{}
			env := []string{"PODLEASE_CONTROL_LISTEN=" + b.start(t), "HTTP_PROXY=http://192.0.2.1:1"}
			code, stdout, stderr := runWith(t, env, tt.args...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			if stdout != "lock orders: shop/a is standby, as asked\n" {
				t.Errorf("output %q", stdout)
			}
			if len(b.asked) != 1 || b.asked[0] != tt.want {
				t.Errorf("asked for %q, want %q", b.asked, tt.want)
			}
		})
	}
}

func TestSubcommandThatIsRefused(t *testing.T) {
	b := &beside{refusal: &election.RefusedError{Reason: "nothing is held"}}
	code, stdout, stderr := runWith(t, nil, "stopped", "--control-listen="+b.start(t))
	if code != exitOther || stdout != "" || !strings.Contains(stderr, "nothing is held") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, output %q, stderr %q", code, stdout, stderr)
	}
}

func TestSubcommandWithoutSidecar(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	code, _, stderr := runWith(t, nil, "drain", "--control-listen="+address)
	if code != exitOther || !strings.Contains(stderr, address) || !strings.Contains(stderr, "--control-listen") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestSubcommandGivesUpOnASilentSidecar(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	address := strings.TrimPrefix(silent.URL, "http://")
	code, _, stderr := runWith(t, nil, "drain", "--timeout=50ms", "--control-listen="+address)
	if code != exitOther || !strings.Contains(stderr, address) {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestSubcommandThatGetsNonsense(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	code, _, stderr := runWith(t, nil, "drain", "--control-listen="+strings.TrimPrefix(other.URL, "http://"))
	if code != exitOther || !strings.Contains(stderr, "404") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestSubcommandWrongValues(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"elsewhere":        {[]string{"drain", "--control-listen=10.0.0.1:1"}, []string{"--control-listen", "loopback"}},
		"timeout":          {[]string{"drain", "--timeout=0s"}, []string{"--timeout", "above 0s"}},
		"for":              {[]string{"step-down", "--for=-1s"}, []string{"--for", "0s to 24h"}},
		"for too long":     {[]string{"step-down", "--for=25h"}, []string{"--for", "0s to 24h"}},
		"for of another":   {[]string{"drain", "--for=1s"}, []string{"--for", "unknown flag"}},
		"an argument":      {[]string{"drain", "now"}, []string{"now"}},
		"no such command":  {[]string{"reboot"}, []string{`unknown command "reboot"`, "drain, step-down, pause, resume, stopped", "--help"}},
		"value of no kind": {[]string{"step-down", "--for=soon"}, []string{"--for", `"soon"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runWith(t, nil, tt.args...)
			assertUsageError(t, code, stdout, stderr)
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("message %q does not contain %q", stderr, want)
				}
			}
		})
	}
}

func TestSubcommandHelp(t *testing.T) {
	for _, v := range verbs {
		code, stdout, _ := runWith(t, nil, v.name, "--help")
		if code != 0 || !strings.Contains(stdout, v.about) || !strings.Contains(stdout, "PODLEASE_CONTROL_LISTEN") {
			t.Errorf("%s: exit code %d, help %q", v.name, code, stdout)
		}
	}
}
