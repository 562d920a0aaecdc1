package main

import (
	"fmt"
	"os"

	"github.com/podlease/podlease/test/redistest"
)

// rig owns what a measure starts, and ends it in reverse order. It is what
// redistest needs of a test.
type rig struct {
	cleanups []func()
	failed   bool
}

// broken is what Fatalf panics with; withRig turns it into an error.
type broken struct{ error }

// withRig runs a measure and clears up after it.
func withRig(measure func(r *rig) error) (err error) {
	r := &rig{}
	defer r.close()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p.error
		default:
			panic(p)
		}
	}()
	return measure(r)
}

func (r *rig) close() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		cleanup := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		cleanup()
	}
}

// Helper, Cleanup, Fatalf and Logf make a rig a redistest.TB.
func (r *rig) Helper() {}

// Cleanup calls f at the end of the measure.
func (r *rig) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Fatalf ends the measure.
func (r *rig) Fatalf(format string, args ...any) {
	r.failed = true
	panic(broken{fmt.Errorf(format, args...)})
}

// Failed reports whether Fatalf was called.
func (r *rig) Failed() bool { return r.failed }

// Logf writes to the standard error.
func (r *rig) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// servers starts n independent Redis servers.
func (r *rig) servers(n int) []*redistest.Server { return redistest.Cluster(r, n) }
