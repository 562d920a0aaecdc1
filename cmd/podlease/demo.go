package main

import (
	"context"
	"os"

	"github.com/podlease/podlease/cmd/podlease/demo"
	"github.com/podlease/podlease/pkg/settings"
)

func demoCommand() command {
	return command{
		name:    "demo",
		summary: "watch elections, hand-overs and crashes in one process",
		about: "Runs three embedded Redis nodes and three candidates in this process, and tells what\n" +
			"happens to their lock. It needs no Redis, no Kubernetes and no network. Ctrl-C ends it.",
		prepare: prepareDemo,
	}
}

func prepareDemo(flags *settings.Flags) action {
	var opt demo.Options
	flags.Duration(&opt.TTL, demo.DefaultTTL, settings.Flag{Name: "ttl", Usage: "how long a lease lasts without renewal", Allowed: demo.AllowedTTL})
	flags.Duration(&opt.Interval, demo.DefaultInterval, settings.Flag{Name: "interval", Usage: "how long it is quiet before something happens", Allowed: demo.AllowedInterval})
	flags.Duration(&opt.For, 0, settings.Flag{Name: "for", Usage: "how long to go on; 0s means until Ctrl-C", Allowed: demo.AllowedFor})
	flags.Bool(&opt.Once, false, settings.Flag{Name: "once", Usage: "end after one election, one hand-over and one crash"})
	return func(ctx context.Context, call call) error {
		if err := checkDemo(flags, opt); err != nil {
			return err
		}
		opt.Out, opt.Color = call.stdout, wantsColor(call, flags)
		return demo.Run(ctx, opt)
	}
}

func checkDemo(flags *settings.Flags, opt demo.Options) error {
	switch {
	case opt.TTL < demo.MinTTL || opt.TTL > demo.MaxTTL:
		return flags.Reject("ttl", opt.TTL.String(), demo.AllowedTTL)
	case opt.Interval < demo.MinInterval:
		return flags.Reject("interval", opt.Interval.String(), demo.AllowedInterval)
	case opt.For < 0:
		return flags.Reject("for", opt.For.String(), demo.AllowedFor)
	}
	return nil
}

// wantsColor reports whether the output is a terminal whose user did not turn
// colour off (no-color.org).
func wantsColor(call call, flags *settings.Flags) bool {
	file, ok := call.stdout.(*os.File)
	if !ok || flags.Env("NO_COLOR") != "" || flags.Env("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
