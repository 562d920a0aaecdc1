package controllers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

// Handover moves the lease to the newest revision where only the active Pod is Ready:
// without it a rolling update would wait for the new Pod to become Ready, and the new
// Pod for the old one to go.
type Handover struct {
	Client client.Client
	// Live reads owners, which are needed during an update only.
	Live      client.Reader
	RoleLabel string
	Log       logr.Logger
}

// SetupWithManager registers the controller.
func (h *Handover) SetupWithManager(mgr ctrl.Manager) error {
	return builder.TypedControllerManagedBy[election](mgr).Named("handover").
		Watches(&corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(electionsOf(lockOf))).
		Complete(reconcile.TypedFunc[election](h.reconcile))
}

// lockOf leaves out where tokens come from: an update may change that.
func lockOf(pod *corev1.Pod) (election, bool) {
	e, ok := electionOf(pod)
	e.fencing = ""
	return e, ok
}

func (h *Handover) reconcile(ctx context.Context, e election) (ctrl.Result, error) {
	pods, err := members(ctx, h.Client, e, lockOf)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !worthLooking(pods) {
		return ctrl.Result{}, nil
	}
	newest, err := h.newest(ctx, e.namespace, pods)
	if err != nil || newest == "" {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, h.apply(ctx, planHandover(pods, newest, h.RoleLabel))
}

// worthLooking is true only during an update of Pods whose readiness is leadership.
func worthLooking(pods []*corev1.Pod) bool {
	revisions := map[string]bool{}
	for _, pod := range pods {
		r := pod.Annotations[annotations.Readiness]
		if (r == annotations.ReadinessActive || r == annotations.ReadinessGate) && !finished(pod) {
			revisions[revision(pod)] = true
		}
	}
	delete(revisions, "")
	return len(revisions) > 1
}

// revision is the ReplicaSet of a Deployment's Pod, or the revision of a StatefulSet's;
// empty for others.
func revision(pod *corev1.Pod) string {
	o := metav1.GetControllerOfNoCopy(pod)
	switch {
	case o != nil && o.Kind == "ReplicaSet":
		return o.Name
	case o != nil && o.Kind == "StatefulSet":
		return pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	return ""
}

// handover is what is to be done.
type handover struct {
	lower []*corev1.Pod // older Pods, to contend last
	from  *corev1.Pod   // the active one among them, to step down
	value string        // of the annotation; one for each new Pod
}

// planHandover does nothing until a Pod of the newest revision can take over: its
// sidecar has started and all its other containers are ready.
func planHandover(pods []*corev1.Pod, newest, roleLabel string) handover {
	var h handover
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil || finished(pod):
		case revision(pod) == newest:
			if h.value == "" && canTakeOver(pod) {
				h.value = string(pod.UID)
			}
		default:
			h.lower = append(h.lower, pod)
			if pod.Labels[roleLabel] == annotations.RoleActive {
				h.from = pod
			}
		}
	}
	if h.value == "" {
		return handover{}
	}
	return h
}

func canTakeOver(pod *corev1.Pod) bool {
	started := false
	for _, s := range pod.Status.InitContainerStatuses {
		if s.Name == injection.ContainerName {
			started = s.Started != nil && *s.Started
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if !s.Ready {
			return false
		}
	}
	return started && len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}

const lowestPriority = "-100"

// apply lowers all older Pods before the active one steps down, or one of them would
// take the lease.
func (h *Handover) apply(ctx context.Context, plan handover) error {
	for _, pod := range plan.lower {
		if err := h.annotate(ctx, pod, annotations.Priority, lowestPriority); err != nil {
			return err
		}
	}
	if plan.from == nil {
		return nil
	}
	return h.annotate(ctx, plan.from, annotations.StepDown, plan.value)
}

func (h *Handover) annotate(ctx context.Context, pod *corev1.Pod, key, value string) error {
	if pod.Annotations[key] == value {
		return nil
	}
	err := patchPod(ctx, h.Client, pod, change{annotations: map[string]any{key: value}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another Pod of the same name by now
	}
	if err != nil {
		return err
	}
	h.Log.Info("handing over to the new revision", "namespace", pod.Namespace, "pod", pod.Name, "annotation", key, "value", value)
	return nil
}

// newest is the revision that an update goes to, by what the owner says: the newest Pod
// may well be an old revision's, made again after a crash.
func (h *Handover) newest(ctx context.Context, namespace string, pods []*corev1.Pod) (string, error) {
	best, highest := "", int64(-1)
	asked := map[string]bool{}
	for _, pod := range pods {
		o := metav1.GetControllerOfNoCopy(pod)
		if o == nil || asked[o.Name] {
			continue
		}
		asked[o.Name] = true
		key := types.NamespacedName{Namespace: namespace, Name: o.Name}
		if o.Kind == "StatefulSet" {
			return h.updateRevision(ctx, key)
		}
		n, err := h.replicaSetRevision(ctx, key)
		if err != nil {
			return "", err
		}
		if o.Kind == "ReplicaSet" && n > highest {
			best, highest = o.Name, n
		}
	}
	return best, nil
}

func (h *Handover) updateRevision(ctx context.Context, key types.NamespacedName) (string, error) {
	set := &appsv1.StatefulSet{}
	if err := h.Live.Get(ctx, key, set); err != nil {
		return "", client.IgnoreNotFound(fmt.Errorf("read StatefulSet %s: %w", key, err))
	}
	return set.Status.UpdateRevision, nil
}

// revisionAnnotations are where a Deployment and an Argo Rollout count.
var revisionAnnotations = []string{"deployment.kubernetes.io/revision", "rollout.argoproj.io/revision"}

// replicaSetRevision is -1 where nobody counts.
func (h *Handover) replicaSetRevision(ctx context.Context, key types.NamespacedName) (int64, error) {
	set := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}}
	if err := h.Live.Get(ctx, key, set); err != nil {
		return -1, client.IgnoreNotFound(fmt.Errorf("read ReplicaSet %s: %w", key, err))
	}
	for _, a := range revisionAnnotations {
		if n, err := strconv.ParseInt(set.Annotations[a], 10, 64); err == nil {
			return n, nil
		}
	}
	return -1, nil
}
