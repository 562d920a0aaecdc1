package e2e_test

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/podlease/podlease/pkg/boottime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// asPod is a client with the token of a Pod's ServiceAccount, bound to the Pod.
func asPod(ctx context.Context, pod *corev1.Pod) kubernetes.Interface {
	GinkgoHelper()
	answer, err := client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = answer.Status.Token
	c, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// asUser is a client of a person.
func asUser(name string) kubernetes.Interface {
	GinkgoHelper()
	config := rest.CopyConfig(admin)
	config.Impersonate.UserName = name
	c, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// patch changes a Pod as kubectl does.
func patch(ctx context.Context, c kubernetes.Interface, pod *corev1.Pod, text string, subresource ...string) error {
	_, err := c.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, subresource...)
	return err
}

// ending is a Pod that does its work and ends.
func (w workload) ending(pairs ...string) corev1.PodTemplateSpec {
	t := w.template(pairs...)
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	app := &t.Spec.Containers[0]
	app.Image, app.Command, app.Ports, app.ReadinessProbe = "ghcr.io/podlease/podlease:dev", []string{"/podlease", "version"}, nil, nil
	return t
}

// completed waits until so many Jobs of the workload are complete.
func (w workload) completed(ctx context.Context, jobs int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list, err := client.BatchV1().Jobs(w.namespace).List(ctx, w.selector())
		g.Expect(err).NotTo(HaveOccurred())
		var done int
		for _, job := range list.Items {
			done += int(job.Status.Succeeded)
		}
		g.Expect(done).To(BeNumerically(">=", jobs), "%v", list.Items)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
}

func specsOfPolicies(shop workload) {
	var pod, other *corev1.Pod // of the shop; the first is active
	BeforeEach(func(ctx context.Context) {
		pods, err := shop.pods(ctx)
		Expect(err).NotTo(HaveOccurred())
		for i := range pods {
			if pods[i].Labels[roleLabel] == "active" {
				pod = &pods[i]
			} else {
				other = &pods[i]
			}
		}
	}, NodeTimeout(patience))

	// All of them run as the ServiceAccount that the sidecars run as.
	It("lets Jobs, CronJobs, rollouts, evictions, debugging and other rights work as before", func(ctx context.Context) {
		tick, once, plain := workload{shop.namespace, "tick"}, workload{shop.namespace, "once"}, workload{shop.namespace, "plain"}
		DeferCleanup(func(ctx context.Context) {
			shop.kubectl(ctx, "delete", "--ignore-not-found", "cronjob/tick", "job/once", "deployment/plain", "role/patcher", "rolebinding/patcher")
		})
		_, err := client.BatchV1().CronJobs(shop.namespace).Create(ctx, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: tick.name}, Spec: batchv1.CronJobSpec{
			Schedule:    "* * * * *",
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": tick.name}}, Spec: batchv1.JobSpec{Template: tick.ending()}},
		}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		By("a Job")
		once.job(ctx, batchv1.JobSpec{Template: once.ending()})
		once.completed(ctx, 1)

		By("a rollout")
		plain.deploy(ctx, 2)
		plain.rolledOut(ctx, "deployment")
		plain.kubectl(ctx, "rollout", "restart", "deployment/plain")
		plain.rolledOut(ctx, "deployment")

		By("evictions")
		pods, err := plain.pods(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{pods[0].Name, other.Name} {
			Expect(client.CoreV1().Pods(shop.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: shop.namespace, Name: name}})).To(Succeed())
		}

		By("debugging")
		shop.kubectl(ctx, "debug", pod.Name, "--image="+sampleApp, "--image-pull-policy=IfNotPresent", "--profile=restricted", "--container=debug", "--attach=false")
		Eventually(func(g Gomega) {
			now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.Status.EphemeralContainerStatuses).To(HaveLen(1))
			state := now.Status.EphemeralContainerStatuses[0].State
			g.Expect(state.Running != nil || state.Terminated != nil).To(BeTrue(), "%v", state)
		}).WithContext(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())

		By("a ServiceAccount's own right on Pods")
		shop.kubectl(ctx, "create", "role", "patcher", "--verb=get,patch", "--resource=pods")
		shop.kubectl(ctx, "create", "rolebinding", "patcher", "--role=patcher", "--serviceaccount="+shop.namespace+":default")
		shop.settled(ctx, 3) // but for the evicted one, its Pods are the same
		Eventually(func() error {
			pods, err := plain.pods(ctx)
			if err != nil {
				return err
			}
			return patch(ctx, asPod(ctx, pod), &pods[0], `{"metadata":{"labels":{"tier":"x"},"annotations":{"example.com/note":"x"}}}`)
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())

		By("a CronJob")
		tick.completed(ctx, 1)
	}, SpecTimeout(3*patience))

	It("lets a cluster's administrator set the role and not those who may edit Pods", func(ctx context.Context) {
		v := shop.watch(ctx)
		run := v.active(ctx)
		v.agreed(ctx, run)
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "delete", "--ignore-not-found", "clusterrolebinding/podlease-e2e-root")
			shop.kubectl(ctx, "delete", "--ignore-not-found", "rolebinding/eve")
		})
		shop.kubectl(ctx, "create", "rolebinding", "eve", "--clusterrole=edit", "--user=eve")
		kubectl(ctx, "create", "clusterrolebinding", "podlease-e2e-root", "--clusterrole=cluster-admin", "--user=root")
		const becomeActive = `{"metadata":{"labels":{"podlease.io/role":"active"}}}`
		Eventually(func() error { return patch(ctx, asUser("eve"), other, `{"metadata":{"labels":{"tier":"x"}}}`) }).
			WithContext(ctx).WithTimeout(patience).Should(Succeed(), "until the API server knows that she may")
		Expect(patch(ctx, asUser("eve"), other, becomeActive)).To(MatchError(ContainSubstring(`grant the verb "override" on roles.podlease.io`)))
		Expect(v.labels.holders()).To(ConsistOf(run.Who))

		start := boottime.Now()
		Eventually(func() error { return patch(ctx, asUser("root"), other, becomeActive) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		set := v.sees(ctx, other.Name, "active", start)
		again := v.sees(ctx, other.Name, "standby", set)
		report("label set by hand put right after", "%v", (again - set).Round(time.Millisecond))
		v.agreed(ctx, run)
		v.expectSameTerm(run)
	}, SpecTimeout(2*patience))

	It("lets a sidecar's token change no image, with the policies or without", func(ctx context.Context) {
		const image = `{"metadata":{"labels":{"tier":"x"}},"spec":{"containers":[{"name":"app","image":"example.com/evil"}]}}`
		expectSameImage := func(token kubernetes.Interface) {
			GinkgoHelper()
			Expect(patch(ctx, token, pod, image)).To(MatchError(ContainSubstring("forbidden")))
			now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(now.Spec.Containers).To(HaveExactElements(HaveField("Image", sampleApp)))
		}
		token := asPod(ctx, pod)
		Expect(patch(ctx, token, pod, image, "status")).To(MatchError(ContainSubstring("may change no label but podlease.io/role")))
		expectSameImage(token)

		DeferCleanup(func(ctx context.Context) { release(ctx) })
		release(ctx, "admissionPolicy.enabled=false")
		Eventually(func() error { return patch(ctx, token, pod, image, "status") }).WithContext(ctx).WithTimeout(patience).
			Should(Succeed(), "until the API server knows that the policy is gone")
		expectSameImage(token)
	}, SpecTimeout(2*patience))
}
