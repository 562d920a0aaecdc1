package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podlease/podlease/pkg/injection"
)

// Workloads warns and refuses where people look: when they apply a Deployment or the
// like, whose Pods would be refused later with nobody watching.
type Workloads struct {
	Settings injection.Settings
	Log      logr.Logger
}

var _ admission.Handler = (*Workloads)(nil)

// Handle answers one admission request. What was wrong before an update is no reason to
// refuse it: controllers update workloads too, and would be stuck.
func (w *Workloads) Handle(_ context.Context, req admission.Request) admission.Response {
	now, err := w.review(req.Kind.Kind, req.Namespace, req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("podlease: %w", err))
	}
	if now.Refusal == nil {
		return admission.Allowed("").WithWarnings(now.Warnings...)
	}
	if req.Operation == admissionv1.Update {
		if before, err := w.review(req.Kind.Kind, req.Namespace, req.OldObject.Raw); err == nil && sameRefusal(before, now) {
			return admission.Allowed("").WithWarnings(append(now.Warnings, now.Refusal.Error())...)
		}
	}
	w.Log.Info("workload refused", "kind", req.Kind.Kind, "namespace", req.Namespace, "name", req.Name, "reason", now.Refusal.Error())
	return admission.Denied(now.Refusal.Error()).WithWarnings(now.Warnings...)
}

func sameRefusal(a, b injection.Review) bool {
	return a.Refusal != nil && b.Refusal != nil && a.Refusal.Error() == b.Refusal.Error()
}

func (w *Workloads) review(kind, namespace string, raw []byte) (injection.Review, error) {
	object := newWorkload(kind)
	if object == nil {
		return injection.Review{}, nil
	}
	if err := json.Unmarshal(raw, object); err != nil {
		return injection.Review{}, fmt.Errorf("read the %s: %w", kind, err)
	}
	workload, ok := injection.AsWorkload(object)
	if !ok {
		return injection.Review{}, nil
	}
	workload.Namespace = namespace
	return injection.CheckWorkload(workload, w.Settings), nil
}

func newWorkload(kind string) any {
	switch kind {
	case "Deployment":
		return &appsv1.Deployment{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "DaemonSet":
		return &appsv1.DaemonSet{}
	case "Job":
		return &batchv1.Job{}
	case "CronJob":
		return &batchv1.CronJob{}
	}
	return nil
}
