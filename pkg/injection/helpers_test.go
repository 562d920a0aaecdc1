package injection_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

var request = injection.Request{Namespace: "shop"}

func settings() injection.Settings {
	return injection.Settings{
		Installation: annotations.Installation{RestartAllContainers: true},
		Image:        "example.com/podlease-sidecar:1",
		ToolImage:    "example.com/podlease:1",
		Version:      "1.0.0",
		Quorums: map[string]injection.Quorum{
			"default": {Nodes: []string{"r0:6379", "r1:6379", "r2:6379"}, SecretKeys: []string{"username", "password"}},
			"open":    {Nodes: []string{"redis:6379"}, KeyPrefix: "p:"},
		},
	}
}

// pod is a Pod of one app container that asks for the sidecar.
func pod(pairs ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "orders-", Annotations: map[string]string{annotations.Inject: "true"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app", Command: []string{"/app"}}}},
	}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[annotations.Prefix+pairs[i]] = pairs[i+1]
	}
	return p
}

func inject(t *testing.T, p *corev1.Pod) injection.Result {
	t.Helper()
	r := injection.Inject(p, request, settings())
	if r.Refusal != nil {
		t.Fatal(r.Refusal)
	}
	if r.Pod == nil {
		t.Fatal("nothing was injected")
	}
	return r
}

func refused(t *testing.T, p *corev1.Pod, parts ...string) {
	t.Helper()
	r := injection.Inject(p, request, settings())
	if r.Refusal == nil {
		t.Errorf("not refused, want %q", parts)
		return
	}
	if r.Pod != nil {
		t.Error("a refused Pod was changed")
	}
	for _, part := range parts {
		if !strings.Contains(r.Refusal.Error(), part) {
			t.Errorf("refusal %q lacks %q", r.Refusal, part)
		}
	}
}

func sidecar(t *testing.T, p *corev1.Pod) *corev1.Container {
	t.Helper()
	last := &p.Spec.InitContainers[len(p.Spec.InitContainers)-1]
	if last.Name != injection.ContainerName {
		t.Fatalf("the last init container is %q", last.Name)
	}
	return last
}

func hasArg(c *corev1.Container, arg string) bool { return slices.Contains(c.Args, arg) }

func env(c *corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}
