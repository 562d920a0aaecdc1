package injection_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

var named = metav1.ObjectMeta{Name: "orders", Namespace: "shop"}

func template(pairs ...string) corev1.PodTemplateSpec {
	p := pod(pairs...)
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: p.Annotations}, Spec: p.Spec}
}

func review(t *testing.T, object any) injection.Review {
	t.Helper()
	w, ok := injection.AsWorkload(object)
	if !ok {
		t.Fatalf("%T is not known", object)
	}
	return injection.CheckWorkload(w, settings())
}

func deployment(replicas int32, unavailable any, pairs ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: template(pairs...)}}
	switch u := unavailable.(type) {
	case int:
		v := intstr.FromInt32(int32(u))
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &v}
	case string:
		v := intstr.FromString(u)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &v}
	}
	return d
}

func TestWrongValueIsRefusedOnEveryWorkload(t *testing.T) {
	wrong := template("ttl", "x")
	for kind, object := range map[string]any{
		"Deployment":  &appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{Template: wrong}},
		"StatefulSet": &appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{Template: wrong}},
		"DaemonSet":   &appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{Template: wrong}},
		"Job":         &batchv1.Job{ObjectMeta: named, Spec: batchv1.JobSpec{Template: wrong}},
		"CronJob":     &batchv1.CronJob{ObjectMeta: named, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: wrong}}}},
	} {
		r := review(t, object)
		if r.Refusal == nil || !strings.Contains(r.Refusal.Error(), "template: podlease: metadata.annotations[podlease.io/ttl]") {
			t.Errorf("%s: %v", kind, r.Refusal)
		}
	}
}

func TestReadinessAgainstStrategy(t *testing.T) {
	stateful := func(policy appsv1.PodManagementPolicyType, replicas int32) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: named, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, PodManagementPolicy: policy, Template: template("readiness", "gate")}}
	}
	recreate := deployment(3, nil, "readiness", "active")
	recreate.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	for name, c := range map[string]struct {
		object          any
		refused, warned bool
	}{
		"one replica":              {object: deployment(1, nil, "readiness", "active")},
		"two, default":             {object: deployment(2, nil, "readiness", "active"), refused: true},
		"two, one unavailable":     {object: deployment(2, 1, "readiness", "active"), warned: true},
		"three, default":           {object: deployment(3, nil, "readiness", "gate"), refused: true},
		"three, two unavailable":   {object: deployment(3, 2, "readiness", "active"), warned: true},
		"three, 50%":               {object: deployment(3, "50%", "readiness", "active"), refused: true},
		"three, 100%":              {object: deployment(3, "100%", "readiness", "active"), warned: true},
		"three, recreate":          {object: recreate, warned: true},
		"three, participating":     {object: deployment(3, nil)},
		"OrderedReady by default":  {object: stateful("", 2), refused: true},
		"OrderedReady":             {object: stateful(appsv1.OrderedReadyPodManagement, 2), refused: true},
		"OrderedReady of one":      {object: stateful(appsv1.OrderedReadyPodManagement, 1)},
		"Parallel":                 {object: stateful(appsv1.ParallelPodManagement, 2), warned: true},
		"DaemonSet":                {object: &appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{Template: template("readiness", "active")}}, refused: true},
		"DaemonSet, participating": {object: &appsv1.DaemonSet{ObjectMeta: named, Spec: appsv1.DaemonSetSpec{Template: template()}}},
	} {
		r := review(t, c.object)
		if (r.Refusal != nil) != c.refused || (len(r.Warnings) > 0) != c.warned {
			t.Errorf("%s: refusal %v, warnings %q", name, r.Refusal, r.Warnings)
		}
		if r.Refusal != nil && !strings.Contains(r.Refusal.Error(), `allowed here: "participating", "none"`) {
			t.Errorf("%s: %v", name, r.Refusal)
		}
	}
}

func TestWorkloadWarnings(t *testing.T) {
	misplaced := deployment(1, nil)
	misplaced.Annotations = map[string]string{annotations.Inject: "true"}
	delete(misplaced.Spec.Template.Annotations, annotations.Inject)
	selector := deployment(1, nil)
	selector.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{annotations.Role: "active"}}
	for want, object := range map[string]any{
		"put it under spec.template.metadata.annotations": misplaced,
		"spec.selector uses podlease.io/role":             selector,
		"did you mean podlease.io/lock?":                  deployment(1, nil, "lokc", "shop/x"),
	} {
		r := review(t, object)
		if r.Refusal != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], want) {
			t.Errorf("want %q: %+v", want, r)
		}
	}
	if r := review(t, &appsv1.Deployment{ObjectMeta: named}); r.Refusal != nil || len(r.Warnings) > 0 {
		t.Errorf("a workload that has nothing to do with us: %+v", r)
	}
}
