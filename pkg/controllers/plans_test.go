package controllers

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podlease/podlease/pkg/annotations"
)

func podNamed(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{annotations.Role: "standby"}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}, InitContainers: []corev1.Container{{Name: "podlease"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func active(token string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[annotations.Role] = "active"
		if token != "" {
			p.Annotations[annotations.FencingToken] = token
		}
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func of(replicaSet string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: replicaSet, Controller: &yes}}
		p.Annotations[annotations.Readiness] = annotations.ReadinessActive
	}
}

func able(p *corev1.Pod) {
	yes := true
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "podlease", Started: &yes}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true}}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func podNames(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestStale(t *testing.T) {
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"one":              {pods: []*corev1.Pod{podNamed("a", active("5")), podNamed("b")}},
		"lower token":      {pods: []*corev1.Pod{podNamed("a", active("5")), podNamed("b", active("6"))}, want: []string{"a"}},
		"three":            {pods: []*corev1.Pod{podNamed("a", active("9")), podNamed("b", active("10")), podNamed("c", active("8"))}, want: []string{"a", "c"}},
		"same token":       {pods: []*corev1.Pod{podNamed("a", active("5")), podNamed("b", active("5"))}},
		"without tokens":   {pods: []*corev1.Pod{podNamed("a", active("")), podNamed("b", active("7"))}},
		"nonsense":         {pods: []*corev1.Pod{podNamed("a", active("x")), podNamed("b", active("7"))}},
		"finished":         {pods: []*corev1.Pod{podNamed("a", active("5"), phase(corev1.PodFailed)), podNamed("b", active("5"), phase(corev1.PodSucceeded))}, want: []string{"a", "b"}},
		"finished, higher": {pods: []*corev1.Pod{podNamed("a", active("9"), phase(corev1.PodFailed)), podNamed("b", active("5"))}, want: []string{"a"}},
	} {
		if got := podNames(stale(c.pods, annotations.Role)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestPlanHandover(t *testing.T) {
	for name, c := range map[string]struct {
		pods  []*corev1.Pod
		lower []string
		from  string
		value string
	}{
		"new Pod not ready":  {pods: []*corev1.Pod{podNamed("old", of("r1"), able, active("1")), podNamed("new", of("r2"))}},
		"new Pod ready":      {pods: []*corev1.Pod{podNamed("old", of("r1"), able, active("1")), podNamed("new", of("r2"), able)}, lower: []string{"old"}, from: "old", value: "uid-new"},
		"two old ones":       {pods: []*corev1.Pod{podNamed("old", of("r1"), able, active("1")), podNamed("old2", of("r1"), able), podNamed("new", of("r2"), able)}, lower: []string{"old", "old2"}, from: "old", value: "uid-new"},
		"new one has it":     {pods: []*corev1.Pod{podNamed("old", of("r1"), able), podNamed("new", of("r2"), able, active("1"))}, lower: []string{"old"}, value: "uid-new"},
		"new one is leaving": {pods: []*corev1.Pod{podNamed("old", of("r1"), able, active("1")), podNamed("new", of("r2"), able, deleted)}},
		"old one is leaving": {pods: []*corev1.Pod{podNamed("old", of("r1"), able, active("1"), deleted), podNamed("new", of("r2"), able)}, value: "uid-new"},
	} {
		plan := planHandover(c.pods, "r2", annotations.Role)
		from := ""
		if plan.from != nil {
			from = plan.from.Name
		}
		if !slices.Equal(podNames(plan.lower), c.lower) || from != c.from || plan.value != c.value {
			t.Errorf("%s: lower %q, from %q, value %q", name, podNames(plan.lower), from, plan.value)
		}
	}
}

func TestHandoverLooksOnlyDuringUpdatesOfGatedPods(t *testing.T) {
	participating := func(p *corev1.Pod) { delete(p.Annotations, annotations.Readiness) }
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"one revision":  {pods: []*corev1.Pod{podNamed("a", of("r1")), podNamed("b", of("r1"))}},
		"two":           {pods: []*corev1.Pod{podNamed("a", of("r1")), podNamed("b", of("r2"))}, want: true},
		"participating": {pods: []*corev1.Pod{podNamed("a", of("r1"), participating), podNamed("b", of("r2"), participating)}},
		"no owner":      {pods: []*corev1.Pod{podNamed("a", of("r1")), podNamed("b")}},
	} {
		if got := worthLooking(c.pods); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What is trimmed away must not be what the controllers read.
func TestTrimPodKeepsWhatIsRead(t *testing.T) {
	p := podNamed("a", of("r1"), able, active("5"))
	p.Annotations["other"] = "x"
	p.Annotations[annotations.Status] = `{"lock":"shop/a","quorum":"default","fencing":"redis"}`
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "BIG"}}
	trimmed, err := TrimPod(p)
	if err != nil {
		t.Fatal(err)
	}
	got := trimmed.(*corev1.Pod)
	if _, kept := got.Annotations["other"]; kept || len(got.Spec.Containers[0].Env) > 0 {
		t.Error("nothing was trimmed")
	}
	if p.Annotations["other"] != "x" {
		t.Error("the Pod itself was changed")
	}
	e, ok := electionOf(got)
	if !ok || e != (election{"shop", "shop/a", "default", "redis"}) || !canTakeOver(got) || token(got) != 5 || revision(got) != "r1" || !hasSidecar(got) {
		t.Errorf("election %+v of %+v", e, got)
	}
}

func TestACL(t *testing.T) {
	want := "user default off\nuser podlease on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~eu:* &eu:* " + redisRules + "\n"
	if got := acl([]byte("secret"), "eu:"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAsksInVain(t *testing.T) {
	for name, c := range map[string]struct {
		annotations, labels map[string]string
		want                bool
	}{
		"plain":    {},
		"asks":     {annotations: map[string]string{annotations.Inject: "true"}, want: true},
		"label":    {labels: map[string]string{annotations.Inject: "true"}, want: true},
		"declines": {annotations: map[string]string{annotations.Inject: "true"}, labels: map[string]string{annotations.Inject: "false"}},
		"has it":   {annotations: map[string]string{annotations.Inject: "true"}, labels: map[string]string{annotations.Injected: "true"}},
	} {
		if got := asksInVain(&metav1.ObjectMeta{Annotations: c.annotations, Labels: c.labels}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
