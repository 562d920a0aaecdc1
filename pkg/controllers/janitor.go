package controllers

import (
	"context"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podlease/podlease/pkg/annotations"
)

// Janitor takes the active label off Pods whose sidecar cannot any more: it is dead, or
// cut off from the API server, while another Pod has become active with a higher token.
type Janitor struct {
	Client    client.Client
	RoleLabel string
	Log       logr.Logger

	cleared prometheus.Counter
}

// SetupWithManager registers the controller and its metric.
func (j *Janitor) SetupWithManager(mgr ctrl.Manager, registry prometheus.Registerer) error {
	j.cleared = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "podlease_stale_roles_cleared_total",
		Help: "Role labels taken off Pods whose term was over.",
	})
	registry.MustRegister(j.cleared)
	return builder.TypedControllerManagedBy[election](mgr).Named("janitor").
		Watches(&corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(electionsOf(electionOf))).
		Complete(reconcile.TypedFunc[election](j.reconcile))
}

func (j *Janitor) reconcile(ctx context.Context, e election) (ctrl.Result, error) {
	pods, err := members(ctx, j.Client, e, electionOf)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, pod := range stale(pods, j.RoleLabel) {
		if err := j.clear(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// stale are the Pods that say active and cannot be: finished ones, and those with a
// token below the highest. Pods without tokens are not compared.
func stale(pods []*corev1.Pod, roleLabel string) []*corev1.Pod {
	var active, out []*corev1.Pod
	var highest uint64
	for _, pod := range pods {
		switch {
		case pod.Labels[roleLabel] != annotations.RoleActive:
		case finished(pod):
			out = append(out, pod)
		default:
			active = append(active, pod)
			highest = max(highest, token(pod))
		}
	}
	for _, pod := range active {
		if t := token(pod); t != 0 && t < highest {
			out = append(out, pod)
		}
	}
	return out
}

// token is 0 where there is none that can be read.
func token(pod *corev1.Pod) uint64 {
	n, err := strconv.ParseUint(pod.Annotations[annotations.FencingToken], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// clear only changes the Pod as it was seen: its sidecar may have become active again
// since.
func (j *Janitor) clear(ctx context.Context, pod *corev1.Pod) error {
	to := change{
		labels:      map[string]any{j.RoleLabel: annotations.RoleStandby},
		annotations: map[string]any{annotations.FencingToken: nil, annotations.ActiveSince: nil},
		sameVersion: true,
	}
	if pod.Annotations[deletionCost] == deletionCostActive {
		to.annotations[deletionCost] = nil
	}
	err := patchPod(ctx, j.Client, pod, to)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it has changed, which brings us here again, or it is gone
	}
	if err != nil {
		return err
	}
	j.cleared.Inc()
	j.Log.Info("stale role cleared", "namespace", pod.Namespace, "pod", pod.Name, "token", token(pod))
	return nil
}
