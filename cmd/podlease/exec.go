package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/podlease/podlease/pkg/settings"
	"github.com/podlease/podlease/pkg/statusapi"
)

const execAbout = `Runs CMD only while this candidate holds the lease: either one of its own, with --lock and
--redis, or that of the sidecar beside it, with --sidecar. When the leadership ends, CMD's
processes get SIGTERM, and SIGKILL so early that they are dead before anybody else can be
given the lease. Then it waits for the lease again.

CMD finds PODLEASE_FENCING_TOKEN and PODLEASE_TERM in its environment. Signals are passed
on to its process group. It has to stay in the foreground: what it leaves behind when it
ends is ended too. For probes there is podlease exec probe, with a help of its own.

Exit codes: that of CMD, 128+n when signal n killed it; 75 the lease was not to be had
within --wait; 42 the lease was lost, with --on-loss=exit; 2 bad settings; 3 the nodes can
never make a quorum of fit nodes; 126 or 127 CMD cannot be started or found; 1 anything
else.`

// What --on-loss takes.
const (
	onLossWait = "wait"
	onLossExit = "exit"
)

const (
	waitForever = "forever"
	waitAllowed = `"forever", or a duration of at least 0s such as 30s`
	// minStopBudget leaves time for SIGTERM, SIGKILL and the kernel.
	minStopBudget  = 100 * time.Millisecond
	budgetAllowed  = "a duration of at least 100ms and below --ttl, such as 2500ms: it is what there is for stopping the command"
	sidecarAllowed = "http:// with a loopback host and a port, such as http://127.0.0.1:8484"
)

// execOptions are all that podlease exec is told.
type execOptions struct {
	lease    settings.Lease
	redis    settings.Redis
	identity settings.Identity
	logging  settings.Logging

	sidecar, control string
	waitText         string
	wait             time.Duration // negative: forever
	onLoss           string
	fencing          string
	priority         int

	command  []string
	warnings []string
}

func newExecOptions(f *settings.Flags) *execOptions {
	o := &execOptions{}
	f.String(&o.sidecar, "", settings.Flag{Name: "sidecar", Usage: "follow the sidecar at this address, instead of holding a lease of one's own", Allowed: sidecarAllowed})
	f.String(&o.control, "", settings.Flag{Name: "sidecar-control", Usage: "where the sidecar's control verbs are", Default: "the port after that of --sidecar", Allowed: sidecarAllowed})
	f.String(&o.waitText, waitForever, settings.Flag{Name: "wait", Usage: "how long to wait for the lease, again after each loss; 0s gives up when somebody else holds it", Allowed: waitAllowed})
	f.Enum(&o.onLoss, onLossWait, []string{onLossWait, onLossExit}, settings.Flag{Name: "on-loss", Usage: "when the leadership ended while the command ran and the command was stopped: wait for the lease and start the command again, or exit with code 42"})
	o.lease.AddFlags(f)
	o.redis.AddFlags(f)
	o.identity.AddNameFlags(f)
	f.Enum(&o.fencing, "redis", []string{"redis", "off"}, settings.Flag{Name: "fencing", Usage: "where fencing tokens come from: a counter on the nodes, or nowhere"})
	f.Int(&o.priority, 0, settings.Flag{Name: "priority", Usage: "a lower one starts contending later, and never takes a held lease away", Allowed: "a whole number from -100 to 100"})
	o.logging.AddFlags(f)
	return o
}

// complete works out what depends on other settings, and checks everything.
func (o *execOptions) complete(f *settings.Flags, arguments []string) error {
	if f.Dash() != 0 || len(arguments) == 0 || arguments[0] == "" {
		return &settings.Error{Text: `exec: want "--" and the command after the flags, such as podlease exec --lock L --redis NODES -- CMD ARG`}
	}
	o.command = arguments
	if err := o.completeWait(f); err != nil {
		return err
	}
	if o.sidecar != "" {
		return o.completeSidecar(f)
	}
	return o.completeOwn(f)
}

func (o *execOptions) completeWait(f *settings.Flags) (err error) {
	if o.waitText == waitForever {
		o.wait = -1
		return nil
	}
	if o.wait, err = time.ParseDuration(o.waitText); err != nil || o.wait < 0 {
		return f.Reject("wait", o.waitText, waitAllowed)
	}
	return nil
}

// completeSidecar checks what is followed. The other's lease is not ours to configure.
func (o *execOptions) completeSidecar(f *settings.Flags) error {
	if f.Given("lock") {
		return f.Reject("lock", o.lease.Lock, "none together with --sidecar, which holds the lease of its own lock")
	}
	host, port, err := loopback(o.sidecar)
	if err != nil {
		return f.Reject("sidecar", o.sidecar, sidecarAllowed)
	}
	o.sidecar = "http://" + net.JoinHostPort(host, strconv.Itoa(port))
	if !f.Given("sidecar-control") {
		o.control = "http://" + net.JoinHostPort(host, strconv.Itoa(port+1))
	}
	if host, port, err = loopback(o.control); err != nil {
		return f.Reject("sidecar-control", o.control, sidecarAllowed)
	}
	o.control = "http://" + net.JoinHostPort(host, strconv.Itoa(port))
	return nil
}

// loopback reads an address such as http://127.0.0.1:8484.
func loopback(address string) (host string, port int, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", 0, err
	}
	if u.Scheme != "http" || u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return "", 0, fmt.Errorf("address %q has more than scheme, host and port", address)
	}
	if err := statusapi.CheckLoopback(u.Host); err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Hostname(), int(n), err
}

func (o *execOptions) completeOwn(f *settings.Flags) error {
	warnings, err := settings.CompleteBoth(&o.lease, &o.redis, f)
	if err != nil {
		return orSidecar(f, err)
	}
	o.warnings = warnings
	switch {
	case o.lease.StopBudget < minStopBudget:
		return f.Reject("stop-budget", o.lease.StopBudget.String(), budgetAllowed)
	case o.priority < -100 || o.priority > 100:
		return f.Reject("priority", strconv.Itoa(o.priority), "a whole number from -100 to 100")
	}
	return o.identity.Complete(f)
}

// orSidecar adds to the error about a setting that is missing the way of doing without it.
func orSidecar(f *settings.Flags, err error) error {
	missing, ok := errors.AsType[*settings.Error](err)
	if !ok || f.Given(missing.Flag) || missing.Flag != "lock" && missing.Flag != "redis" {
		return err
	}
	return &settings.Error{Flag: missing.Flag, Text: missing.Text + "; or follow the sidecar beside the command, with --sidecar=http://127.0.0.1:8484"}
}
