package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/settings"
)

// The exit codes. Restart rules of Pods rely on them.
const (
	exitOK    = 0
	exitOther = 1
	exitUsage = 2  // bad configuration
	exitUnfit = 3  // the nodes can never make a quorum of fit nodes
	exitLost  = 42 // the lease was lost without having been asked for, with --on-loss=exit
)

const program = "podlease-sidecar"

// errLost ends the program when the lease was lost and --on-loss=exit.
var errLost = errors.New("exiting as --on-loss=exit asks")

// run executes one command line and returns the exit code.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, env, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", program, oneLine(err.Error()))
	}
	return exitCode(err)
}

func dispatch(ctx context.Context, args, env []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && isVerb(args[0]) {
		return askSidecar(ctx, args[0], args[1:], env, stdout)
	}
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		return &settings.Error{Text: fmt.Sprintf("unknown command %q: want %s, or flags only; --help lists them", args[0], strings.Join(verbNames(), ", "))}
	}
	opt, flags := newOptions()
	err := opt.parse(flags, args, env)
	switch {
	case errors.Is(err, settings.ErrHelp):
		writeHelp(stdout, flags)
		return nil
	case errors.Is(err, settings.ErrVersion):
		return writeVersion(stdout)
	case err != nil:
		return err
	}
	return serve(ctx, opt, opt.logging.Logger(stderr))
}

func exitCode(err error) int {
	var setting *settings.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &setting):
		return exitUsage
	case errors.Is(err, election.ErrUnfit):
		return exitUnfit
	case errors.Is(err, errLost):
		return exitLost
	}
	return exitOther
}

// oneLine keeps a message on one line, whatever a value in it contains.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func writeHelp(w io.Writer, flags *settings.Flags) {
	fmt.Fprintf(w, `Usage: %[1]s --lock NAME --redis NODES [flags]
       %[1]s drain|step-down|pause|resume|stopped [flags]

Takes part in the election of one lock, and tells over HTTP whether it is active. The
second form asks the sidecar of the same Pod for something; its own --help tells more.

Flags:
`, program)
	flags.WriteHelp(w)
	fmt.Fprintf(w, `
Exit codes: %d after an orderly stop; %d bad configuration; %d the nodes can never make a
quorum of fit nodes; %d the lease was lost, with --on-loss=exit; %d anything else.
`, exitOK, exitUsage, exitUnfit, exitLost, exitOther)
}
