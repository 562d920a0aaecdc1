package controllers

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/podlease/podlease/pkg/annotations"
)

// cached are Pods as the controllers see them.
func cached(t *testing.T, pods ...*corev1.Pod) client.Client {
	t.Helper()
	b := fake.NewClientBuilder()
	for _, pod := range pods {
		trimmed, err := TrimPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		b = b.WithObjects(trimmed.(client.Object))
	}
	return b.Build()
}

// using is an injected Pod with a list of Redis nodes.
func using(quorum, nodes string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[annotations.Status] = `{"lock":"shop/x","quorum":"` + quorum + `"}`
		p.Spec.InitContainers = []corev1.Container{{Name: "podlease", Args: []string{"--lock=shop/x", "--redis=" + nodes, "--native-sidecar"}}}
	}
}

func TestListsThatDifferByMoreThanOneNodeAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		nodes string
		jump  bool
	}{
		"the same":                {"a:1,b:1,c:1", false},
		"in another order":        {"c:1,a:1,b:1", false},
		"one removed since":       {"a:1,b:1,c:1,d:1", false},
		"one added since":         {"a:1,b:1", false},
		"one exchanged":           {"a:1,b:1,d:1", true},
		"two removed since":       {"a:1,b:1,c:1,d:1,e:1", true},
		"two added since":         {"a:1", true},
		"nothing in common":       {"x:1", true},
		"an older sidecar's list": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podNamed("x", using("default", c.nodes))
			if c.nodes == "" {
				pod.Spec.InitContainers[0].Args = nil
			}
			told := events.NewFakeRecorder(10)
			n := &NodeLists{
				Cached:  cached(t, pod, podNamed("other-quorum", using("elsewhere", "z:1")), podNamed("over", using("default", "z:1"), phase(corev1.PodSucceeded))),
				Quorums: map[string][]string{"default": {"a:1", "b:1", "c:1"}}, Events: told, Log: logr.Discard(),
			}
			n.Register(prometheus.NewRegistry())
			for range 2 { // told once
				if err := n.look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			want := 0
			if c.jump {
				want = 1
			}
			if got := testutil.ToFloat64(n.gauge); got != float64(want) {
				t.Errorf("%v Pods reported, want %d", got, want)
			}
			if got := len(told.Events); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
			if c.jump && !strings.Contains(<-told.Events, `quorum "default", and 3 are installed`) {
				t.Error("the event does not say how many nodes are installed")
			}
		})
	}
}
