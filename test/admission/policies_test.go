package admission_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func patchStatus(ctx context.Context, c kubernetes.Interface, p *corev1.Pod, patch string) error {
	_, err := c.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

const becomeActive = `{"metadata":{"labels":{"podlease.io/role":"active"},"annotations":{"podlease.io/fencing-token":"7","podlease.io/active-since":"2026-01-01T00:00:00Z","controller.kubernetes.io/pod-deletion-cost":"2147483647"}},
	"status":{"conditions":[{"type":"podlease.io/active","status":"True","reason":"Active"}]}}`

const token7 = `{"metadata":{"annotations":{"podlease.io/fencing-token":"7"}}}`

// grant gives a ServiceAccount a right of its own.
func grant(ctx context.Context, namespace, account, name string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name}
	_, err := admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func impersonate(user string) *kubernetes.Clientset {
	GinkgoHelper()
	config := server.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("A sidecar's token", Ordered, func() {
	var ns string
	var own, other *corev1.Pod
	var c *kubernetes.Clientset

	BeforeAll(func(ctx SpecContext) {
		ns = namespace(ctx)
		own, other = admitted(ctx, ns, pod("readiness", "gate")), admitted(ctx, ns, pod())
		c = as(ctx, ns, "default", own)
	})

	It("publishes the role on its own Pod", func(ctx SpecContext) {
		Expect(patchStatus(ctx, c, own, becomeActive)).To(Succeed())
		Expect(patchStatus(ctx, c, own, `{"metadata":{"labels":{"podlease.io/role":"standby"},"annotations":{"podlease.io/fencing-token":null}}}`)).To(Succeed())
	})

	DescribeTable("changes nothing else",
		func(ctx SpecContext, patch, message string) {
			Expect(patchStatus(ctx, c, own, patch)).To(MatchError(ContainSubstring(message)))
		},
		Entry("another label", `{"metadata":{"labels":{"app":"x"}}}`, "no label but podlease.io/role"),
		Entry("takes a label away", `{"metadata":{"labels":{"podlease.io/injected":null}}}`, "no label but podlease.io/role"),
		Entry("another role", `{"metadata":{"labels":{"podlease.io/role":"master"}}}`, "must be active or standby"),
		Entry("no role", `{"metadata":{"labels":{"podlease.io/role":null}}}`, "must be active or standby"),
		Entry("another annotation", `{"metadata":{"annotations":{"podlease.io/lock":"x"}}}`, "no annotation but"),
		Entry("the phase", `{"status":{"phase":"Succeeded"}}`, "nothing of the status but"),
		Entry("another condition", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "nothing of the status but"),
		Entry("an address", `{"status":{"podIP":"10.1.2.3"}}`, "nothing of the status but"),
		Entry("a finalizer", `{"metadata":{"finalizers":["x.example.com/y"]}}`, "no finalizers"),
	)

	It("never changes an image, with or without the policy", func(ctx SpecContext) {
		err := patchStatus(ctx, c, own, `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`)
		if err == nil {
			p, err := admin.CoreV1().Pods(ns).Get(ctx, own.Name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(p.Spec.Containers[0].Image).To(Equal("app"))
		}
		_, err = c.CoreV1().Pods(ns).Patch(ctx, own.Name, types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"app","image":"evil"}]}}`), metav1.PatchOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	})

	It("does nothing to another Pod", func(ctx SpecContext) {
		Expect(patchStatus(ctx, c, other, token7)).To(MatchError(ContainSubstring("only its own Pod")))
		Expect(patchStatus(ctx, c, other, becomeActive)).To(MatchError(ContainSubstring("denied request")))
	})

	It("can nothing when it is bound to no Pod", func(ctx SpecContext) {
		Expect(patchStatus(ctx, as(ctx, ns, "default", nil), own, token7)).To(MatchError(ContainSubstring("only its own Pod")))
	})

	It("reads nothing", func(ctx SpecContext) {
		_, err := c.CoreV1().Pods(ns).Get(ctx, own.Name, metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		_, err = c.CoreV1().Secrets(ns).Get(ctx, "podlease-default", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	})

	It("leaves a ServiceAccount's own rights on Pods alone", func(ctx SpecContext) {
		grant(ctx, ns, "default", "patcher", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch", "get"}})
		Eventually(func() error {
			_, err := c.CoreV1().Pods(ns).Patch(ctx, other.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"tier":"x"}}}`), metav1.PatchOptions{})
			return err
		}).Should(Succeed())
	})
})

var _ = Describe("The role label", func() {
	It("is set by a cluster's administrator and not by an editor", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := admitted(ctx, ns, pod())
		grant(ctx, ns, "editor", "edit", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"*"}})
		patch := []byte(`{"metadata":{"labels":{"podlease.io/role":"active"}}}`)
		editor := impersonate("system:serviceaccount:" + ns + ":editor")
		Eventually(func() string {
			_, err := editor.CoreV1().Pods(ns).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return fmt.Sprint(err)
		}).Should(ContainSubstring(`grant the verb "override"`))
		_, err := editor.CoreV1().Pods(ns).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"app":"x"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.CoreV1().Pods(ns).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("cannot come with a new Pod", func(ctx SpecContext) {
		p := plainPod()
		p.Labels = map[string]string{"podlease.io/role": "active"}
		p.Annotations = map[string]string{"podlease.io/inject": "false"}
		_, err := create(ctx, namespace(ctx), p)
		Expect(err).To(MatchError(ContainSubstring("is written by the Pod's own sidecar")))
	})

	It("lets evictions and debugging through", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := admitted(ctx, ns, pod())
		debugged := p.DeepCopy()
		debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "sh"}}}
		_, err := admin.CoreV1().Pods(ns).UpdateEphemeralContainers(ctx, p.Name, debugged, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.CoreV1().Pods(ns).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: p.Name}})).To(Succeed())
	})
})
