package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

// InjectPath and CheckPath are where the two webhooks answer.
const (
	InjectPath = "/inject"
	CheckPath  = "/check"
)

// callBudget bounds the calls made for one admission; the API server gives up after 5 s.
const callBudget = 4 * time.Second

// Namespaces knows what namespaces have for injected Pods.
type Namespaces interface {
	// SecretKeys are the keys of the Secret that Pods of that namespace mount for a
	// quorum; none when there is no Secret.
	SecretKeys(ctx context.Context, namespace, quorum string) ([]string, error)
	// Prepare makes what is missing, or says what is.
	Prepare(ctx context.Context, need injection.Need) error
}

// Pods injects the sidecar into Pods.
type Pods struct {
	Settings   injection.Settings
	Namespaces Namespaces
	// Live reads from the API server itself: a Job is often younger than any cache.
	Live    client.Reader
	Metrics *Metrics
	Log     logr.Logger
}

var _ admission.Handler = (*Pods)(nil)

// Handle answers one admission request.
func (p *Pods) Handle(ctx context.Context, req admission.Request) admission.Response {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, callBudget)
	defer cancel()
	response, result := p.answer(ctx, req)
	p.Metrics.observe(result, time.Since(start))
	return response
}

func (p *Pods) answer(ctx context.Context, req admission.Request) (admission.Response, string) {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed(""), ResultIgnored
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("podlease: read the Pod: %w", err)), ResultError
	}
	log := p.Log.WithValues("namespace", req.Namespace, "pod", nameOf(pod), "uid", req.UID)
	result, err := p.inject(ctx, req, pod)
	switch {
	case err != nil:
		log.Error(err, "pod not admitted")
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("podlease: %w", err)), ResultError
	case result.Refusal != nil:
		log.Info("pod refused", "reason", result.Refusal.Error())
		return admission.Denied(result.Refusal.Error()).WithWarnings(result.Warnings...), ResultRefused
	case result.Pod == nil:
		return admission.Allowed("").WithWarnings(result.Warnings...), ResultIgnored
	}
	response, err := patch(pod, result.Pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("podlease: %w", err)), ResultError
	}
	log.V(1).Info("pod injected", "lock", result.Lock, "quorum", result.Need.Quorum, "reasons", result.Reasons)
	return response.WithWarnings(result.Warnings...), ResultInjected
}

func nameOf(pod *corev1.Pod) string {
	if pod.Name != "" {
		return pod.Name
	}
	return pod.GenerateName
}

// inject asks the cluster for what the injection needs to know, and prepares the
// namespace. A dry run prepares nothing.
func (p *Pods) inject(ctx context.Context, req admission.Request, pod *corev1.Pod) (injection.Result, error) {
	settings, err := p.withSecret(ctx, req.Namespace, pod)
	if err != nil {
		return injection.Result{}, err
	}
	request := injection.Request{Namespace: req.Namespace}
	if request.CronJob, err = p.cronJob(ctx, req.Namespace, pod); err != nil {
		return injection.Result{}, err
	}
	result := injection.Inject(pod, request, settings)
	if result.Pod == nil || dryRun(req) {
		return result, nil
	}
	return result, p.Namespaces.Prepare(ctx, result.Need)
}

func dryRun(req admission.Request) bool { return req.DryRun != nil && *req.DryRun }

// withSecret fills in which files the quorum's Secret has. A quorum that does not exist
// is refused by the injection.
func (p *Pods) withSecret(ctx context.Context, namespace string, pod *corev1.Pod) (injection.Settings, error) {
	settings := p.Settings
	meta := annotations.Metadata{Annotations: pod.Annotations, Labels: pod.Labels}
	if wanted, errs := annotations.Wanted(meta); !wanted || len(errs) > 0 {
		return settings, nil
	}
	name := annotations.QuorumOf(pod.Annotations)
	quorum, known := settings.Quorums[name]
	if !known {
		return settings, nil
	}
	keys, err := p.Namespaces.SecretKeys(ctx, namespace, name)
	if err != nil {
		return settings, err
	}
	quorum.SecretKeys = keys
	return settings.WithQuorum(name, quorum), nil
}

// cronJob finds out what owns the Pod's Job: the Pod knows the Job only. It is asked
// for only where the lock's name depends on it.
func (p *Pods) cronJob(ctx context.Context, namespace string, pod *corev1.Pod) (string, error) {
	name := injection.OwningJob(pod)
	if name == "" || pod.Annotations[annotations.Lock] != "" {
		return "", nil
	}
	job := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}}
	err := p.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, job)
	if apierrors.IsNotFound(err) {
		return "", nil // deleted meanwhile: its Pod will be as well
	}
	if err != nil {
		return "", fmt.Errorf("read the Job %s/%s to name the lock after its CronJob: %w", namespace, name, err)
	}
	return injection.OwningCronJob(job.OwnerReferences), nil
}

// patch compares what podlease knows of the Pod before and after. What a newer API
// server has in the Pod and podlease does not know is in neither, so it stays.
func patch(before, after *corev1.Pod) (admission.Response, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return admission.Response{}, fmt.Errorf("write the Pod: %w", err)
	}
	now, err := json.Marshal(after)
	if err != nil {
		return admission.Response{}, fmt.Errorf("write the Pod: %w", err)
	}
	response := admission.PatchResponseFromRaw(old, now)
	if !response.Allowed {
		return admission.Response{}, errors.New(response.Result.Message)
	}
	return response, nil
}
