// Package faults_test lets faults happen to real redis-server and podlease-sidecar
// processes, and judges the history of what candidates answered and wrote.
//
// Which faults happen, when, to whom and for how long follows from a seed, which is
// printed. What comes of them does not: a seed runs again on another machine, in other
// company, with other outcomes.
package faults_test

import (
	"flag"
	"testing"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	stormFirst  = flag.Uint64("faults.seed", 1, "the first seed of the storms")
	stormSeeds  = flag.Uint64("faults.seeds", 2, "how many seeds to run")
	stormFor    = flag.Duration("faults.for", 0, "go on with further seeds for that long")
	stormLength = flag.Duration("faults.length", 15*time.Second, "how long faults happen, a seed")
	rounds      = flag.Int("faults.rounds", 10, "how often a holder is frozen for two TTLs")
	broken      = flag.Duration("faults.broken", 0, "run storms with the quarantine off until two are active at once, for at most that long")
	counted     = flag.String("faults.counted", "", "append each counter's and storm's figures to this file")
)

var program sidecartest.Program

func TestFaults(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Faults", Label("faults"))
}

var _ = SynchronizedBeforeSuite(func() []byte {
	return []byte(sidecartest.Build(GinkgoTB()))
}, func(built []byte) {
	SetDefaultEventuallyTimeout(behaviour.Patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	program = sidecartest.Program(built)
})
