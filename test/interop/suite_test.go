// Package interop_test tries the sidecar with other people's software: Redis in
// containers, and other Redlock clients on the same lock. It is a module of its own,
// so that what it requires stays away from users of the library.
package interop_test

import (
	"os"
	"testing"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/interop/rediscontainer"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var program sidecartest.Program

func TestInterop(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Interop")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(behaviour.Patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	program = sidecartest.Build(GinkgoTB())
})

// missing skips a spec on a person's machine, and fails it where everything has to be
// there.
func missing(what string) {
	GinkgoHelper()
	if os.Getenv("CI") != "" {
		Fail(what)
	}
	Skip(what)
}

var _ = Describe("Three candidates on three Redis containers", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		if err := rediscontainer.Available(ctx); err != nil {
			missing(err.Error())
		}
	})

	behaviour.Election(
		func() sidecartest.Program { return program },
		func(n int) []*redistest.Server { return rediscontainer.Cluster(GinkgoTB(), n) },
		false)
})
