package main

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow by half of what lives before it is collected. Asked for
// /leader without a pause, the sidecar then has 16.0 MB resident rather than 18.6 MB;
// left alone it makes no difference.
const gcPercent = 50

// tuneMemory keeps the process small, unless the person who runs it decided.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
