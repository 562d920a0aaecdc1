// Package integration_test looks at the sidecar from outside: as a process, on real
// Redis servers.
//
// PODLEASE_LONG=1 runs the long forms, which also check how fast things are and so
// need an otherwise idle machine.
package integration_test

import (
	"os"
	"testing"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	program sidecartest.Program
	long    = os.Getenv("PODLEASE_LONG") != ""
)

func TestIntegration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Integration")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(behaviour.Patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	program = sidecartest.Build(GinkgoTB())
})

// nodes starts n Redis servers.
func nodes(n int, options ...redistest.Option) []*redistest.Server {
	GinkgoHelper()
	return redistest.Cluster(GinkgoTB(), n, options...)
}

// sidecar starts one candidate with further flags.
func sidecar(name string, redis []*redistest.Server, args ...string) *sidecartest.Sidecar {
	GinkgoHelper()
	return program.Start(GinkgoTB(), sidecartest.Options{Name: name, Lock: "orders", Redis: redistest.URLs(redis), Args: args})
}

var _ = Describe("Three candidates on three Redis processes", func() {
	behaviour.Election(
		func() sidecartest.Program { return program },
		func(n int) []*redistest.Server { return nodes(n) },
		long)
})
