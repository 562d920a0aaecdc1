// Package tool_test looks at podlease's commands that look at something, as processes, on
// real Redis servers.
package tool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var sidecarProgram, tool sidecartest.Program

func TestTool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Tool")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(behaviour.Patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	sidecarProgram = sidecartest.Build(GinkgoTB())
	tool = sidecartest.BuildTool(GinkgoTB())
})

// result is how one command line ended.
type result struct {
	code           int
	stdout, stderr string
}

func run(ctx context.Context, args ...string) result {
	GinkgoHelper()
	code, stdout, stderr, err := tool.Run(ctx, nil, args...)
	Expect(err).NotTo(HaveOccurred())
	return result{code, stdout, stderr}
}

func redisFlag(servers ...*redistest.Server) string {
	return "--redis=" + strings.Join(redistest.URLs(servers), ",")
}

// holder starts a sidecar and waits until it is active.
func holder(ctx context.Context, name, lock string, servers []*redistest.Server) *sidecartest.Sidecar {
	GinkgoHelper()
	s := sidecarProgram.Start(GinkgoTB(), sidecartest.Options{Name: name, Lock: lock, Redis: redistest.URLs(servers)})
	Eventually(func() bool { doc, _ := s.Leadership(ctx); return doc.Active && doc.Quorum.Held == len(servers) }).WithContext(ctx).Should(BeTrue())
	return s
}
