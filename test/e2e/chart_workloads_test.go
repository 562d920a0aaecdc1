package e2e_test

import (
	"context"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// ready are the names of the Pods that are Ready.
func ready(pods []corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}

func specsOfWorkloads() {
	ns := "kinds"
	BeforeEach(func(ctx context.Context) { newNamespace(ctx, ns) }, NodeTimeout(patience))

	// watched is a workload's view, once it has so many Pods and one of them is active.
	watched := func(ctx context.Context, w workload, pods int) (*view, recorder.Run) {
		GinkgoHelper()
		w.serve(ctx)
		v := w.watch(ctx)
		DeferCleanup(func() { v.expectExclusion() })
		w.settled(ctx, pods)
		run := v.active(ctx)
		v.agreed(ctx, run)
		return v, run
	}
	// onlyActiveIsReady waits until the Pod of a run is Ready, and no other.
	onlyActiveIsReady := func(ctx context.Context, w workload, run recorder.Run) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			pods, err := w.pods(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ready(pods)).To(ConsistOf(run.Who))
		}).WithContext(ctx).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
	}

	DescribeTable("a Deployment of one whose Pod is Ready only when active is handed over to its new revision",
		func(ctx context.Context, readiness string) {
			w := workload{ns, readiness}
			w.deploy(ctx, 1, "inject", "true", "readiness", readiness)
			v, from := watched(ctx, w, 1)
			onlyActiveIsReady(ctx, w, from)
			start := boottime.Now()
			w.kubectl(ctx, "rollout", "restart", "deployment/"+w.name)
			w.rolledOut(ctx, "deployment")
			report("rollout", "%v", (boottime.Now() - start).Round(time.Millisecond))
			to := v.active(ctx, from.Who)
			w.settled(ctx, 1)
			v.agreed(ctx, to)
			onlyActiveIsReady(ctx, w, to)
			report("old Pod active last to new Pod active first", "%v", (to.First.Sent - v.last(from).Last.Received).Round(time.Millisecond))
			v.expectOneLabel()
		},
		Entry("by a probe", "active", SpecTimeout(2*patience)),
		Entry("by a readiness gate", "gate", SpecTimeout(2*patience)),
	)

	It("a StatefulSet whose Pods start in parallel is replaced as a whole, Ready only when active", func(ctx context.Context) {
		w := workload{ns, "parallel"}
		w.deploySet(ctx, 3, appsv1.ParallelPodManagement, "inject", "true", "readiness", "active")
		v, from := watched(ctx, w, 3)
		onlyActiveIsReady(ctx, w, from)
		w.updated(ctx)
		to := v.active(ctx)
		v.agreed(ctx, to)
		onlyActiveIsReady(ctx, w, to)
		v.expectOneLabel()
	}, SpecTimeout(2*patience))

	It("a StatefulSet whose Pods start one by one is updated, and the role follows", func(ctx context.Context) {
		w := workload{ns, "one-by-one"}
		w.deploySet(ctx, 3, appsv1.OrderedReadyPodManagement, "inject", "true")
		v, _ := watched(ctx, w, 3)
		w.updated(ctx)
		w.rolledOut(ctx, "statefulset")
		v.agreed(ctx, v.active(ctx))
		v.expectOneLabel()
	}, SpecTimeout(2*patience))

	Describe("with on-loss: restart", func() {
		restarted := func(ctx context.Context, lose func(w workload, holder recorder.Run) time.Duration) {
			GinkgoHelper()
			w := workload{ns, "restarted"}
			w.deploy(ctx, 2, "inject", "true", "on-loss", "restart")
			v, from := watched(ctx, w, 2)
			before, err := client.CoreV1().Pods(ns).Get(ctx, from.Who, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			lost := lose(w, from)
			Eventually(func(g Gomega) {
				now, err := client.CoreV1().Pods(ns).Get(ctx, from.Who, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(now.UID).To(Equal(before.UID))
				for _, pair := range [][2]corev1.ContainerStatus{
					{before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]},
					{before.Status.InitContainerStatuses[0], now.Status.InitContainerStatuses[0]},
				} {
					g.Expect(pair[1].State.Running).NotTo(BeNil(), pair[1].Name)
					g.Expect(pair[1].ContainerID).NotTo(Equal(pair[0].ContainerID), pair[1].Name)
				}
			}).WithContext(ctx).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
			report("all containers run again after the loss", "%v", (boottime.Now() - lost).Round(time.Millisecond))
			to := v.after(ctx, from)
			v.agreed(ctx, to)
			report("next active after the loss", "%v", (to.First.Received - lost).Round(time.Millisecond))
			v.expectOneLabel()
		}

		It("all containers of the Pod start again when the lease is lost", func(ctx context.Context) {
			restarted(ctx, func(w workload, _ recorder.Run) time.Duration {
				w.steal(ctx, 20*time.Second)
				return boottime.Now()
			})
		}, SpecTimeout(2*patience))

		It("all containers of the Pod start again when the sidecar dies", ownCluster, func(ctx context.Context) {
			cluster.needed()
			restarted(ctx, func(w workload, holder recorder.Run) time.Duration {
				pod, err := client.CoreV1().Pods(ns).Get(ctx, holder.Who, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				pid, err := strconv.Atoi(cluster.do(ctx, "pid", pod.Spec.NodeName, pod.Name, "podlease"))
				Expect(err).NotTo(HaveOccurred())
				Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
				return boottime.Now()
			})
		}, SpecTimeout(2*patience))
	})
}

// updated restarts a StatefulSet and waits until all its Pods are of the new revision.
func (w workload) updated(ctx context.Context) {
	GinkgoHelper()
	start := boottime.Now()
	w.kubectl(ctx, "rollout", "restart", "statefulset/"+w.name)
	Eventually(func(g Gomega) {
		set, err := client.AppsV1().StatefulSets(w.namespace).Get(ctx, w.name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(set.Status.ObservedGeneration).To(Equal(set.Generation))
		g.Expect(set.Status.UpdatedReplicas).To(Equal(*set.Spec.Replicas))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
	report("all Pods of the new revision after", "%v", (boottime.Now() - start).Round(time.Millisecond))
	w.settled(ctx, 3)
}
