package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podlease/podlease/cmd/podlease/probe"
	"github.com/podlease/podlease/pkg/settings"
)

const probeAbout = `Is for the probes of a container whose command runs under podlease exec. While no command
runs there, because the Pod is a standby, it succeeds; else it does what the kubelet's own
probe would have done: http and https succeed with a status from 200 to 399, tcp with a
connection, grpc when the health service says SERVING, and CMD with exit code 0.`

const (
	probeTimeoutAllowed = "a duration above 0s and at most 10m, such as 1s"
	graceAllowed        = "a duration from 0s to 24h, such as 30s"
	probeWants          = `exec probe: want one target, such as http://127.0.0.1:8080/healthz, tcp://127.0.0.1:5432 or grpc://127.0.0.1:9000/service, or "--" and a command`
)

// probeOptions are all that podlease exec probe is told.
type probeOptions struct {
	timeout time.Duration
	grace   time.Duration
	headers []string

	target  probe.Target
	command []string // instead of the target
}

// running tells whether a command runs under podlease exec in this container, and for how
// long.
type running func() (bool, time.Duration, error)

func probeCommand(running running) command {
	return command{
		name:      "probe",
		summary:   "probe the command that runs under podlease exec",
		arguments: "TARGET | -- CMD [ARG…]",
		about:     probeAbout,
		prepare: func(flags *settings.Flags) action {
			opt, arguments := newProbeOptions(flags), flags.Arguments()
			return func(ctx context.Context, call call) error {
				if err := opt.complete(flags, *arguments); err != nil {
					return err
				}
				return opt.run(ctx, call, running)
			}
		},
	}
}

func newProbeOptions(f *settings.Flags) *probeOptions {
	o := &probeOptions{}
	f.Duration(&o.timeout, time.Second, settings.Flag{Name: "timeout", Usage: "how long the probe may take", Allowed: probeTimeoutAllowed})
	f.Duration(&o.grace, 0, settings.Flag{Name: "grace", Usage: "for how long after the command's start the probe succeeds whatever comes of it", Allowed: graceAllowed})
	f.Texts(&o.headers, settings.Flag{Name: "header", Usage: `a header of the HTTP request, such as "Host: shop"; may be repeated`, Allowed: `"Name: value", for http:// and https:// only`})
	return o
}

func (o *probeOptions) complete(f *settings.Flags, arguments []string) (err error) {
	switch {
	case o.timeout <= 0 || o.timeout > 10*time.Minute:
		return f.Reject("timeout", o.timeout.String(), probeTimeoutAllowed)
	case o.grace < 0 || o.grace > 24*time.Hour:
		return f.Reject("grace", o.grace.String(), graceAllowed)
	case f.Dash() == 0 && len(arguments) > 0 && arguments[0] != "":
		if len(o.headers) > 0 {
			return f.Reject("header", o.headers[0], `none with a command: headers are for http:// and https://`)
		}
		o.command = arguments
		return nil
	case f.Dash() >= 0 || len(arguments) != 1:
		return &settings.Error{Text: probeWants}
	}
	if o.target, err = probe.Parse(arguments[0], o.headers); err != nil {
		return &settings.Error{Text: fmt.Sprintf("exec probe: %v", err)}
	}
	return nil
}

func (o *probeOptions) run(ctx context.Context, call call, running running) error {
	runs, since, err := running()
	if err != nil {
		return err
	}
	if !runs {
		_, err := fmt.Fprintln(call.stdout, "no command runs: the Pod is a standby")
		return err
	}
	err = o.check(ctx, call)
	if err != nil && since < o.grace {
		_, err = fmt.Fprintf(call.stdout, "the command was started %v ago, so this does not count yet: %v\n", since.Round(time.Millisecond), err)
	}
	return err
}

func (o *probeOptions) check(ctx context.Context, call call) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("it took longer than %v", o.timeout))
	defer cancel()
	err := o.ask(ctx, call)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if _, ended := errors.AsType[commandError](err); err == nil || ended {
		return err
	}
	return fmt.Errorf("probe failed: %w", err)
}

func (o *probeOptions) ask(ctx context.Context, call call) error {
	if o.command == nil {
		return o.target.Check(ctx)
	}
	code, err := probe.RunCommand(ctx, o.command, call.env, call.stdout, call.stderr)
	if err == nil && code != 0 {
		return commandError(code)
	}
	return err
}
