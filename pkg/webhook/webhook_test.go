package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podlease/podlease/pkg/injection"
	"github.com/podlease/podlease/pkg/webhook"
)

// namespaces is a cluster whose namespaces are prepared, or fail to be.
type namespaces struct {
	prepared []injection.Need
	err      error
}

func (n *namespaces) SecretKeys(context.Context, string, string) ([]string, error) {
	return []string{"password"}, nil
}

func (n *namespaces) Prepare(_ context.Context, need injection.Need) error {
	n.prepared = append(n.prepared, need)
	return n.err
}

func settings() injection.Settings {
	return injection.Settings{Image: "sidecar:1", ToolImage: "tool:1", Quorums: map[string]injection.Quorum{"default": {Nodes: []string{"a:1", "b:1", "c:1"}}}}
}

// hook is the webhook for Pods with what surrounds it.
type hook struct {
	webhook.Pods
	namespaces *namespaces
	registry   *prometheus.Registry
}

func newHook(live client.Reader) *hook {
	h := &hook{namespaces: &namespaces{}, registry: prometheus.NewRegistry()}
	h.Pods = webhook.Pods{Settings: settings(), Namespaces: h.namespaces, Live: live, Metrics: webhook.NewMetrics(h.registry), Log: logr.Discard()}
	return h
}

// counted are the requests of a result.
func (h *hook) counted(t *testing.T, result string) int {
	t.Helper()
	all, err := h.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != "podlease_admission_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	t.Fatalf("no series of result %s", result)
	return 0
}

func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

func pod(pairs ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "orders-", Annotations: map[string]string{}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations["podlease.io/"+pairs[i]] = pairs[i+1]
	}
	return p
}

func creation(t *testing.T, object any) admission.Request {
	t.Helper()
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "u", Namespace: "shop", Operation: admissionv1.Create, Object: raw(t, object)}}
}

func TestPodThatAsksIsInjectedOnceItsNamespaceIsPrepared(t *testing.T) {
	h := newHook(fake.NewClientBuilder().Build())
	response := h.Handle(t.Context(), creation(t, pod("inject", "true")))
	if !response.Allowed || len(response.Patches) == 0 {
		t.Fatalf("response %+v, want a patch", response)
	}
	want := injection.Need{Namespace: "shop", ServiceAccount: "default", Quorum: "default"}
	if len(h.namespaces.prepared) != 1 || h.namespaces.prepared[0] != want {
		t.Errorf("prepared %v, want %v", h.namespaces.prepared, want)
	}
	if h.counted(t, webhook.ResultInjected) != 1 {
		t.Error("not counted as injected")
	}
	if n := testutil.CollectAndCount(h.registry, "podlease_admission_duration_seconds"); n != 1 {
		t.Errorf("%d histograms", n)
	}
}

func TestPodIsNotAdmittedToANamespaceThatIsNotPrepared(t *testing.T) {
	h := newHook(fake.NewClientBuilder().Build())
	h.namespaces.err = errors.New("the Secret shop/podlease-default is missing")
	response := h.Handle(t.Context(), creation(t, pod("inject", "true")))
	if response.Allowed || response.Result.Code != http.StatusInternalServerError || !strings.Contains(response.Result.Message, "Secret shop/podlease-default is missing") {
		t.Errorf("response %+v, want 500 that names the Secret", response)
	}
	if h.counted(t, webhook.ResultError) != 1 {
		t.Error("not counted as an error")
	}
}

func TestDryRunPreparesNothing(t *testing.T) {
	h := newHook(fake.NewClientBuilder().Build())
	request := creation(t, pod("inject", "true"))
	request.DryRun = new(true)
	if response := h.Handle(t.Context(), request); !response.Allowed || len(response.Patches) == 0 {
		t.Errorf("response %+v, want a patch", response)
	}
	if len(h.namespaces.prepared) > 0 {
		t.Errorf("prepared %v", h.namespaces.prepared)
	}
}

func TestWrongPodIsRefusedWithTheReason(t *testing.T) {
	h := newHook(fake.NewClientBuilder().Build())
	response := h.Handle(t.Context(), creation(t, pod("inject", "true", "ttl", "soon", "lokc", "x")))
	if response.Allowed || response.Result.Code != http.StatusForbidden || !strings.Contains(response.Result.Message, `"soon"`) {
		t.Errorf("response %+v, want 403 that names the value", response)
	}
	if len(response.Warnings) == 0 {
		t.Error("no warning of the typo")
	}
	if len(h.namespaces.prepared) > 0 || h.counted(t, webhook.ResultRefused) != 1 {
		t.Errorf("prepared %v", h.namespaces.prepared)
	}
}

func TestWhatIsNotANewPodThatAsksIsLeftAlone(t *testing.T) {
	h := newHook(fake.NewClientBuilder().Build())
	update := creation(t, pod("inject", "true"))
	update.Operation = admissionv1.Update
	ephemeral := creation(t, pod("inject", "true"))
	ephemeral.SubResource = "ephemeralcontainers"
	for name, request := range map[string]admission.Request{
		"plain": creation(t, pod()), "declined": creation(t, pod("inject", "false")), "update": update, "subresource": ephemeral,
	} {
		if response := h.Handle(t.Context(), request); !response.Allowed || len(response.Patches) > 0 {
			t.Errorf("%s: response %+v", name, response)
		}
	}
	if h.counted(t, webhook.ResultIgnored) != 4 {
		t.Error("not counted as ignored")
	}
}

func TestTextThatIsNoPodIsABadRequest(t *testing.T) {
	h := newHook(fake.NewClientBuilder().Build())
	request := creation(t, pod())
	request.Object.Raw = []byte(`{"spec":7}`)
	if response := h.Handle(t.Context(), request); response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("response %+v, want 400", response)
	}
}

// jobs is a cluster with the Job "night-1" of the CronJob "night".
func jobs(t *testing.T, err error) client.Reader {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "night-1", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "CronJob", Name: "night", Controller: new(true)},
	}}}
	return fake.NewClientBuilder().WithObjects(job).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
}

func ofJob(name string) *corev1.Pod {
	p := pod("inject", "true")
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, Controller: new(true)}}
	return p
}

func TestRunsOfACronJobHaveItsName(t *testing.T) {
	h := newHook(jobs(t, nil))
	for job, lock := range map[string]string{"night-1": "shop/night", "gone": "shop/gone"} {
		patches, err := json.Marshal(h.Handle(t.Context(), creation(t, ofJob(job))).Patches)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(patches), `"--lock=`+lock+`"`) {
			t.Errorf("Job %s: patches lack lock %s: %s", job, lock, patches)
		}
	}
}

func TestJobThatCannotBeReadIsNoReasonForAWrongLock(t *testing.T) {
	h := newHook(jobs(t, errors.New("the API server is busy")))
	response := h.Handle(t.Context(), creation(t, ofJob("night-1")))
	if response.Allowed || !strings.Contains(response.Result.Message, "shop/night-1") || !strings.Contains(response.Result.Message, "busy") {
		t.Errorf("response %+v, want an error that names the Job", response)
	}
	given := ofJob("night-1")
	given.Annotations["podlease.io/lock"] = "shop/mine"
	if response := h.Handle(t.Context(), creation(t, given)); !response.Allowed {
		t.Errorf("response %+v: the Job was read although the lock is given", response)
	}
}

func deployment(pairs ...string) *appsv1.Deployment {
	p := pod(pairs...)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: p.Annotations}, Spec: p.Spec}},
	}
}

func review(t *testing.T, kind string, now, before any) admission.Response {
	t.Helper()
	request := creation(t, now)
	request.Kind.Kind = kind
	if before != nil {
		request.Operation, request.OldObject = admissionv1.Update, raw(t, before)
	}
	w := &webhook.Workloads{Settings: settings(), Log: logr.Discard()}
	return w.Handle(t.Context(), request)
}

func TestWorkloadIsRefusedForWhatItsPodsWouldBe(t *testing.T) {
	response := review(t, "Deployment", deployment("inject", "true", "ttl", "soon"), nil)
	if response.Allowed || !strings.Contains(response.Result.Message, "spec.template") || !strings.Contains(response.Result.Message, `"soon"`) {
		t.Errorf("response %+v, want a refusal that names place and value", response)
	}
	for _, fine := range []any{deployment("inject", "true"), deployment()} {
		if response := review(t, "Deployment", fine, nil); !response.Allowed {
			t.Errorf("response %+v", response)
		}
	}
}

// What was wrong before must not keep controllers from updating it.
func TestUpdateIsRefusedOnlyForWhatIsNew(t *testing.T) {
	wrong := deployment("inject", "true", "ttl", "soon")
	if response := review(t, "Deployment", wrong, wrong); !response.Allowed || len(response.Warnings) == 0 {
		t.Errorf("response %+v, want a warning", response)
	}
	if response := review(t, "Deployment", wrong, deployment("inject", "true")); response.Allowed {
		t.Errorf("response %+v, want a refusal", response)
	}
	if response := review(t, "Deployment", wrong, deployment("inject", "true", "ttl", "later")); response.Allowed {
		t.Errorf("response %+v, want a refusal", response)
	}
}

func TestKindsThatAreNotKnownAreLeftAlone(t *testing.T) {
	if response := review(t, "Rollout", deployment("inject", "True"), nil); !response.Allowed {
		t.Errorf("response %+v", response)
	}
	if response := review(t, "Deployment", map[string]any{"spec": 7}, nil); response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("response %+v, want 400", response)
	}
}
