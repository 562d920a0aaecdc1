package injection_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

// Each combination of settings that changes what is injected.
func variants() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for _, loss := range []string{"none", "restart", "exit", "exec"} {
		for _, readiness := range []string{"participating", "active", "gate", "none"} {
			for _, quorum := range []string{"default", "open"} {
				p := pod("on-loss", loss, "readiness", readiness, "quorum", quorum)
				p.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
				p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
				out[loss+"/"+readiness+"/"+quorum] = p
			}
		}
	}
	return out
}

func TestTwiceIsOnce(t *testing.T) {
	for name, p := range variants() {
		once := inject(t, p)
		twice := inject(t, once.Pod)
		if !equality.Semantic.DeepEqual(once.Pod, twice.Pod) {
			t.Errorf("%s: the second call changed the Pod", name)
		}
		if once.Lock != twice.Lock {
			t.Errorf("%s: lock %q, then %q", name, once.Lock, twice.Lock)
		}
	}
}

func TestInputIsNeverChanged(t *testing.T) {
	for name, p := range variants() {
		before := p.DeepCopy()
		once := inject(t, p)
		if !reflect.DeepEqual(before, p) {
			t.Errorf("%s: the input was changed", name)
		}
		before = once.Pod.DeepCopy()
		inject(t, once.Pod)
		if !reflect.DeepEqual(before, once.Pod) {
			t.Errorf("%s: the injected Pod was changed by the second call", name)
		}
	}
}

// mesh is what another injector does: its own init containers first and last, a
// container, and a variable and a mount in every container.
func mesh(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	if !slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == "istio-proxy" }) {
		p.Spec.InitContainers = slices.Concat([]corev1.Container{{Name: "mesh-init"}}, p.Spec.InitContainers, []corev1.Container{{Name: "mesh-validate"}})
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy"})
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "mesh"})
	}
	touch := func(c *corev1.Container) {
		if env(c, "MESH") == "" {
			c.Env = append(c.Env, corev1.EnvVar{Name: "MESH", Value: "1"})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "mesh", MountPath: "/mesh"})
		}
	}
	for n := range p.Spec.InitContainers {
		touch(&p.Spec.InitContainers[n])
	}
	for n := range p.Spec.Containers {
		touch(&p.Spec.Containers[n])
	}
	return p
}

// With reinvocation each injector sees the Pod again after the other has changed it.
func TestBesideAnotherInjectorInAnyOrder(t *testing.T) {
	for name, p := range variants() {
		usFirst := inject(t, mesh(inject(t, p).Pod)).Pod
		usLast := mesh(inject(t, mesh(p)).Pod)
		for order, got := range map[string]*corev1.Pod{"us first": usFirst, "us last": usLast} {
			c := sidecar(t, got)
			if env(c, "MESH") == "" || env(&got.Spec.Containers[1], "PODLEASE_URL") == "" {
				t.Errorf("%s, %s: something of one of them is lost", name, order)
			}
			if again := inject(t, got).Pod; !equality.Semantic.DeepEqual(again, mesh(again)) || !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("%s, %s: not stable", name, order)
			}
		}
		if !equality.Semantic.DeepEqual(sidecar(t, usFirst), sidecar(t, usLast)) {
			t.Errorf("%s: the sidecar depends on the order", name)
		}
	}
}

// Whatever the Pod: no panic, the input stays, and a second call changes nothing.
func FuzzInject(f *testing.F) {
	for n := range 4 {
		f.Add([]byte{byte(n), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, byte(n), byte(n))
	}
	losses := []string{"none", "restart", "exit", "exec"}
	modes := []string{"participating", "active", "gate", "none"}
	f.Fuzz(func(t *testing.T, data []byte, loss, mode byte) {
		p := &corev1.Pod{}
		randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(7).Funcs(
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewQuantity(c.Int63n(100), resource.DecimalSI)
			},
			func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(70000)) },
		).Fill(p)
		p.Annotations = map[string]string{
			annotations.Inject: "true", annotations.Lock: "shop/x",
			annotations.OnLoss: losses[int(loss)%len(losses)], annotations.Readiness: modes[int(mode)%len(modes)],
		}
		before := p.DeepCopy()
		once := injection.Inject(p, request, settings())
		if !reflect.DeepEqual(before, p) {
			t.Fatal("the input was changed")
		}
		if once.Refusal != nil {
			return
		}
		twice := inject(t, once.Pod)
		if !equality.Semantic.DeepEqual(once.Pod, twice.Pod) {
			t.Fatal("the second call changed the Pod")
		}
		sidecar(t, once.Pod)
	})
}

// Whatever the annotations: no panic, and a refusal or a Pod with the sidecar.
func FuzzAnnotations(f *testing.F) {
	f.Add("podlease.io/ttl", "10s", "podlease.io/lock", "shop/x")
	f.Add("podlease.io/on-loss", "exec", "podlease.io/wait", "0s")
	f.Add("podlease.io/http-port", "8080", "podlease.io/cpu", "1")
	f.Add("podlease.io/inject", "True", "kubectl.kubernetes.io/default-container", "")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		p := pod()
		p.Annotations[key1], p.Annotations[key2] = value1, value2
		once := injection.Inject(p, request, settings())
		if once.Refusal != nil || once.Pod == nil {
			return
		}
		if twice := inject(t, once.Pod); !equality.Semantic.DeepEqual(once.Pod, twice.Pod) {
			t.Fatal("the second call changed the Pod")
		}
	})
}
