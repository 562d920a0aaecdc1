package injection

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/podlease/podlease/pkg/annotations"
)

// Under on-loss: exec an init container copies the podlease program into a volume, from
// where it runs the app's command: the app's image stays as it is, and nothing newer
// than Kubernetes 1.30 is needed (image volumes are).
const (
	installName = "podlease-install"
	toolDir     = "/run/podlease"
	toolPath    = toolDir + "/podlease"
)

func (i *injector) install() corev1.Container {
	return corev1.Container{
		Name:                     installName,
		Image:                    i.settings.ToolImage,
		ImagePullPolicy:          i.pullPolicy(),
		Command:                  []string{"/podlease", "install", toolPath},
		Resources:                i.resources(),
		VolumeMounts:             []corev1.VolumeMount{{Name: toolVolume, MountPath: toolDir}},
		SecurityContext:          i.securityContext(),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// wrapCommand makes the app's command run only while the Pod is active. Its arguments
// stay where they are, so $(VARIABLE)s in both go on working.
func (i *injector) wrapCommand() {
	if i.app == nil {
		return
	}
	command := i.app.Command
	if len(command) > 0 && command[0] == toolPath {
		command = command[slices.Index(command, "--")+1:]
	}
	if len(command) == 0 {
		i.errs = append(i.errs, field.Required(i.appPath().Child("command"), fmt.Sprintf(
			`%s: %q runs the container's command under podlease, and the image's own is not known here: add command: ["/path/of/the/program"]`,
			annotations.OnLoss, annotations.OnLossExec)))
		return
	}
	if i.checkNoHealth(); len(i.errs) > 0 {
		return
	}
	i.app.Command = append([]string{toolPath, "exec", "--sidecar=" + i.url(), "--wait=" + i.set.Wait, "--"}, command...)
	grace := graceFlag(i.app)
	i.app.LivenessProbe = wrapProbe(i.app, i.app.LivenessProbe, grace...)
	i.app.ReadinessProbe = wrapProbe(i.app, i.app.ReadinessProbe)
	i.app.StartupProbe = wrapProbe(i.app, i.app.StartupProbe)
	i.mountTool()
	if l := i.app.Lifecycle; l != nil && l.PostStart != nil {
		i.warnings = append(i.warnings, fmt.Sprintf("%s: %q with a postStart hook of container %s: it runs when the container starts, on a standby before its command does; one that fails ends the container",
			annotations.OnLoss, annotations.OnLossExec, i.app.Name))
	}
	i.reason("command of container %s runs under podlease exec", i.app.Name)
}

// checkNoHealth refuses a health address: a standby's app does not run, so it would
// never be healthy enough to contend.
func (i *injector) checkNoHealth() {
	if h := i.set.AppHealth; h != annotations.Auto && h != annotations.Off {
		i.errs = append(i.errs, field.Invalid(annotationPath(annotations.AppHealth), h, fmt.Sprintf(
			"the app does not run on a standby with %s: %q; allowed here: %q, %q", annotations.OnLoss, annotations.OnLossExec, annotations.Auto, annotations.Off)))
	}
}

func (i *injector) appPath() *field.Path {
	return field.NewPath("spec", "containers").Key(i.app.Name)
}

func (i *injector) mountTool() {
	mount := corev1.VolumeMount{Name: toolVolume, MountPath: toolDir, ReadOnly: true}
	at := slices.IndexFunc(i.app.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == toolVolume })
	if at < 0 {
		i.app.VolumeMounts = append(i.app.VolumeMounts, mount)
		return
	}
	i.app.VolumeMounts[at] = mount
}

// graceFlag gives a command the time to start that the container's probes give it: they
// have long passed on a standby, and the kubelet does not begin anew when the command
// starts.
func graceFlag(c *corev1.Container) []string {
	var seconds int32
	if l := c.LivenessProbe; l != nil {
		seconds = l.InitialDelaySeconds
	}
	if s := c.StartupProbe; s != nil {
		seconds += s.InitialDelaySeconds + orDefault(s.PeriodSeconds, 10)*orDefault(s.FailureThreshold, 3)
	}
	if seconds == 0 {
		return nil
	}
	return []string{fmt.Sprintf("--grace=%ds", seconds)}
}

// orDefault is a probe's setting with the API server's default.
func orDefault(n, def int32) int32 {
	if n == 0 {
		return def
	}
	return n
}

// wrapProbe lets a probe succeed while no command runs, and otherwise do what it did.
func wrapProbe(c *corev1.Container, p *corev1.Probe, flags ...string) *corev1.Probe {
	if p == nil {
		return nil
	}
	target := probeTarget(c, p.ProbeHandler)
	if target == nil {
		return p
	}
	p.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{
		Command: slices.Concat([]string{toolPath, "exec", "probe"}, timeout(p), flags, target),
	}}
	return p
}

func timeout(p *corev1.Probe) []string {
	return []string{fmt.Sprintf("--timeout=%ds", max(p.TimeoutSeconds, 1))}
}

// probeTarget is what podlease exec probe is to ask; nil leaves the probe alone, because
// it is wrapped already or cannot be.
func probeTarget(c *corev1.Container, h corev1.ProbeHandler) []string {
	switch {
	case h.Exec != nil && len(h.Exec.Command) > 0 && h.Exec.Command[0] == toolPath:
		return nil
	case h.Exec != nil:
		return append([]string{"--"}, h.Exec.Command...)
	case h.HTTPGet != nil && h.HTTPGet.Host == "":
		return httpTarget(c, h.HTTPGet)
	case h.TCPSocket != nil && h.TCPSocket.Host == "":
		if port := portOf(c, h.TCPSocket.Port); port != "" {
			return []string{"tcp://" + net.JoinHostPort("127.0.0.1", port)}
		}
	case h.GRPC != nil:
		target := "grpc://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(h.GRPC.Port)))
		if h.GRPC.Service != nil && *h.GRPC.Service != "" {
			target += "/" + *h.GRPC.Service
		}
		return []string{target}
	}
	return nil
}

func httpTarget(c *corev1.Container, get *corev1.HTTPGetAction) []string {
	address := httpAddress(c, get)
	if address == "" {
		return nil
	}
	var out []string
	for _, h := range get.HTTPHeaders {
		out = append(out, "--header="+h.Name+": "+h.Value)
	}
	return append(out, address)
}
