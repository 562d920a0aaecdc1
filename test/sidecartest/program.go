// Package sidecartest builds podlease-sidecar and runs it as a process of its own, so
// that tests see what its users see: flags, exit codes, HTTP, logs and signals.
package sidecartest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// TB is the part of testing.TB that a sidecar needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// Program is a built podlease-sidecar.
type Program string

// Build builds the sidecar from this module's sources; it is removed with the test.
func Build(tb TB) Program {
	tb.Helper()
	return build(tb, "podlease-sidecar")
}

// BuildTool builds the tool, podlease, in the same way.
func BuildTool(tb TB) Program {
	tb.Helper()
	return build(tb, "podlease")
}

func build(tb TB, name string) Program {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sidecartest-")
	if err != nil {
		tb.Fatalf("sidecartest: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	source, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/podlease/podlease").Output()
	if err != nil {
		tb.Fatalf("sidecartest: find the module: %v", err)
	}
	program := filepath.Join(dir, name)
	build := exec.CommandContext(context.Background(), "go", "build", "-C", strings.TrimSpace(string(source)), "-o", program, "./cmd/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("sidecartest: build: %v\n%s", err, out)
	}
	return Program(program)
}

// Run runs the program to its end, with nothing of this process's environment but
// env, and returns its exit code and what it printed.
func (p Program) Run(ctx context.Context, env []string, args ...string) (code int, stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, string(p), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String(), err
}
