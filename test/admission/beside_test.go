package admission_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// mesh is another injector: init containers first and last, a container, and a variable
// in every container.
func mesh(p *corev1.Pod) {
	if !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == "istio-proxy" }) {
		p.Spec.InitContainers = slices.Concat([]corev1.Container{{Name: "mesh-init", Image: "m"}}, p.Spec.InitContainers, []corev1.Container{{Name: "mesh-validate", Image: "m"}})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Image: "m"})
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for n := range list {
			if !slices.ContainsFunc(list[n].Env, func(e corev1.EnvVar) bool { return e.Name == "MESH" }) {
				list[n].Env = append(list[n].Env, corev1.EnvVar{Name: "MESH", Value: "1"})
			}
		}
	}
}

// injector serves mesh as a webhook, and registers it under a name that decides when
// it is called.
func injector(ctx context.Context, name, namespace string) {
	GinkgoHelper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		review := &admissionv1.AdmissionReview{}
		_ = json.Unmarshal(raw, review)
		p := &corev1.Pod{}
		_ = json.Unmarshal(review.Request.Object.Raw, p)
		mesh(p)
		changed, _ := json.Marshal(p)
		response := admission.PatchResponseFromRaw(review.Request.Object.Raw, changed)
		_ = response.Complete(admission.Request{AdmissionRequest: *review.Request})
		review.Response = &response.AdmissionResponse
		_ = json.NewEncoder(w).Encode(review)
	}))
	DeferCleanup(s.Close)
	url := s.URL
	_, err := admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mesh.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
			NamespaceSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
}

var _ = Describe("Beside another injector", func() {
	DescribeTable("the sidecar is last and nothing of either is lost",
		func(ctx SpecContext, name string) {
			ns := namespace(ctx)
			injector(ctx, name, ns)
			var stored *corev1.Pod
			Eventually(func(g Gomega) { // until the API server has seen the configuration
				var err error
				stored, err = create(ctx, ns, pod("on-loss", "exec"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(stored.Spec.Containers).To(HaveLen(2))
			}).Should(Succeed())
			var names []string
			for _, c := range stored.Spec.InitContainers {
				names = append(names, c.Name)
			}
			Expect(names).To(ConsistOf("mesh-init", "mesh-validate", "podlease-install", "podlease"))
			Expect(names[3]).To(Equal("podlease"))
			for _, c := range stored.Spec.Containers {
				Expect(c.Env).To(ContainElements(HaveField("Name", "MESH"), HaveField("Name", "PODLEASE_URL")))
			}
			Expect(sidecar(stored).Env).To(ContainElement(HaveField("Name", "MESH")))
		},
		Entry("called before ours", "aaa"),
		Entry("called after ours", "zzz"),
	)
})
