package injection

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/podlease/podlease/pkg/annotations"
)

// defaultContainer is the annotation that kubectl reads for the container people mean.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// mirrorPod marks the API server's picture of a static Pod, which nothing can change.
const mirrorPod = "kubernetes.io/config.mirror"

// injectedContainers are what well-known injectors call theirs: never the app.
var injectedContainers = []string{
	"istio-proxy", "linkerd-proxy", "daprd", "kuma-sidecar", "consul-dataplane", "envoy-sidecar", "vault-agent",
}

// chooseApp finds the container that app-health and on-loss are about.
func (i *injector) chooseApp() {
	if name := i.set.AppContainer; name != "" {
		if i.app = i.container(name); i.app == nil {
			i.errs = append(i.errs, field.NotSupported(annotationPath(annotations.AppContainer), name, i.containerNames()))
		}
		return
	}
	if i.app = i.container(i.pod.Annotations[defaultContainer]); i.app != nil {
		return
	}
	for n := range i.pod.Spec.Containers {
		if c := &i.pod.Spec.Containers[n]; !slices.Contains(injectedContainers, c.Name) {
			i.app = c
			return
		}
	}
}

func (i *injector) container(name string) *corev1.Container {
	for n := range i.pod.Spec.Containers {
		if c := &i.pod.Spec.Containers[n]; c.Name == name {
			return c
		}
	}
	return nil
}

func (i *injector) containerNames() []string {
	var out []string
	for _, c := range i.pod.Spec.Containers {
		out = append(out, c.Name)
	}
	return out
}

// checkPod refuses Pods in which the sidecar cannot work.
func (i *injector) checkPod() {
	spec := field.NewPath("spec")
	if i.pod.Spec.HostNetwork {
		i.refuse(spec.Child("hostNetwork"), true, "the ports and even the loopback would be shared with the node; allowed is false")
	}
	if isWindows(&i.pod.Spec) {
		i.refuse(spec.Child("os", "name"), "windows", "the sidecar runs on Linux only")
	}
	if _, static := i.pod.Annotations[mirrorPod]; static {
		i.refuse(annotationPath(mirrorPod), i.pod.Annotations[mirrorPod], "static Pods cannot be injected")
	}
	i.checkNames(spec)
	i.checkPorts()
	i.checkOwner()
	i.checkRoleLabel()
}

func (i *injector) refuse(path *field.Path, value any, why string) {
	i.errs = append(i.errs, field.Invalid(path, value, fmt.Sprintf("does not work with %s: %q: %s", annotations.Inject, annotations.True, why)))
}

func isWindows(spec *corev1.PodSpec) bool {
	return (spec.OS != nil && spec.OS.Name == corev1.Windows) || spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}

// checkNames refuses to take the name of somebody else's container. Ours is known by
// the status annotation of an earlier call.
func (i *injector) checkNames(spec *field.Path) {
	if i.container(ContainerName) != nil {
		i.refuse(spec.Child("containers").Key(ContainerName), ContainerName, "the name is the sidecar's")
	}
	if _, ours := i.pod.Annotations[annotations.Status]; ours {
		return
	}
	for _, c := range i.pod.Spec.InitContainers {
		if c.Name == ContainerName || c.Name == installName {
			i.refuse(spec.Child("initContainers").Key(c.Name), c.Name, "the name is the sidecar's")
		}
	}
}

func (i *injector) checkPorts() {
	for _, c := range i.others() {
		for _, p := range c.Ports {
			if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
				continue
			}
			if p.ContainerPort == i.set.HTTPPort || p.ContainerPort == i.set.HTTPPort+1 {
				i.errs = append(i.errs, field.Invalid(annotationPath(annotations.HTTPPort), i.set.HTTPPort, fmt.Sprintf(
					"container %q has port %d, and the sidecar needs %d and %d; allowed is 1024 to 65534, away from the ports of the Pod",
					c.Name, p.ContainerPort, i.set.HTTPPort, i.set.HTTPPort+1)))
			}
		}
	}
}

// checkOwner refuses and warns of what cannot work with the kind of the owner.
func (i *injector) checkOwner() {
	o := owner(i.pod)
	if o == nil {
		return
	}
	if isKind(o, "apps", "DaemonSet") && gatesReadiness(i.set.Readiness) {
		i.errs = append(i.errs, notForReadiness(annotationPath(annotations.Readiness), i.set.Readiness, "a DaemonSet, of whose Pods all but one would never be Ready"))
	}
	if isKind(o, "batch", "Job") && i.set.OnLoss == annotations.OnLossRestart {
		i.warnings = append(i.warnings, fmt.Sprintf("%s: %q restarts a Job's Pod in place, without the Job counting it; use %q for Jobs",
			annotations.OnLoss, i.set.OnLoss, annotations.OnLossExec))
	}
}

func gatesReadiness(readiness string) bool {
	return readiness == annotations.ReadinessActive || readiness == annotations.ReadinessGate
}

func notForReadiness(path *field.Path, value, why string) *field.Error {
	return field.Invalid(path, value, fmt.Sprintf("is not for %s; allowed here: %q, %q", why, annotations.ReadinessParticipating, annotations.None))
}

func (i *injector) checkRoleLabel() {
	if role, set := i.pod.Labels[i.roleLabel()]; set && role != annotations.RoleStandby {
		i.warnings = append(i.warnings, fmt.Sprintf("label %s: %q is written by podlease and starts as %q; take it out of the template",
			i.roleLabel(), role, annotations.RoleStandby))
	}
}
