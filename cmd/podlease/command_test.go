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
		"command":            {args: []string{"demos"}, says: []string{`"demos"`, "demo", "version"}},
		"flag":               {args: []string{"demo", "--tll=3s"}, says: []string{"--tll"}},
		"argument":           {args: []string{"demo", "now"}, says: []string{`"now"`}},
		"value":              {args: []string{"demo", "--ttl=soon"}, says: []string{"--ttl", `"soon"`, "500ms to 30s"}},
		"range":              {args: []string{"demo", "--ttl=31s"}, says: []string{"--ttl", `"31s"`, "500ms to 30s"}},
		"interval":           {args: []string{"demo", "--interval=1ms"}, says: []string{"--interval", `"1ms"`, "at least 100ms"}},
		"duration":           {args: []string{"demo", "--for=-1s"}, says: []string{"--for", `"-1s"`}},
		"environment":        {args: []string{"demo"}, env: []string{"PODLEASE_TTL=1h"}, says: []string{"PODLEASE_TTL", `"1h0m0s"`}},
		"status, output":     {args: []string{"status", "--redis=a:1", "-o", "xml"}, says: []string{"--output", `"xml"`, "table, json or yaml"}},
		"status, interval":   {args: []string{"status", "--redis=a:1", "--interval=1ms"}, says: []string{"--interval", `"1ms"`, "100ms"}},
		"status, no nodes":   {args: []string{"status", "l"}, says: []string{"--redis"}},
		"status, two places": {args: []string{"status", "--redis=a:1", "-A", "-n", "shop"}, says: []string{"--namespace", `"shop"`, "--all-namespaces"}},
		"doctor, no nodes":   {args: []string{"doctor"}, says: []string{"--redis"}},
		"doctor, lock":       {args: []string{"doctor", "--redis=a:1", "orders"}, says: []string{`"orders"`}},
		"doctor, timeout":    {args: []string{"doctor", "--redis=a:1", "--node-timeout=0s"}, says: []string{"--node-timeout", `"0s"`}},
		"doctor, quarantine": {args: []string{"doctor", "--redis=a:1", "--quarantine=-1s"}, says: []string{"--quarantine", `"-1s"`}},
		"step-down, nothing": {args: []string{"step-down"}, says: []string{"want one"}},
		"exec, no command":   {args: []string{"exec", "--lock=l", "--redis=a:1"}, says: []string{`"--"`, "CMD"}},
		"exec, no dashes":    {args: []string{"exec", "--lock=l", "--redis=a:1", "true"}, says: []string{`"--"`, "CMD"}},
		"exec, no lock":      {args: []string{"exec", "--", "true"}, says: []string{"--lock", "PODLEASE_LOCK", "--sidecar=http://127.0.0.1:8484"}},
		"exec, no nodes":     {args: []string{"exec", "--lock=l", "--", "true"}, says: []string{"--redis", "--sidecar=http://127.0.0.1:8484"}},
		"exec, wait":         {args: []string{"exec", "--wait=long", "--", "true"}, says: []string{"--wait", `"long"`, "forever"}},
		"exec, past":         {args: []string{"exec", "--wait=-1s", "--", "true"}, says: []string{"--wait", `"-1s"`}},
		"exec, on loss":      {args: []string{"exec", "--on-loss=kill", "--", "true"}, says: []string{"--on-loss", `"kill"`, "wait or exit"}},
		"exec, budget":       {args: []string{"exec", "--lock=l", "--redis=a:1", "--stop-budget=0s", "--", "true"}, says: []string{"--stop-budget", `"0s"`, "100ms"}},
		"exec, priority":     {args: []string{"exec", "--lock=l", "--redis=a:1", "--priority=101", "--", "true"}, says: []string{"--priority", `"101"`}},
		"exec, far sidecar":  {args: []string{"exec", "--sidecar=http://10.0.0.1:8484", "--", "true"}, says: []string{"--sidecar", "10.0.0.1", "loopback"}},
		"exec, no port":      {args: []string{"exec", "--sidecar=http://127.0.0.1", "--", "true"}, says: []string{"--sidecar", "port"}},
		"exec, control":      {args: []string{"exec", "--sidecar=http://127.0.0.1:1", "--sidecar-control=:2", "--", "true"}, says: []string{"--sidecar-control", `":2"`}},
		"exec, two leases":   {args: []string{"exec", "--sidecar=http://127.0.0.1:1", "--lock=l", "--", "true"}, says: []string{"--lock", `"l"`, "--sidecar"}},
		"exec, from outside": {args: []string{"exec", "--", "true"}, env: []string{"PODLEASE_SIDECAR=here"}, says: []string{"PODLEASE_SIDECAR", `"here"`}},
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
		"exec's help":     {args: []string{"exec", "--help"}, says: []string{"-- CMD", "PODLEASE_SIDECAR", "PODLEASE_LOCK", "PODLEASE_WAIT", "forever", "75"}},
		"probe's help":    {args: []string{"exec", "probe", "--help"}, says: []string{"Usage: podlease exec probe", "PODLEASE_TIMEOUT", "1s", "--header"}},
		"install's help":  {args: []string{"install", "--help"}, says: []string{"Usage: podlease install [flags] PATH"}},
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
