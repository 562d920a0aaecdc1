//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/podlease/podlease/pkg/settings"
)

var errLinuxOnly = errors.New("exec: Linux only: elsewhere the command cannot be tied to this process and to the lease")

func execCommand() command {
	return command{
		name:      "exec",
		summary:   "run a command only while a lease is held (Linux only)",
		arguments: "-- CMD [ARG…]",
		about:     execAbout,
		prepare: func(flags *settings.Flags) action {
			opt, arguments := newExecOptions(flags), flags.Arguments()
			return func(context.Context, call) error {
				if err := opt.complete(flags, *arguments); err != nil {
					return err
				}
				return errLinuxOnly
			}
		},
	}
}
