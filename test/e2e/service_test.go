package e2e_test

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/boottime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The Service", func() {
	var v *view
	BeforeEach(func(ctx context.Context) {
		v = look(ctx)
		DeferCleanup(func() { v.expectExclusion() })
	}, NodeTimeout(patience))

	It("reaches the holder and nobody else", smoke, func(ctx context.Context) {
		run := v.active(ctx)
		v.agreed(ctx, run)
		start := boottime.Now()
		Eventually(func() []reply { return v.prober.between(start, boottime.Now()) }).WithContext(ctx).WithTimeout(patience).
			Should(HaveLen(100))
		got := count(v.prober.between(start, boottime.Now()))
		Expect(got.From).To(HaveKeyWithValue(run.Who, got.All), "%v", got)
		for _, r := range v.prober.between(start, boottime.Now()) {
			Expect(r.Token).To(Equal(run.Token), "the app sees another fencing token than the sidecar tells")
		}
		report("kubectl get pods -L podlease.io/role", "%s", orders.state(ctx))
		v.expectSameTerm(run)
		v.expectOneLabel()
	}, SpecTimeout(patience))

	It("follows the role when the active Pod is deleted", smoke, func(ctx context.Context) {
		v.moved(ctx, "the Pod's deletion", func() {
			run := v.active(ctx)
			Expect(client.CoreV1().Pods(namespace).Delete(ctx, run.Who, metav1.DeleteOptions{})).To(Succeed())
		})
		v.expectOneLabel()
	}, SpecTimeout(patience))

	It("follows the role when the active Pod is asked to step down by an annotation", func(ctx context.Context) {
		from, _ := v.moved(ctx, "the annotation", func() {
			run := v.active(ctx)
			kubectl(ctx, "-n", namespace, "annotate", "pod", run.Who, "podlease.io/step-down="+time.Now().Format("150405"))
		})
		Expect(client.CoreV1().Pods(namespace).Get(ctx, from.Who, metav1.GetOptions{})).To(HaveField("Labels", HaveKeyWithValue(roleLabel, "standby")))
		v.expectOneLabel()
	}, SpecTimeout(patience))

	It("stays where it is when others are scaled away", func(ctx context.Context) {
		run := v.active(ctx)
		v.agreed(ctx, run)
		DeferCleanup(func(ctx context.Context) { kubectl(ctx, "-n", namespace, "scale", "deploy/orders", "--replicas=3") })
		kubectl(ctx, "-n", namespace, "scale", "deploy/orders", "--replicas=1")
		Eventually(func(g Gomega) {
			pods, err := orders.pods(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods).To(HaveLen(1))
		}).WithContext(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		v.expectSameTerm(run)
		v.expectOneLabel()
	}, SpecTimeout(patience))

	It("follows the role when the holder's node is drained", func(ctx context.Context) {
		node := v.pod(v.active(ctx).Who).Spec.NodeName
		DeferCleanup(func(ctx context.Context) { kubectl(ctx, "uncordon", node) })
		v.moved(ctx, "the drain began", func() {
			drain(ctx, node)
		})
		v.expectOneLabel()
	}, SpecTimeout(patience))

	It("costs no term when the Redis Pods are restarted one after the other", func(ctx context.Context) {
		run := v.active(ctx)
		start := boottime.Now()
		kubectl(ctx, "-n", namespace, "rollout", "restart", "statefulset/redis")
		kubectl(ctx, "-n", namespace, "rollout", "status", "statefulset/redis", "--timeout=5m")
		v.expectSameTerm(run)
		v.expectOneLabel()
		report("restart of all Redis Pods", "%v, same term throughout", (boottime.Now() - start).Round(time.Second))
		v.expectOnlyHolder(start, run)
	}, SpecTimeout(6*time.Minute))
})

// drain evicts a node's Pods in the background: it waits for them to end, and what is
// watched happens long before.
func drain(ctx context.Context, node string) {
	GinkgoHelper()
	done := make(chan struct{})
	DeferCleanup(func() { Eventually(done).WithTimeout(patience).Should(BeClosed()) })
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer GinkgoRecover()
		defer close(done)
		kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
	}()
}
