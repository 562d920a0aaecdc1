package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/podlease/podlease/pkg/statusapi"
)

// version is set at link time by a release build.
var version = ""

// build tells what the program was made from. What a release build said wins over what
// the Go command noted.
func build() statusapi.Build {
	b := statusapi.Build{Version: version, GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	return b
}

func writeVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s %s (%s, %s/%s)\n", program, build().Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
