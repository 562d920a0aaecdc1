package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// probed runs podlease exec probe beside a command that has run for some time.
func probed(t *testing.T, running running, args ...string) (code int, output string) {
	t.Helper()
	var out, errOut strings.Builder
	c := probeCommand(running)
	c.name = "exec probe"
	err := c.execute(t.Context(), call{args: args, stdout: &out, stderr: &errOut})
	return codeOf(err, &errOut), out.String() + errOut.String()
}

func commandRunsFor(d time.Duration) running {
	return func() (bool, time.Duration, error) { return true, d, nil }
}

func noCommandRuns() (bool, time.Duration, error) { return false, 0, nil }

func TestAProbeSucceedsUnlessACommandRunsAndIsNotWell(t *testing.T) {
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer sick.Close()
	unknown := func() (bool, time.Duration, error) { return false, 0, errors.New("no /proc") }
	for name, tc := range map[string]struct {
		running running
		args    []string
		code    int
	}{
		"standby":                     {noCommandRuns, []string{sick.URL}, 0},
		"standby, command":            {noCommandRuns, []string{"--", "/bin/false"}, 0},
		"active and sick":             {commandRunsFor(time.Hour), []string{sick.URL}, 1},
		"active and well":             {commandRunsFor(time.Hour), []string{sick.URL + "/ok"}, 0},
		"active, command fails":       {commandRunsFor(time.Hour), []string{"--", "/bin/sh", "-c", "exit 7"}, 7},
		"active, command succeeds":    {commandRunsFor(time.Hour), []string{"--", "/bin/true"}, 0},
		"active, command not there":   {commandRunsFor(time.Hour), []string{"--", "/bin/none"}, 1},
		"active, too slow":            {commandRunsFor(time.Hour), []string{"--timeout=20ms", "--", "/bin/sleep", "600"}, 1},
		"just started":                {commandRunsFor(time.Second), []string{"--grace=30s", sick.URL}, 0},
		"just started, command fails": {commandRunsFor(time.Second), []string{"--grace=30s", "--", "/bin/false"}, 0},
		"no longer just started":      {commandRunsFor(31 * time.Second), []string{"--grace=30s", sick.URL}, 1},
		"not known whether it runs":   {unknown, []string{sick.URL + "/ok"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if code, output := probed(t, tc.running, tc.args...); code != tc.code {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, output)
			}
		})
	}
}

func TestWrongProbesExitTwoWithOneLine(t *testing.T) {
	for says, args := range map[string][]string{
		"want one target":     {},
		"want one target, ":   {"http://a", "http://b"},
		`such as http`:        {"--"},
		`or grpc`:             {"http://a", "--", "true"},
		`"shop:80"`:           {"shop:80"},
		`--timeout "0s"`:      {"--timeout=0s", "http://a"},
		`--grace "-1s"`:       {"--grace=-1s", "http://a"},
		`"Host"`:              {"--header=Host", "http://a"},
		`"Host: x"`:           {"--header=Host: x", "tcp://a:1"},
		`--header "Host: x"`:  {"--header=Host: x", "--", "true"},
		`unknown flag "--to"`: {"--to=1", "http://a"},
	} {
		code, output := probed(t, commandRunsFor(0), args...)
		if code != 2 || !strings.Contains(output, says) || strings.Count(output, "\n") != 1 {
			t.Errorf("%q: exit code %d, %q; want 2 and one line that says %s", args, code, output, says)
		}
	}
}
