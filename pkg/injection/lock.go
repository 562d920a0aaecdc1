package injection

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hashLabels are put on the Pods of a ReplicaSet by whoever made it, with the suffix of
// its name: Deployments and Argo Rollouts.
var hashLabels = []string{"pod-template-hash", "rollouts-pod-template-hash"}

// LockName is the lock of a Pod that does not name one: its namespace and the name of
// the workload that owns it.
func LockName(pod *corev1.Pod, req Request) string {
	return req.Namespace + "/" + workloadName(pod, req)
}

func workloadName(pod *corev1.Pod, req Request) string {
	owner := owner(pod)
	switch {
	case owner == nil && pod.Name != "":
		return pod.Name
	case owner == nil:
		return strings.TrimSuffix(pod.GenerateName, "-")
	case isKind(owner, "apps", "ReplicaSet"):
		return withoutHash(owner.Name, pod.Labels)
	case isKind(owner, "batch", "Job") && req.CronJob != "":
		return req.CronJob
	}
	return owner.Name
}

// owner is the Pod's controller, else its first owner, else nil.
func owner(pod *corev1.Pod) *metav1.OwnerReference {
	if c := metav1.GetControllerOfNoCopy(pod); c != nil || len(pod.OwnerReferences) == 0 {
		return c
	}
	return &pod.OwnerReferences[0]
}

// OwningJob is the name of the Job that owns the Pod, or empty: only the Job itself
// knows its CronJob.
func OwningJob(pod *corev1.Pod) string {
	if o := owner(pod); o != nil && isKind(o, "batch", "Job") {
		return o.Name
	}
	return ""
}

// OwningCronJob is the name of the CronJob among a Job's owners, or empty.
func OwningCronJob(owners []metav1.OwnerReference) string {
	for i := range owners {
		if isKind(&owners[i], "batch", "CronJob") {
			return owners[i].Name
		}
	}
	return ""
}

func isKind(o *metav1.OwnerReference, group, kind string) bool {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	return err == nil && gv.Group == group && o.Kind == kind
}

func withoutHash(name string, labels map[string]string) string {
	for _, l := range hashLabels {
		if hash := labels[l]; hash != "" {
			if short, ok := strings.CutSuffix(name, "-"+hash); ok {
				return short
			}
		}
	}
	return name
}
