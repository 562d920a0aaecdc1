package e2e_test

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/boottime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// firstActive is how long after the Redis Pods are Ready a Pod is active: the
// quarantine of 31 s, and what the rest takes.
const firstActive = 45 * time.Second

// One release is installed, used, changed and removed, as on a user's cluster.
var _ = Describe("The chart", Ordered, ContinueOnFailure, func() {
	shop := workload{"shop", "orders"}
	// untouched is a Pod without our keys as it is stored where podlease is not.
	var untouched *corev1.Pod

	BeforeAll(func(ctx context.Context) {
		remove(ctx) // of an earlier run
		DeferCleanup(remove)
		newNamespace(ctx, shop.namespace)
		untouched = storedPlain(ctx, shop)
		release(ctx)
		// At once, as one does: the controller is not up yet.
		shop.deploy(ctx, 3, "inject", "true")
		shop.serve(ctx)
	}, NodeTimeout(patience))

	It("makes one Pod of an annotated Deployment active, and its Service reaches it", smoke, func(ctx context.Context) {
		v := shop.watch(ctx)
		ready := redisReady(ctx)
		run := v.active(ctx)
		v.agreed(ctx, run)
		took := boottime.Now() - ready
		report("label and EndpointSlice right after the Redis Pods are Ready", "%v", took.Round(time.Millisecond))
		Expect(took).To(BeNumerically("<=", firstActive))

		shop.rolledOut(ctx, "deployment")
		v.agreed(ctx, run)
		start := boottime.Now()
		Eventually(func() []reply { return v.prober.between(start, boottime.Now()) }).WithContext(ctx).WithTimeout(patience).
			Should(HaveLen(100))
		got := count(v.prober.between(start, boottime.Now()))
		Expect(got.From).To(Equal(map[string]int{run.Who: got.All}), "%v", got)
		report("kubectl get pods -L podlease.io/role", "%s", shop.state(ctx))
		v.expectSameTerm(run)
		v.expectOneLabel()
		v.expectExclusion()
	}, SpecTimeout(2*patience))

	Describe("once that is so,", func() {
		BeforeEach(func(ctx context.Context) { shop.settled(ctx, 3) }, NodeTimeout(patience))

		It("passes its own test", smoke, func(ctx context.Context) {
			Expect(helm(ctx, "test", "podlease", "--timeout=2m")).To(MatchRegexp(`Phase: +Succeeded`))
		}, SpecTimeout(2*patience))

		specsOfAdmission(shop, &untouched)
		specsOfPolicies(shop)
		specsOfWorkloads()
		specsOfChange(shop)
	})
})

// specsOfChange come last: they remove the release.
func specsOfChange(shop workload) {
	It("costs no running workload a term when it is uninstalled and installed again", func(ctx context.Context) {
		v := shop.watch(ctx)
		run := v.active(ctx)
		helm(ctx, "uninstall", "podlease", "--wait")
		release(ctx)
		rolledOut(ctx, controller)
		start := boottime.Now()
		later := workload{shop.namespace, "later"}
		DeferCleanup(func(ctx context.Context) { later.kubectl(ctx, "delete", "deployment", later.name) })
		later.deploy(ctx, 1, "inject", "true")
		later.settled(ctx, 1)
		report("first Pod of a new workload active after the second installation", "%v", (boottime.Now() - start).Round(time.Millisecond))
		v.expectSameTerm(run)
		v.expectOneLabel()
	}, SpecTimeout(2*patience))

	It("costs no running workload a term when it is upgraded, its authority changes, and controller and Redis nodes are restarted", func(ctx context.Context) {
		v := shop.watch(ctx)
		run := v.active(ctx)
		refusals := streamOfPods(ctx, shop)
		start := boottime.Now()
		release(ctx, "sidecar.logLevel=debug")
		rolledOut(ctx, controller)
		kubectl(ctx, "--namespace", system, "rollout", "restart", controller)
		rolledOut(ctx, controller)
		report("upgrade, and restart of the controller", "%v", (boottime.Now() - start).Round(time.Second))
		start = boottime.Now()
		before, err := servedCertificates(ctx)
		Expect(err).NotTo(HaveOccurred())
		kubectl(ctx, "--namespace", system, "patch", "secret", "podlease-webhook", "--type=json", `--patch=[{"op":"remove","path":"/data/ca.key"}]`)
		for _, certificate := range before {
			Eventually(servedCertificates).WithArguments(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).ShouldNot(ContainElement(certificate))
		}
		report("new authority and certificate in use", "%v", (boottime.Now() - start).Round(time.Second))
		admitted, err := refusals()
		Expect(err).NotTo(HaveOccurred(), "a Pod was refused meanwhile")
		report("Pods admitted meanwhile (dry runs)", "%d", admitted)

		start = boottime.Now()
		kubectl(ctx, "--namespace", system, "rollout", "restart", redisNodes)
		rolledOut(ctx, redisNodes)
		report("restart of all Redis Pods", "%v, same term throughout", (boottime.Now() - start).Round(time.Second))
		v.expectSameTerm(run)
		v.expectOneLabel()
		v.expectOnlyHolder(start, run)
		release(ctx)
	}, SpecTimeout(8*time.Minute))

	It("leaves running workloads active when it is uninstalled, and blocks no deletion", smoke, func(ctx context.Context) {
		v := shop.watch(ctx)
		run := v.active(ctx)
		helm(ctx, "uninstall", "podlease", "--wait")
		for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			Expect(kubectl(ctx, "get", kind, "--selector", "app.kubernetes.io/part-of=podlease", "--output", "name")).To(BeEmpty())
		}
		pass(ctx, ttl+ttl/10) // by then a lease that is not renewed is over
		v.expectSameTerm(run)
		v.agreed(ctx, run)

		pods, err := shop.pods(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveEach(HaveField("Finalizers", BeEmpty())))
		shop.kubectl(ctx, "annotate", "pod", run.Who, "podlease.io/step-down=now")
		v.followed(ctx, v.active(ctx, run.Who))
		v.expectOneLabel()
		v.expectExclusion()
		start := boottime.Now()
		kubectl(ctx, "delete", "namespace", shop.namespace, system, "--timeout=2m") // Redis nodes, too: nothing waits for them
		report("both namespaces deleted", "%v", (boottime.Now() - start).Round(time.Millisecond))
		for _, name := range []string{shop.namespace, system} {
			_, err = client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), name)
		}
	}, SpecTimeout(3*patience))
}

// streamOfPods asks for injected Pods, which are admitted and not stored, until the
// answer is wanted: how many there were, and the first refusal.
func streamOfPods(ctx context.Context, w workload) (end func() (int, error)) {
	t := w.template("inject", "true")
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.GenerateName = "stream-"
	ctx, stop := context.WithCancel(ctx)
	created, failed := 0, make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			_, err := client.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				failed <- err
				return
			}
			created++
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() (int, error) {
		stop()
		err := <-failed
		return created, err
	}
}

// servedCertificates are those that the controllers show to the API server.
func servedCertificates(ctx context.Context) (all [][]byte, err error) {
	pods, err := client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "9443"))
		if err != nil {
			return nil, err
		}
		all = append(all, conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
		_ = conn.Close()
	}
	return all, nil
}
