package integration_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The end of a term", func() {
	It("on SIGTERM where no workload can be seen waits for a stop budget before the release", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3), "--native-sidecar=false")
		sent := boottime.Now()
		active.Terminate()
		Eventually(func() int { return leaderStatus(ctx, active) }).WithContext(ctx).ShouldNot(Equal(http.StatusOK))
		expectActive(ctx, standby)
		Expect(boottime.Now() - sent).To(BeNumerically(">=", stopBudget))
		Expect(active.ExitCode(ctx)).To(BeZero())
	}, SpecTimeout(behaviour.Patience))

	It("on a second signal is at once, with code 1 and a line that says so, and nothing is released", func(ctx SpecContext) {
		app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // it does not stop
		DeferCleanup(app.Close)
		servers := nodes(3)
		active := sidecar("active", servers, "--native-sidecar=false", "--ttl=20s", "--app-health="+app.URL, "--drain-timeout=1h")
		expectActive(ctx, active)
		active.Terminate()
		Eventually(func() int { return leaderStatus(ctx, active) }).WithContext(ctx).Should(Equal(http.StatusServiceUnavailable))
		active.Terminate() // the same once more, as timeout(1) sends it: that is no second one
		known := boottime.Now()
		Eventually(func() time.Duration { return boottime.Now() - known }).WithContext(ctx).Should(BeNumerically(">", 200*time.Millisecond))
		Expect(active.Ended()).To(BeNil())
		active.Terminate()
		Expect(active.ExitCode(ctx)).To(Equal(1))
		Expect(linesWith(active.Output(), "a second signal")).To(HaveLen(1), active.Output())
		Expect(exists(ctx, servers[0], lockKey)).To(BeTrue())
	}, SpecTimeout(behaviour.Patience))

	It("with --on-loss=exit is code 42 when the lease was lost unasked", func(ctx SpecContext) {
		servers := nodes(3)
		active := sidecar("active", servers, "--ttl=1s", "--on-loss=exit")
		expectActive(ctx, active)
		for _, n := range servers[:2] {
			n.Freeze()
		}
		Expect(active.ExitCode(ctx)).To(Equal(42), active.Output())
	}, SpecTimeout(behaviour.Patience))

	It("with --on-loss=exit is no end when it was asked for", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3), "--on-loss=exit")
		post(ctx, active, "/v1/step-down", http.StatusAccepted)
		expectActive(ctx, standby)
		expectStandby(ctx, active, "")
		Expect(active.Ended()).To(BeNil())
		standby.Terminate()
		Expect(standby.ExitCode(ctx)).To(BeZero())
	}, SpecTimeout(behaviour.Patience))

	It("of a frozen holder: it is not active when it runs again, before it has spoken to anyone", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		Expect(active.Freeze()).To(Succeed())
		expectActive(ctx, standby)
		Expect(active.Thaw()).To(Succeed())
		Expect(status(ctx, active, "/leader")).To(Equal(http.StatusServiceUnavailable))
		expectStandby(ctx, active, "held by standby")
		Expect(metric(ctx, active, "podlease_pauses_detected_total")).To(BeNumerically(">", 0))
	}, SpecTimeout(behaviour.Patience))

	It("gives the lock up although every node is frozen while it ends", func(ctx SpecContext) {
		servers := nodes(3)
		active := sidecar("active", servers, "--ttl=1s")
		expectActive(ctx, active)
		for _, n := range servers {
			n.Freeze()
		}
		active.Terminate()
		_, err := active.ExitCode(ctx)
		Expect(err).NotTo(HaveOccurred(), "it hangs")
	}, SpecTimeout(behaviour.Patience))
})

// leaderStatus is the answer of /leader, 0 when nobody listens.
func leaderStatus(ctx SpecContext, c *sidecartest.Sidecar) int {
	response, err := c.Get(ctx, "/leader")
	if err != nil {
		return 0
	}
	return response.Status
}

var _ = Describe("The workload's health", func() {
	It("decides who contends, and an unhealthy one gives the lease up", func(ctx SpecContext) {
		var healthy atomic.Bool
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if !healthy.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		DeferCleanup(app.Close)
		servers := nodes(3)
		c := sidecar("candidate", servers, "--ttl=1s", "--app-health="+app.URL, "--app-health-interval=100ms")
		expectStandby(ctx, c, "app unhealthy")
		expectInactive(ctx, c, 500*time.Millisecond)
		healthy.Store(true)
		expectActive(ctx, c)
		healthy.Store(false)
		expectStandby(ctx, c, "app unhealthy")
		other := sidecar("other", servers, "--ttl=1s")
		expectActive(ctx, other)
	}, SpecTimeout(behaviour.Patience))
})

var _ = Describe("The keys on the nodes", func() {
	It("are named by the prefix, or by the lock alone with --bare-key", func(ctx SpecContext) {
		servers := nodes(3)
		prefixed := sidecar("prefixed", servers, "--ttl=1s")
		bare := sidecar("bare", servers, "--ttl=1s", "--bare-key")
		other := sidecar("other-prefix", servers, "--ttl=1s", "--key-prefix=elsewhere:")
		for _, c := range []*sidecartest.Sidecar{prefixed, bare, other} {
			expectActive(ctx, c)
			expectVotes(ctx, c, 3)
		}
		for _, n := range servers {
			Expect(n.Client().Keys(ctx, "*").Val()).To(ConsistOf(
				"podlease:orders", "orders", "elsewhere:orders",
				"podlease:orders:fence", "elsewhere:orders:fence"))
			ttl := n.Client().PTTL(ctx, "podlease:orders").Val()
			Expect(ttl).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
		}
		prefixed.Terminate()
		Expect(prefixed.ExitCode(ctx)).To(BeZero())
		for _, n := range servers {
			Expect(exists(ctx, n, "podlease:orders")).To(BeFalse(), "the key was not released")
			Expect(exists(ctx, n, "podlease:orders:fence")).To(BeTrue(), "the counter has to survive the term")
		}
	}, SpecTimeout(behaviour.Patience))

	It("are never touched while another Redlock client has them", func(ctx SpecContext) {
		servers := nodes(3)
		for _, n := range servers {
			Expect(n.Client().SetNX(ctx, "orders", "of somebody else", 2*time.Second).Err()).To(Succeed())
		}
		c := sidecar("candidate", servers, "--ttl=1s", "--bare-key")
		expectStandby(ctx, c, "held by another Redlock client")
		expectInactive(ctx, c, time.Second)
		for _, n := range servers {
			Expect(n.Client().Get(ctx, "orders").Val()).To(Equal("of somebody else"))
		}
		expectActive(ctx, c)
	}, SpecTimeout(behaviour.Patience))
})

func exists(ctx SpecContext, n *redistest.Server, key string) bool {
	GinkgoHelper()
	count, err := n.Client().Exists(ctx, key).Result()
	Expect(err).NotTo(HaveOccurred())
	return count > 0
}
