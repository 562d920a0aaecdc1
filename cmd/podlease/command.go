package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/podlease/podlease/cmd/podlease/guard"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/settings"
)

// The exit codes that mean the same in every program of podlease.
const (
	exitOther = 1
	exitUsage = 2
	exitUnfit = 3 // the nodes can never make a quorum of fit nodes
)

// command is one of the tool's verbs.
type command struct {
	name      string
	summary   string // one line, for the list of commands
	arguments string // what follows the flags, for its own help
	about     string // what its own help says before the flags
	// subcommands are named by the word after the command's name.
	subcommands []command
	// prepare adds the flags and returns what does the work once they are parsed.
	prepare func(flags *settings.Flags) action
}

// action does a command's work.
type action func(ctx context.Context, call call) error

// call is what a command may use of the process it runs in.
type call struct {
	args, env      []string
	stdout, stderr io.Writer
}

func commands() []command {
	return []command{demoCommand(), doctorCommand(), execCommand(), installCommand(), statusCommand(), stepDownCommand(), versionCommand()}
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return codeOf(dispatch(ctx, call{args: args, env: env, stdout: stdout, stderr: stderr}), stderr)
}

// codeOf says what went wrong, in one line, and returns the exit code for it.
func codeOf(err error, stderr io.Writer) int {
	if code, ended := errors.AsType[commandError](err); ended {
		return int(code)
	}
	if err != nil {
		fmt.Fprintf(stderr, "podlease: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	}
	return exitCode(err)
}

// commandError is an exit code of which everything has been said already: that of somebody
// else's command, or a verdict.
type commandError int

func (c commandError) Error() string { return fmt.Sprintf("the command ended with code %d", int(c)) }

func exitCode(err error) int {
	if exit, ok := errors.AsType[*guard.ExitError](err); ok {
		return exit.Code
	}
	_, wrong := errors.AsType[*settings.Error](err)
	switch {
	case err == nil:
		return 0
	case wrong:
		return exitUsage
	case errors.Is(err, election.ErrUnfit):
		return exitUnfit
	}
	return exitOther
}

func dispatch(ctx context.Context, call call) error {
	name := "--help"
	if len(call.args) > 0 {
		name, call.args = call.args[0], call.args[1:]
	}
	switch name {
	case "-h", "--help", "help":
		writeOverview(call.stdout)
		return nil
	case "--version":
		return printVersion(ctx, call)
	}
	for _, c := range commands() {
		if c.name == name {
			return c.execute(ctx, call)
		}
	}
	return &settings.Error{Text: fmt.Sprintf("unknown command %q: want %s", name, strings.Join(commandNames(), ", "))}
}

func (c command) execute(ctx context.Context, call call) error {
	for _, sub := range c.subcommands {
		if len(call.args) > 0 && call.args[0] == sub.name {
			sub.name, call.args = c.name+" "+sub.name, call.args[1:]
			return sub.execute(ctx, call)
		}
	}
	flags := settings.NewFlags("podlease " + c.name)
	act := c.prepare(flags)
	err := flags.Parse(call.args, call.env)
	switch {
	case errors.Is(err, settings.ErrHelp):
		fmt.Fprintf(call.stdout, "Usage: podlease %s\n\n%s\n\nFlags:\n", strings.TrimSpace(c.name+" [flags] "+c.arguments), c.about)
		flags.WriteHelp(call.stdout)
		return nil
	case errors.Is(err, settings.ErrVersion):
		return printVersion(ctx, call)
	case err != nil:
		return err
	}
	return act(ctx, call)
}

func commandNames() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

func writeOverview(w io.Writer) {
	fmt.Fprint(w, "podlease: leader election for Pods over independent Redis nodes\n\nUsage: podlease COMMAND [flags]\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\npodlease COMMAND --help lists its flags.\n")
}
