package injection

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/podlease/podlease/pkg/annotations"
)

// Review is what there is to say of a workload where people look, when they apply it.
type Review struct {
	Warnings []string
	Refusal  error
}

// Workload is the part of a Deployment, StatefulSet, DaemonSet, Job or CronJob that
// matters here.
type Workload struct {
	Kind      string
	Namespace string
	Name      string
	// Template is the Pod template, and Path where it lies.
	Template corev1.PodTemplateSpec
	Path     *field.Path
	// Annotations are the workload's own, where settings do nothing.
	Annotations map[string]string
	// Selector is the workload's own.
	Selector *metav1.LabelSelector

	replicas    int32
	deployment  *appsv1.DeploymentSpec
	statefulSet *appsv1.StatefulSetSpec
}

// AsWorkload reads a workload that the review knows; ok is false for anything else.
func AsWorkload(object any) (w Workload, ok bool) {
	template := field.NewPath("spec", "template")
	switch o := object.(type) {
	case *appsv1.Deployment:
		w = workload("Deployment", o, o.Spec.Template, template)
		w.Selector, w.deployment, w.replicas = o.Spec.Selector, &o.Spec, replicas(o.Spec.Replicas)
	case *appsv1.StatefulSet:
		w = workload("StatefulSet", o, o.Spec.Template, template)
		w.Selector, w.statefulSet, w.replicas = o.Spec.Selector, &o.Spec, replicas(o.Spec.Replicas)
	case *appsv1.DaemonSet:
		w = workload("DaemonSet", o, o.Spec.Template, template)
		w.Selector = o.Spec.Selector
	case *batchv1.Job:
		w = workload("Job", o, o.Spec.Template, template)
	case *batchv1.CronJob:
		w = workload("CronJob", o, o.Spec.JobTemplate.Spec.Template, field.NewPath("spec", "jobTemplate", "spec", "template"))
	default:
		return Workload{}, false
	}
	return w, true
}

func workload(kind string, o metav1.Object, template corev1.PodTemplateSpec, path *field.Path) Workload {
	return Workload{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(),
		Template: template, Path: path, Annotations: o.GetAnnotations(),
	}
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// CheckWorkload tries the injection on a Pod as the workload would make it, and looks at
// what only the workload says: its strategy, its selector, its own annotations.
func CheckWorkload(w Workload, settings Settings) Review {
	misplaced := w.misplaced()
	result := Inject(w.pod(), Request{Namespace: w.Namespace}, settings)
	review := Review{Warnings: append(misplaced, result.Warnings...), Refusal: result.Refusal}
	if result.Refusal != nil {
		review.Refusal = fmt.Errorf("%s: %w", w.Path, result.Refusal)
		return review
	}
	if result.Pod == nil {
		return review
	}
	review.Warnings = append(review.Warnings, w.selectorWarnings(settings)...)
	warning, refused := w.checkReadiness()
	if warning != "" {
		review.Warnings = append(review.Warnings, warning)
	}
	if refused != nil {
		review.Refusal = fmt.Errorf("podlease: %w", refused)
	}
	return review
}

// misplaced warns of settings on the workload itself, which nothing reads
// (istio/istio#3664).
func (w Workload) misplaced() []string {
	if _, ok := w.Annotations[annotations.Inject]; !ok {
		return nil
	}
	return []string{fmt.Sprintf("%s on the %s itself does nothing: put it under %s.metadata.annotations", annotations.Inject, w.Kind, w.Path)}
}

// pod is a Pod as the workload's controller would make it.
func (w Workload) pod() *corev1.Pod {
	yes := true
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: w.Kind, Name: w.Name, Controller: &yes}
	if w.Kind == "Job" || w.Kind == "CronJob" {
		owner.APIVersion = "batch/v1"
	}
	pod := &corev1.Pod{ObjectMeta: *w.Template.ObjectMeta.DeepCopy(), Spec: *w.Template.Spec.DeepCopy()}
	pod.Namespace, pod.OwnerReferences = w.Namespace, []metav1.OwnerReference{owner}
	return pod
}

func (w Workload) selectorWarnings(settings Settings) []string {
	role := settings.RoleLabel
	if role == "" {
		role = annotations.Role
	}
	if w.Selector == nil {
		return nil
	}
	if _, ok := w.Selector.MatchLabels[role]; ok {
		return []string{fmt.Sprintf("spec.selector uses %s, which changes as Pods become active: the %s would lose its Pods", role, w.Kind)}
	}
	return nil
}

// checkReadiness knows which strategies a rollout can complete under when only the
// active Pod is Ready.
func (w Workload) checkReadiness() (warning string, refused *field.Error) {
	readiness := w.Template.Annotations[annotations.Readiness]
	if !gatesReadiness(readiness) || w.replicas <= 1 {
		return "", nil
	}
	path := w.Path.Child("metadata", "annotations").Key(annotations.Readiness)
	done := fmt.Sprintf("%s: %q with %d replicas: all Pods are replaced on an update, but `kubectl rollout status` never says that it is complete, because only one Pod is Ready",
		annotations.Readiness, readiness, w.replicas)
	switch {
	case w.statefulSet != nil && w.statefulSet.PodManagementPolicy != appsv1.ParallelPodManagement:
		return "", notForReadiness(path, readiness, "a StatefulSet with podManagementPolicy OrderedReady, which never gets past its second Pod (Parallel would do)")
	case w.statefulSet != nil:
		return done, nil
	case w.deployment != nil && w.unavailable() < w.replicas-1:
		return "", notForReadiness(path, readiness, fmt.Sprintf(
			"a Deployment of %d replicas with maxUnavailable %d, whose updates would never end: use one replica, or maxUnavailable of at least %d", w.replicas, w.unavailable(), w.replicas-1))
	case w.deployment != nil:
		return done, nil
	}
	return "", nil
}

// unavailable is how many Pods may be missing during an update; all of them with
// Recreate.
func (w Workload) unavailable() int32 {
	strategy := w.deployment.Strategy
	if strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return w.replicas
	}
	value := intstr.FromString("25%")
	if strategy.RollingUpdate != nil && strategy.RollingUpdate.MaxUnavailable != nil {
		value = *strategy.RollingUpdate.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, int(w.replicas), false)
	if err != nil {
		return 0
	}
	return int32(n) //nolint:gosec // a part of a number of replicas
}
