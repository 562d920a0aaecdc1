package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/podlease/podlease/pkg/settings"
)

// version is set at link time by a release build.
var version = ""

func versionCommand() command {
	return command{
		name:    "version",
		summary: "print the version",
		about:   "Prints the version, and the Go release and platform it was built for.",
		prepare: func(*settings.Flags) action { return printVersion },
	}
}

func printVersion(_ context.Context, call call) error {
	fmt.Fprintf(call.stdout, "podlease %s (%s, %s/%s)\n", currentVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// currentVersion prefers what a release build said over what the Go command noted.
func currentVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
