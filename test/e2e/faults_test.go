package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// labelsReturn is how soon after the API server's return the labels are right.
const labelsReturn = 2 * time.Second

var _ = Describe("With a fault", func() {
	var v *view
	BeforeEach(func(ctx context.Context) {
		cluster.needed()
		v = look(ctx)
		DeferCleanup(func() { v.expectExclusion() })
	}, NodeTimeout(patience))

	Describe("of the API server, stopped for two TTLs,", ownCluster, func() {
		BeforeEach(func() {
			DeferCleanup(func(ctx context.Context) {
				if _, err := client.Discovery().ServerVersion(); err != nil {
					cluster.do(ctx, "apiserver", "start")
				}
			})
		})

		It("the same Pod is active throughout", func(ctx context.Context) {
			run := v.active(ctx)
			v.agreed(ctx, run)
			start := boottime.Now()
			cluster.do(ctx, "apiserver", "stop")
			pass(ctx, 2*ttl)
			v.expectSameTerm(run)
			back := apiServerReturns(ctx)
			v.labelsAreRight(ctx, back, run)
			v.expectSameTerm(run)
			v.expectOneLabel()
			v.expectOnlyHolder(start, run)
		}, SpecTimeout(2*patience))

		It("the role moves without it, and the labels follow when it returns", func(ctx context.Context) {
			from := v.active(ctx)
			v.agreed(ctx, from)
			control := controlOf(ctx, v.pod(from.Who).Spec.NodeName, from.Who)
			cluster.do(ctx, "apiserver", "stop")
			start := boottime.Now()
			Expect(post(ctx, control, "/v1/step-down?for=5m")).To(Equal(http.StatusAccepted))
			to := v.active(ctx, from.Who)
			report("next active after step-down", "%v", (to.First.Received - start).Round(time.Millisecond))
			pass(ctx, 2*ttl)
			back := apiServerReturns(ctx)
			v.labelsAreRight(ctx, back, to)
			v.agreed(ctx, to)
			Expect(post(ctx, control, "/v1/resume")).To(Equal(http.StatusAccepted))
			// Two sidecars catch up at once, in either order.
			report("instants at which the watch showed two Pods labelled active", "%v", v.labels.twice())
		}, SpecTimeout(2*patience))
	})

	It("of the holder's node, cut off, its sidecar is not active in time for the next", ownCluster, func(ctx context.Context) {
		from := v.active(ctx)
		v.agreed(ctx, from)
		node := v.pod(from.Who).Spec.NodeName
		DeferCleanup(func(ctx context.Context) { cluster.do(ctx, "heal", node) })
		start := boottime.Now()
		cluster.do(ctx, "partition", node)
		to := v.active(ctx, from.Who)
		from = v.last(from)

		report("the cut-off sidecar's first 503", "%v after the cut", (from.Then.Received - start).Round(time.Millisecond))
		report("the next one's first 200", "%v after the cut, %v after that 503", (to.First.Received - start).Round(time.Millisecond),
			(to.First.Sent - from.Then.Received).Round(time.Millisecond))
		Expect(from.Then).NotTo(BeZero(), "the cut-off sidecar did not answer")
		Expect(to.First.Sent-from.Then.Received).To(BeNumerically(">=", drift), "503 of the old one to 200 of the new one")
		Expect(to.First.Received-start).To(BeNumerically("<=", ttl+time.Second), "cut to 200 of the new one")

		healed := boottime.Now()
		cluster.do(ctx, "heal", node)
		Eventually(v.labels.holders).WithContext(ctx).WithPolling(5 * time.Millisecond).Should(ConsistOf(to.Who))
		report("labels right after the link is back", "%v", (boottime.Now() - healed).Round(time.Millisecond))
	}, SpecTimeout(patience))

	It("of the holder's node, frozen for two TTLs, its first answer is 503", ownCluster, func(ctx context.Context) {
		from := v.active(ctx)
		v.agreed(ctx, from)
		pod := v.pod(from.Who)
		DeferCleanup(func(ctx context.Context) { cluster.do(ctx, "thaw", pod.Spec.NodeName) })

		start := boottime.Now()
		cluster.do(ctx, "freeze", pod.Spec.NodeName)
		// Asked while it cannot answer: nothing it says can come before this answer.
		conn, err := sidecarOf(pod)(ctx)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "GET /leader HTTP/1.1\r\nHost: sidecar\r\n\r\n")
		Expect(err).NotTo(HaveOccurred())
		to := v.active(ctx, from.Who)
		report("next active after the freeze", "%v", (to.First.Received - start).Round(time.Millisecond))
		Expect(to.First.Received-start).To(BeNumerically("<=", ttl+time.Second), "freeze to 200 of the new one")
		pass(ctx, start+2*ttl-boottime.Now())

		thawed := boottime.Now()
		cluster.do(ctx, "thaw", pod.Spec.NodeName)
		Expect(status(conn)).To(Equal(http.StatusServiceUnavailable), "the first answer after the thaw")
		report("first answer after the thaw", "503, after %v", (boottime.Now() - thawed).Round(time.Millisecond))
		Eventually(v.labels.holders).WithContext(ctx).WithPolling(5 * time.Millisecond).Should(ConsistOf(to.Who))
		report("labels right after the thaw", "%v", (boottime.Now() - thawed).Round(time.Millisecond))
		for _, r := range v.Runs() {
			Expect(r.Who == from.Who && r.First.Sent >= thawed).To(BeFalse(), "active again after the thaw: %v", r)
		}
	}, SpecTimeout(patience))

	It("of the holder's sidecar, killed, its label is standby before it contends", smoke, ownCluster, func(ctx context.Context) {
		v.sidecarDies(ctx, "SIGKILL", func(from recorder.Run) time.Duration {
			pid, err := strconv.Atoi(cluster.do(ctx, "pid", v.pod(from.Who).Spec.NodeName, from.Who, "podlease"))
			Expect(err).NotTo(HaveOccurred())
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
			return boottime.Now()
		})
	}, SpecTimeout(patience))

	It("of the holder's sidecar, out of memory, its label is standby before it contends", ownCluster, func(ctx context.Context) {
		v.sidecarDies(ctx, "running out of memory", func(from recorder.Run) time.Duration {
			return v.exhaust(ctx, from)
		})
	}, SpecTimeout(patience))
})

// pass lets time go by: what must not happen has no event to wait for.
func pass(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		Fail("no time left")
	}
}

// apiServerReturns starts the API server and tells when it was ready again.
func apiServerReturns(ctx context.Context) time.Duration {
	GinkgoHelper()
	started := make(chan struct{})
	DeferCleanup(func() { Eventually(started).WithTimeout(patience).Should(BeClosed()) })
	go func() {
		defer GinkgoRecover()
		defer close(started)
		cluster.do(context.WithoutCancel(ctx), "apiserver", "start") // looks for readiness less often
	}()
	Eventually(func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}).WithContext(ctx).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
	return boottime.Now()
}

// labelsAreRight waits until only the holder's Pod is labelled active, as a list has
// it, and checks how long that took.
func (v *view) labelsAreRight(ctx context.Context, back time.Duration, run recorder.Run) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pods, err := orders.pods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(holders(pods)).To(ConsistOf(run.Who))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
	took := boottime.Now() - back
	report("labels right after the API server's return", "%v", took.Round(time.Millisecond))
	Expect(took).To(BeNumerically("<=", labelsReturn))
}

// sidecarDies ends the holder's sidecar by force, and judges what follows: its label
// is standby before anybody is active again, itself too, which is within a TTL and a
// second. What kills tells when it died.
func (v *view) sidecarDies(ctx context.Context, how string, kill func(holder recorder.Run) time.Duration) {
	GinkgoHelper()
	from := v.active(ctx)
	v.agreed(ctx, from)
	DeferCleanup(func(ctx context.Context) { // the kubelet waits before the next restart of the same container
		kubectl(ctx, "-n", namespace, "delete", "pod", from.Who)
	})
	died := kill(from)
	to := v.after(ctx, from)
	v.followed(ctx, to)
	at, ok := v.labels.shown(from.Who, "standby", v.last(from).Last.Received)
	Expect(ok).To(BeTrue(), "the label never became standby")
	who := "another Pod"
	if to.Who == from.Who {
		who = "the same Pod"
	}
	report("label standby after "+how, "%v", (at - died).Round(time.Millisecond))
	report("next active after "+how, "%v, %s", (to.First.Received - died).Round(time.Millisecond), who)
	Expect(at).To(BeNumerically("<", to.First.Sent), "label standby to next active")
	Expect(to.First.Received - died).To(BeNumerically("<=", ttl+time.Second))
	v.expectService(died, to)
	v.expectOneLabel()
}

// exhaust opens connections to a sidecar and keeps them, more than its memory allows,
// until it has died, and tells when, to a second.
func (v *view) exhaust(ctx context.Context, holder recorder.Run) time.Duration {
	GinkgoHelper()
	dial := sidecarOf(v.pod(holder.Who))
	before := sidecarStatus(ctx, holder.Who).RestartCount
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	Eventually(func(g Gomega) {
		for range 500 {
			conn, err := dial(ctx)
			if err != nil {
				break // it is gone, or has no more
			}
			conns = append(conns, conn)
			_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: sidecar\r\n\r\n") // it may be gone
		}
		g.Expect(sidecarStatus(ctx, holder.Who).RestartCount).To(BeNumerically(">", before))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
	report("connections that the sidecar's memory did not hold", "%d", len(conns))
	end := sidecarStatus(ctx, holder.Who).LastTerminationState.Terminated
	Expect(end.Reason).To(Equal("OOMKilled"))
	return max(v.last(holder).Last.Received, boottime.Now()-time.Since(end.FinishedAt.Time))
}

func sidecarStatus(ctx context.Context, pod string) corev1.ContainerStatus {
	GinkgoHelper()
	p, err := client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return p.Status.InitContainerStatuses[0]
}

// controlOf dials a Pod's control address, which listens on the Pod's loopback only.
func controlOf(ctx context.Context, node, pod string) recorder.Dial {
	GinkgoHelper()
	pid := cluster.do(ctx, "pid", node, pod, "podlease")
	return dialIn("/proc/"+pid+"/ns/net", "127.0.0.1:8485")
}

func post(ctx context.Context, dial recorder.Dial, path string) (int, error) {
	conn, err := dial(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:8485\r\nContent-Length: 0\r\n\r\n", path); err != nil {
		return 0, err
	}
	return status(conn)
}
