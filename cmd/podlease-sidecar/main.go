// Command podlease-sidecar runs beside one workload, takes part in the election of
// one lock for it, and tells over HTTP and metrics whether it is active.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// sameSignal is for how long another signal is taken for the first one: timeout(1) sends
// its own to the program and to its process group, and a shell's Ctrl-C may come twice.
const sameSignal = 200 * time.Millisecond

func main() {
	// There is never enough to do for two processors at once. With more than one each
	// reply wakes a second thread that looks for work and finds none, which costs a
	// hand-over a fifth of its time, and the workload's CPU.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for first := time.Now(); time.Since(first) < sameSignal; {
			<-signals // somebody has lost patience, unless it is the first one once more
		}
		fmt.Fprintln(os.Stderr, program+": a second signal ends it at once: nothing is released, the lease runs out by itself")
		os.Exit(exitOther)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
