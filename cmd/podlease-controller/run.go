package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/podlease/podlease/pkg/settings"
)

// The exit codes.
const (
	exitOK    = 0
	exitOther = 1
	exitUsage = 2 // bad configuration
)

const program = "podlease-controller"

// version is set at link time by a release build.
var version = ""

// run executes one command line and returns the exit code.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, env, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", program, strings.Join(strings.Fields(err.Error()), " "))
	}
	var setting *settings.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &setting):
		return exitUsage
	}
	return exitOther
}

func dispatch(ctx context.Context, args, env []string, stdout, stderr io.Writer) error {
	opt, flags := newOptions()
	err := opt.parse(flags, args, env)
	switch {
	case errors.Is(err, settings.ErrHelp):
		writeHelp(stdout, flags)
		return nil
	case errors.Is(err, settings.ErrVersion):
		_, err := fmt.Fprintf(stdout, "%s %s (%s, %s/%s)\n", program, buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	case err != nil:
		return err
	}
	return serve(ctx, opt, opt.logging.Logger(stderr))
}

// buildVersion is what a release build said, else what the Go command noted.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func writeHelp(w io.Writer, flags *settings.Flags) {
	fmt.Fprintf(w, `Usage: %s --config FILE [flags]

Serves the admission webhooks that put podlease's sidecar into Pods, and runs the
controllers that look after what injected Pods need.

Flags:
`, program)
	flags.WriteHelp(w)
	fmt.Fprintf(w, "\nExit codes: %d after an orderly stop; %d bad configuration; %d anything else.\n", exitOK, exitUsage, exitOther)
}
