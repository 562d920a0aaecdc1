package main

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow by half of what lives before it is collected. The live
// heap is about a megabyte, so collections stay rare and cheap.
const gcPercent = 50

// tuneMemory keeps the process small, unless the person who runs it decided.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
