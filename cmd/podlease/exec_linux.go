package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/cmd/podlease/guard"
	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/pkg/settings"
)

func execCommand() command {
	return command{
		name:      "exec",
		summary:   "run a command only while a lease is held",
		arguments: "-- CMD [ARG…]",
		about:     execAbout,
		prepare:   prepareExec,

		subcommands: []command{probeCommand(guard.RunningFor)},
	}
}

func prepareExec(flags *settings.Flags) action {
	opt, arguments := newExecOptions(flags), flags.Arguments()
	return func(ctx context.Context, call call) error {
		if err := opt.complete(flags, *arguments); err != nil {
			return err
		}
		return runExec(context.WithoutCancel(ctx), call, opt) // signals are the command's
	}
}

func runExec(ctx context.Context, call call, opt *execOptions) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	defer signal.Stop(signals)
	log := opt.logging.Logger(call.stderr)
	for _, warning := range opt.warnings {
		log.Info("warning", "about", warning)
	}
	process, err := guard.NewProcess(opt.command, call.env)
	if err != nil {
		return err
	}
	alarm, err := guard.NewBootAlarm()
	if err != nil {
		return err
	}
	defer alarm.Close()
	leadership, end, err := openLeadership(opt, log)
	if err != nil {
		return err
	}
	defer end()
	code, err := guard.Run(ctx, guard.Config{
		Leadership: leadership, Command: process, Signals: signals,
		Wait: opt.wait, ExitOnLoss: opt.onLoss == onLossExit, Clock: boottime.Now, Alarm: alarm, Log: log,
	})
	if err != nil {
		return err
	}
	return commandError(code)
}

// passedOn are the signals that people and programs send. Those that were ignored when we
// started, as nohup does, stay so.
func passedOn() []os.Signal {
	var out []os.Signal
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH,
	} {
		if !signal.Ignored(s) {
			out = append(out, s)
		}
	}
	return out
}

// ownLease is a candidate of our own with what it needs.
type ownLease struct {
	nodes  []*redisnode.Node
	locker *redlock.Locker
}

// openLeadership makes what the command's right to run comes from; end closes it.
func openLeadership(opt *execOptions, log logr.Logger) (l guard.Leadership, end func(), err error) {
	if opt.sidecar != "" {
		return guard.NewSidecar(opt.sidecar, opt.control, boottime.Now, log), func() {}, nil
	}
	own := &ownLease{}
	leadership, err := own.open(opt, log)
	if err != nil {
		own.close()
		return nil, nil, err
	}
	return leadership, own.close, nil
}

func (o *ownLease) open(opt *execOptions, log logr.Logger) (*guard.Own, error) {
	var nodes []redlock.Node
	for _, cfg := range opt.redis.Configs(opt.lease) {
		cfg.Log, cfg.ClientName = log, "podlease-exec"
		node, err := redisnode.New(cfg)
		if err != nil {
			return nil, &settings.Error{Flag: "redis", Text: "--redis: " + err.Error()}
		}
		o.nodes, nodes = append(o.nodes, node), append(nodes, node)
	}
	options := opt.lease.Options(opt.identity.Name)
	options.NoFencing = opt.fencing == "off"
	var err error
	if o.locker, err = redlock.New(nodes, options); err != nil {
		return nil, &settings.Error{Text: err.Error()}
	}
	candidate, err := election.New(o.locker, election.Config{
		Lock: opt.lease.Lock, Identity: opt.identity.Name, Priority: opt.priority,
		NativeSidecar: true, // the command has ended when the candidate is told to end
		Log:           log,
	})
	if err != nil {
		return nil, &settings.Error{Text: err.Error()}
	}
	return &guard.Own{Candidate: candidate, StopBudget: opt.lease.StopBudget, Clock: boottime.Now}, nil
}

func (o *ownLease) close() {
	if o.locker != nil {
		o.locker.Close()
	}
	for _, node := range o.nodes {
		_ = node.Close() // nothing is under way any more
	}
}
