package main

import (
	"context"
	"fmt"
	"time"

	"github.com/podlease/podlease/cmd/podlease/pods"
	"github.com/podlease/podlease/pkg/settings"
)

func stepDownCommand() command {
	return command{
		name:      "step-down",
		summary:   "ask the active Pod of a lock to hand over",
		arguments: "LOCK",
		about: "Asks the active Pod of a lock to hand over to another, by a new value of its annotation\n" +
			"podlease.io/step-down, which its sidecar reads. It needs the right to list and patch Pods.",
		prepare: prepareStepDown,
	}
}

func prepareStepDown(flags *settings.Flags) action {
	var opt clusterOptions
	opt.addFlags(flags, "the part of LOCK before its first slash, else the context's")
	arguments := flags.Arguments()
	return func(ctx context.Context, call call) error {
		if len(*arguments) != 1 || (*arguments)[0] == "" {
			return &settings.Error{Text: fmt.Sprintf("step-down: %d arguments: want one, the name of a lock such as shop/orders", len(*arguments))}
		}
		if err := opt.check(flags); err != nil {
			return err
		}
		return stepDown(ctx, call, opt, (*arguments)[0])
	}
}

func stepDown(ctx context.Context, call call, opt clusterOptions, lock string) error {
	cluster, candidates, err := opt.candidates(ctx, lock)
	if err != nil {
		return err
	}
	active, standby := byRole(candidates, lock)
	if len(active) == 0 {
		return fmt.Errorf("no Pod is active for lock %q: %d of its Pods stand by", lock, standby)
	}
	for _, p := range active {
		if err := cluster.StepDown(ctx, p, time.Now().UTC().Format(time.RFC3339Nano)); err != nil {
			return err
		}
		fmt.Fprintf(call.stdout, "pod %s/%s was asked to hand over, %d stand by\n", p.Namespace, p.Name, standby)
	}
	return nil
}

// byRole tells the Pods of a lock that say they are active, and counts the others.
func byRole(candidates []pods.Candidate, lock string) (active []pods.Candidate, standby int) {
	for _, p := range candidates {
		switch {
		case p.Lock != lock:
		case p.Role == "active":
			active = append(active, p)
		default:
			standby++
		}
	}
	return active, standby
}
