package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

// deletionCost is set by an active sidecar, to a value that no template gives.
const (
	deletionCost       = "controller.kubernetes.io/pod-deletion-cost"
	deletionCostActive = "2147483647"
)

// TrimPod drops what the controllers do not read, before a Pod is cached.
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: pod.Labels, Annotations: maps.Clone(pod.Annotations), OwnerReferences: pod.OwnerReferences,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	maps.DeleteFunc(trimmed.Annotations, func(k, _ string) bool { return !strings.HasPrefix(k, annotations.Prefix) && k != deletionCost })
	for _, c := range pod.Spec.InitContainers {
		trimmed.Spec.InitContainers = append(trimmed.Spec.InitContainers, corev1.Container{Name: c.Name, Args: trimArgs(c)})
	}
	for _, c := range pod.Spec.Containers {
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, corev1.Container{Name: c.Name})
	}
	trimmed.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses)
	trimmed.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses)
	return trimmed, nil
}

// trimArgs keeps the sidecar's list of Redis nodes.
func trimArgs(c corev1.Container) []string {
	for _, arg := range c.Args {
		if c.Name == injection.ContainerName && strings.HasPrefix(arg, redisFlag) {
			return []string{arg}
		}
	}
	return nil
}

func trimStatuses(in []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range in {
		out = append(out, corev1.ContainerStatus{Name: s.Name, Ready: s.Ready, Started: s.Started})
	}
	return out
}

func hasSidecar(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == injection.ContainerName {
			return true
		}
	}
	return false
}

// election is the Pods that can be compared: those of one lock in one namespace whose
// leases and tokens come from the same place.
type election struct{ namespace, lock, quorum, fencing string }

// electionsOf maps a Pod's events to what is to be looked at.
func electionsOf(of func(*corev1.Pod) (election, bool)) handler.TypedMapFunc[client.Object, election] {
	return func(_ context.Context, o client.Object) []election {
		if pod, ok := o.(*corev1.Pod); ok {
			if e, ok := of(pod); ok {
				return []election{e}
			}
		}
		return nil
	}
}

func electionOf(pod *corev1.Pod) (election, bool) {
	s, ok := injection.ReadStatus(pod.Annotations)
	return election{pod.Namespace, s.Lock, s.Quorum, s.Fencing}, ok
}

// lockIndex finds Pods in the cache by their lock.
const lockIndex = "podlease.lock"

// IndexPods makes the cache find Pods by their lock. Do it before it starts.
func IndexPods(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &corev1.Pod{}, lockIndex, func(o client.Object) []string {
		s, _ := injection.ReadStatus(o.GetAnnotations())
		return []string{s.Lock}
	})
}

// members are the Pods for which of returns the election.
func members(ctx context.Context, reader client.Reader, e election, of func(*corev1.Pod) (election, bool)) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	// The Pods are the cache's own: nobody here changes them.
	err := reader.List(ctx, list, client.InNamespace(e.namespace), client.MatchingFields{lockIndex: e.lock}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		if its, ok := of(&list.Items[i]); ok && its == e {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// change is what a patch does to a Pod's metadata; a nil value takes a key away.
type change struct {
	labels, annotations map[string]any
	// sameVersion refuses the patch when the Pod has changed since it was read.
	sameVersion bool
}

// patchPod changes labels and annotations of exactly this Pod with one strategic merge
// patch of its status: the controller has no right on Pods themselves either.
func patchPod(ctx context.Context, c client.Client, pod *corev1.Pod, to change) error {
	meta := map[string]any{"uid": pod.UID}
	if to.labels != nil {
		meta["labels"] = to.labels
	}
	if to.annotations != nil {
		meta["annotations"] = to.annotations
	}
	if to.sameVersion {
		meta["resourceVersion"] = pod.ResourceVersion
	}
	raw, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := c.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, raw)); err != nil {
		return fmt.Errorf("patch Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
