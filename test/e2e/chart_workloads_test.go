package e2e_test

import (
	"context"
	"net"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
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

	It("a Deployment with fencing: kubernetes has tokens from a Lease object", func(ctx context.Context) {
		w := workload{ns, "counted"}
		w.deploy(ctx, 2, "inject", "true", "fencing", "kubernetes")
		v, from := watched(ctx, w, 2)
		expectCounted := func(run recorder.Run) {
			GinkgoHelper()
			leases, err := client.CoordinationV1().Leases(ns).List(ctx, metav1.ListOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(leases.Items).To(HaveLen(1))
			Expect(leases.Items[0].Annotations).To(ContainElement(strconv.FormatUint(run.Token, 10)))
		}
		expectCounted(from)
		w.kubectl(ctx, "annotate", "pod", from.Who, "podlease.io/step-down=now")
		to := v.active(ctx, from.Who)
		Expect(to.Token).To(BeNumerically(">", from.Token))
		expectCounted(to)
		v.agreed(ctx, to)
		v.expectOneLabel()
	}, SpecTimeout(2*patience))

	Describe("with on-loss: exec", func() {
		It("the app of a Deployment runs in the active Pod only", func(ctx context.Context) {
			w := workload{ns, "executed"}
			w.deploy(ctx, 2, "inject", "true", "on-loss", "exec")
			v, from := watched(ctx, w, 2)
			w.rolledOut(ctx, "deployment")
			onlyActiveAnswers := func(run recorder.Run) {
				GinkgoHelper()
				Eventually(func(g Gomega) {
					pods, err := w.pods(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					for i := range pods {
						g.Expect(answers(ctx, &pods[i])).To(Equal(pods[i].Name == run.Who), pods[i].Name)
					}
				}).WithContext(ctx).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Succeed())
			}
			onlyActiveAnswers(from)
			start := boottime.Now()
			w.steal(ctx, 15*time.Second)
			pod := v.pod(from.Who)
			Eventually(func() bool { return answers(ctx, pod) }).WithContext(ctx).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(BeFalse())
			report("app ended after the lease was given to somebody else", "%v", (boottime.Now() - start).Round(time.Millisecond))
			to := v.after(ctx, from)
			onlyActiveAnswers(to)
			v.agreed(ctx, to)
			pods, err := w.pods(ctx)
			Expect(err).NotTo(HaveOccurred())
			for _, pod := range pods {
				Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())), "the container was started anew")
			}
			v.expectOneLabel()
		}, SpecTimeout(2*patience))

		It("the Pods of a Job all get their turn, and one that will not wait says so", func(ctx context.Context) {
			w, hasty := workload{ns, "sums"}, workload{ns, "hasty"}
			start := boottime.Now()
			w.job(ctx, batchv1.JobSpec{Parallelism: new(int32(3)), Completions: new(int32(3)), Template: w.ending("inject", "true", "on-loss", "exec")})
			w.completed(ctx, 3)
			report("three Pods of a Job", "%v", (boottime.Now() - start).Round(time.Millisecond))

			held := workload{ns, "held"}
			held.deploy(ctx, 1, "inject", "true")
			held.settled(ctx, 1)
			hasty.job(ctx, batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: hasty.ending("inject", "true", "on-loss", "exec", "wait", "0s", "lock", held.String())})
			Eventually(func(g Gomega) {
				pods, err := hasty.pods(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(pods).To(HaveLen(1))
				g.Expect(pods[0].Status.ContainerStatuses).To(HaveLen(1))
				end := pods[0].Status.ContainerStatuses[0].State.Terminated
				g.Expect(end).NotTo(BeNil())
				g.Expect(end.ExitCode).To(BeEquivalentTo(75))
			}).WithContext(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		}, SpecTimeout(3*patience))
	})

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

// answers tells whether a Pod's app serves.
func answers(ctx context.Context, pod *corev1.Pod) bool {
	conn, err := dialIn(cluster.network(pod.Spec.NodeName), net.JoinHostPort(pod.Status.PodIP, "8080"))(ctx)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// job makes a Job of the workload's name.
func (w workload) job(ctx context.Context, spec batchv1.JobSpec) {
	GinkgoHelper()
	_, err := client.BatchV1().Jobs(w.namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: map[string]string{"app": w.name}}, Spec: spec,
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
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
