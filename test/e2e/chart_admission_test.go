package e2e_test

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/boottime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// storedPlain makes a Pod without our keys and returns it as it was stored, but for what
// the server makes up each time.
func storedPlain(ctx context.Context, w workload) *corev1.Pod {
	GinkgoHelper()
	t := w.template()
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Name, pod.Labels = "plain", map[string]string{"app": "plain"}
	pod.Spec.AutomountServiceAccountToken = new(false) // the name of the volume would be random
	stored, err := client.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(client.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
	Eventually(func() bool {
		_, err := client.CoreV1().Pods(w.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).WithTimeout(patience).Should(BeTrue())
	stored.UID, stored.ResourceVersion, stored.CreationTimestamp, stored.ManagedFields = "", "", metav1.Time{}, nil
	return stored
}

// webhookCalls are the API server's counts of calls of our webhook.
func webhookCalls(ctx context.Context) string {
	GinkgoHelper()
	raw, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "apiserver_admission_webhook_request_total") && strings.Contains(line, `name="inject.podlease.io"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// expectApart fails if a Pod without our keys meets anything of podlease.
func expectApart(ctx context.Context, w workload, untouched *corev1.Pod) {
	GinkgoHelper()
	before := webhookCalls(ctx)
	Expect(before).NotTo(BeEmpty())
	stored := storedPlain(ctx, w)
	Expect(equality.Semantic.DeepEqual(stored, untouched)).To(BeTrue(), "stored with podlease:\n%v\nwithout:\n%v", stored, untouched)
	Expect(webhookCalls(ctx)).To(Equal(before), "calls of the webhook")
}

func specsOfAdmission(shop workload, untouched **corev1.Pod) {
	It("leaves a Pod without its keys alone", func(ctx context.Context) {
		expectApart(ctx, shop, *untouched)
	}, SpecTimeout(patience))

	It("refuses Pods that ask while the controller is down, and no others, and admits them when it is back", func(ctx context.Context) {
		v := shop.watch(ctx)
		run := v.active(ctx)
		late := workload{shop.namespace, "late"}
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "--namespace", system, "scale", controller, "--replicas=2")
			rolledOut(ctx, controller)
			late.kubectl(ctx, "delete", "deployment,service", late.name, "--ignore-not-found")
		})
		kubectl(ctx, "--namespace", system, "scale", controller, "--replicas=0")
		kubectl(ctx, "--namespace", system, "wait", "--for=delete", "pod", "--selector=app.kubernetes.io/component=controller", "--timeout=2m")
		expectApart(ctx, shop, *untouched)

		late.deploy(ctx, 1, "inject", "true")
		Eventually(func() string {
			return late.kubectl(ctx, "get", "replicasets", "--selector=app=late", "--output", "jsonpath={.items[*].status.conditions[?(@.type=='ReplicaFailure')].message}")
		}).WithContext(ctx).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(ContainSubstring(`failed calling webhook "inject.podlease.io"`))
		report("what a refused ReplicaSet says", "%s", late.kubectl(ctx, "get", "replicasets", "--selector=app=late", "--output", "jsonpath={.items[*].status.conditions[*].message}"))

		back := boottime.Now()
		kubectl(ctx, "--namespace", system, "scale", controller, "--replicas=2")
		late.settled(ctx, 1)
		report("refused Pod active after the controller is scaled up again", "%v", (boottime.Now() - back).Round(time.Millisecond))
		v.expectSameTerm(run)
		v.expectOneLabel()
	}, SpecTimeout(3*patience))
}
