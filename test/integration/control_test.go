package integration_test

import (
	"context"
	"net/http"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// post asks a control verb and expects a status.
func post(ctx context.Context, c *sidecartest.Sidecar, path string, want int) sidecartest.Response {
	GinkgoHelper()
	response, err := c.Post(ctx, path)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Status).To(Equal(want), response.Body)
	return response
}

// expectInactive fails if a candidate is active at any question within a time.
func expectInactive(ctx context.Context, c *sidecartest.Sidecar, d time.Duration) {
	GinkgoHelper()
	Consistently(func() int { return status(ctx, c, "/leader") }).WithContext(ctx).WithTimeout(d).Should(Equal(http.StatusServiceUnavailable))
}

// stopBudget is that of pair's candidates.
const stopBudget = 750 * time.Millisecond

var _ = Describe("The control endpoints", func() {
	It("drain: not active at once, the lease is kept, and SIGTERM gives it away", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		response := post(ctx, active, "/v1/drain", http.StatusAccepted)
		Expect(response.Body).To(And(ContainSubstring(`"draining":true`), ContainSubstring(`"active":false`)))
		Expect(status(ctx, active, "/leader")).To(Equal(http.StatusServiceUnavailable))
		Expect(status(ctx, active, "/standby")).To(Equal(http.StatusServiceUnavailable))
		expectInactive(ctx, standby, 4*time.Second) // longer than the lease lasts unless renewed
		expectStandby(ctx, active, "draining")
		expectStandby(ctx, standby, "held by active")
		active.Terminate()
		expectActive(ctx, standby)
		Expect(active.ExitCode(ctx)).To(BeZero())
	}, SpecTimeout(behaviour.Patience))

	It("step-down: another is active after a stop budget, and the old one does not contend for a while", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		asked := boottime.Now()
		post(ctx, active, "/v1/step-down?for=5s", http.StatusAccepted)
		Expect(status(ctx, active, "/leader")).To(Equal(http.StatusServiceUnavailable))
		expectActive(ctx, standby)
		Expect(boottime.Now()-asked).To(BeNumerically(">=", stopBudget), "the workload may still have acted")
		standby.Terminate()
		Expect(standby.ExitCode(ctx)).To(BeZero())
		expectInactive(ctx, active, asked+5*time.Second-boottime.Now()-100*time.Millisecond)
		expectActive(ctx, active)
	}, SpecTimeout(behaviour.Patience))

	It("stopped: a hand-over need not wait for the stop budget", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3), "--stop-budget=1s", "--renew-interval=300ms")
		asked := boottime.Now()
		post(ctx, active, "/v1/step-down", http.StatusAccepted)
		post(ctx, active, "/v1/stopped", http.StatusAccepted)
		expectActive(ctx, standby)
		took := boottime.Now() - asked
		AddReportEntry("hand-over after step-down and stopped", took)
		Expect(took).To(BeNumerically("<", time.Second))
	}, SpecTimeout(behaviour.Patience))

	It("pause and resume: takes no part in between", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		post(ctx, active, "/v1/pause", http.StatusAccepted)
		expectActive(ctx, standby)
		expectStandby(ctx, active, "paused")
		standby.Terminate()
		Expect(standby.ExitCode(ctx)).To(BeZero())
		expectInactive(ctx, active, 4*time.Second)
		post(ctx, active, "/v1/resume", http.StatusAccepted)
		expectActive(ctx, active)
	}, SpecTimeout(behaviour.Patience))

	It("refuse with a reason what makes no sense, and what is not asked for by POST", func(ctx SpecContext) {
		_, standby := pair(ctx, nodes(3))
		Expect(post(ctx, standby, "/v1/step-down", http.StatusConflict).Body).NotTo(BeEmpty())
		Expect(post(ctx, standby, "/v1/resume", http.StatusConflict).Body).NotTo(BeEmpty())
		post(ctx, standby, "/v1/step-down?for=ever", http.StatusBadRequest)
		response, err := standby.Do(ctx, http.MethodGet, standby.Control, "/v1/drain")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Status).To(Equal(http.StatusMethodNotAllowed))
	}, SpecTimeout(behaviour.Patience))

	It("are called by the subcommands, for exec hooks", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		run := func(c *sidecartest.Sidecar, args ...string) (int, string) {
			GinkgoHelper()
			code, stdout, stderr, err := program.Run(ctx, []string{"PODLEASE_CONTROL_LISTEN=" + c.Control}, args...)
			Expect(err).NotTo(HaveOccurred())
			return code, stdout + stderr
		}
		code, out := run(standby, "step-down")
		Expect(code).To(Equal(1), out) // 409, and says why
		Expect(out).NotTo(BeEmpty())
		code, out = run(active, "step-down", "--for=1s")
		Expect(code).To(BeZero(), out)
		code, out = run(active, "stopped")
		Expect(code).To(BeZero(), out)
		expectActive(ctx, standby)
		code, out = run(active, "pause")
		Expect(code).To(BeZero(), out)
		expectStandby(ctx, active, "paused")
		code, out = run(active, "resume")
		Expect(code).To(BeZero(), out)
		code, out = run(standby, "drain")
		Expect(code).To(BeZero(), out)
		expectStandby(ctx, standby, "draining")
	}, SpecTimeout(behaviour.Patience))
})
