package chart_test

import (
	"reflect"
	"strings"
	"testing"
)

// The sample has the rights of an injected Pod, in its own namespace: it must not share
// objects with an installation beside it.
func TestSampleHasTheSidecarsRights(t *testing.T) {
	sample := objects(t, run(t, "kubectl", "kustomize", configDir+"/samples"))
	role := sample["Role/podlease-sample/podlease-sidecar"]
	if role == nil {
		t.Fatal("lacks the Role podlease-sidecar")
	}
	want := objects(t, template(t))["ClusterRole//podlease-sidecar"]
	if !reflect.DeepEqual(role.Object["rules"], want.Object["rules"]) {
		t.Errorf("rules of the sample:\n%s\nof the chart:\n%s", show(role), show(want))
	}
	for k, o := range sample {
		if o.GetNamespace() == "" && o.GetKind() != "Namespace" {
			t.Errorf("%s belongs to the whole cluster", k)
		}
	}
}

// What .helmignore matches is not part of the chart.
func TestChartHasItsTest(t *testing.T) {
	out := string(run(t, "helm", "template", "podlease", chart, "--namespace", namespace, "--kube-version", "1.37.0"))
	if !strings.Contains(out, "helm.sh/hook: test") {
		t.Error("helm test would do nothing: no object has the hook")
	}
}
