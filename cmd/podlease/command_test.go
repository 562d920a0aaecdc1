package main

import (
	"strings"
	"testing"
)

func TestWrongCommandLinesExitTwoWithOneLine(t *testing.T) {
	for name, tc := range map[string]struct {
		args, env []string
		says      []string
	}{
		"command":     {args: []string{"demos"}, says: []string{`"demos"`, "demo", "version"}},
		"flag":        {args: []string{"demo", "--tll=3s"}, says: []string{"--tll"}},
		"argument":    {args: []string{"demo", "now"}, says: []string{`"now"`}},
		"value":       {args: []string{"demo", "--ttl=soon"}, says: []string{"--ttl", `"soon"`, "500ms to 30s"}},
		"range":       {args: []string{"demo", "--ttl=31s"}, says: []string{"--ttl", `"31s"`, "500ms to 30s"}},
		"interval":    {args: []string{"demo", "--interval=1ms"}, says: []string{"--interval", `"1ms"`, "at least 100ms"}},
		"duration":    {args: []string{"demo", "--for=-1s"}, says: []string{"--for", `"-1s"`}},
		"environment": {args: []string{"demo"}, env: []string{"PODLEASE_TTL=1h"}, says: []string{"PODLEASE_TTL", `"1h0m0s"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := run(t.Context(), tc.args, tc.env, &stdout, &stderr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if strings.Count(stderr.String(), "\n") != 1 || stdout.String() != "" {
				t.Errorf("stdout %q, stderr %q: want one line on stderr", stdout.String(), stderr.String())
			}
			for _, part := range tc.says {
				if !strings.Contains(stderr.String(), part) {
					t.Errorf("%q does not say %s", stderr.String(), part)
				}
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says []string
	}{
		"nothing":         {says: []string{"Usage:", "demo", "version"}},
		"help":            {args: []string{"--help"}, says: []string{"Usage:", "demo", "version"}},
		"command's help":  {args: []string{"demo", "--help"}, says: []string{"--ttl", "3s", "PODLEASE_TTL", "--interval", "--for", "--once"}},
		"version":         {args: []string{"version"}, says: []string{"podlease ", "linux"}},
		"--version":       {args: []string{"--version"}, says: []string{"podlease "}},
		"demo --version":  {args: []string{"demo", "--version"}, says: []string{"podlease "}},
		"version --help ": {args: []string{"version", "--help"}, says: []string{"Usage: podlease version"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := run(t.Context(), tc.args, nil, &stdout, &stderr); code != 0 {
				t.Errorf("exit code %d: %s", code, stderr.String())
			}
			for _, part := range tc.says {
				if !strings.Contains(stdout.String(), part) {
					t.Errorf("%q does not say %s", stdout.String(), part)
				}
			}
		})
	}
}
