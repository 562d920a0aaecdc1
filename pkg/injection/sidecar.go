package injection

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podlease/podlease/pkg/annotations"
)

// ContainerName is the sidecar's, and PortName that of its read-only port.
const (
	ContainerName = "podlease"
	PortName      = "podlease"
)

const (
	urlVariable = "PODLEASE_URL"
	nonRoot     = 65532
	program     = "/podlease-sidecar"
)

// addContainers puts ours behind all other init containers, so after a mesh's proxy and
// contending only when the app is about to start.
func (i *injector) addContainers() {
	before := map[string]corev1.Container{}
	i.pod.Spec.InitContainers = slices.DeleteFunc(i.pod.Spec.InitContainers, func(c corev1.Container) bool {
		ours := c.Name == ContainerName || c.Name == installName
		if ours {
			before[c.Name] = c
		}
		return ours
	})
	wanted := []corev1.Container{i.sidecar()}
	if i.set.OnLoss == annotations.OnLossExec {
		wanted = []corev1.Container{i.install(), i.sidecar()}
	}
	for _, c := range wanted {
		if b, ok := before[c.Name]; ok {
			carryOver(b, &c)
		}
		i.pod.Spec.InitContainers = append(i.pod.Spec.InitContainers, c)
	}
}

// carryOver keeps what others have added to a container of ours since an earlier call:
// variables, mounts, and the API server's default.
func carryOver(before corev1.Container, now *corev1.Container) {
	for _, e := range before.Env {
		if !slices.ContainsFunc(now.Env, func(o corev1.EnvVar) bool { return o.Name == e.Name }) {
			now.Env = append(now.Env, e)
		}
	}
	for _, m := range before.VolumeMounts {
		if !slices.ContainsFunc(now.VolumeMounts, func(o corev1.VolumeMount) bool { return o.MountPath == m.MountPath }) && !isOurVolume(m.Name) {
			now.VolumeMounts = append(now.VolumeMounts, m)
		}
	}
	now.ResizePolicy = before.ResizePolicy
}

// sidecar is written out with all of the API server's defaults, so that a second call
// changes nothing.
func (i *injector) sidecar() corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c := corev1.Container{
		Name:                     ContainerName,
		Image:                    i.settings.Image,
		ImagePullPolicy:          i.pullPolicy(),
		Command:                  []string{program},
		Args:                     i.args(),
		Env:                      i.env(),
		Ports:                    []corev1.ContainerPort{{Name: PortName, ContainerPort: i.set.HTTPPort, Protocol: corev1.ProtocolTCP}},
		Resources:                i.resources(),
		RestartPolicy:            &always,
		VolumeMounts:             i.mounts(),
		StartupProbe:             probe("/livez", 1, 60),
		ReadinessProbe:           i.readinessProbe(),
		Lifecycle:                i.lifecycle(),
		SecurityContext:          i.securityContext(),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if i.set.OnLoss == annotations.OnLossRestart {
		c.RestartPolicyRules = restartRules()
	} else {
		// A kubelet-made restart does not trigger the rule, so there it would hide a loss.
		c.LivenessProbe = probe("/livez", 10, 3)
	}
	return c
}

// lifecycle drains when the Pod is deleted. Control listens on loopback only, which the
// kubelet cannot reach; the image has no shell; so the hook is the program itself.
//
// A command under podlease exec gets its SIGTERM from the kubelet, may act until it has
// ended, and hands the lease over then: with a drain it would only have the stop budget.
func (i *injector) lifecycle() *corev1.Lifecycle {
	if i.set.OnLoss == annotations.OnLossExec {
		return nil
	}
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{program, "drain"}}}}
}

// restartRules start all containers again unless the sidecar ended in order (0) or can
// never work (2 and 3). "In [42]" would not cover the sidecar being killed.
func restartRules() []corev1.ContainerRestartRule {
	return []corev1.ContainerRestartRule{{
		Action: corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpNotIn,
			Values:   []int32{0, 2, 3},
		},
	}}
}

func (i *injector) pullPolicy() corev1.PullPolicy {
	if i.settings.PullPolicy == "" {
		return corev1.PullIfNotPresent
	}
	return i.settings.PullPolicy
}

// args are the sidecar's flags.
func (i *injector) args() []string {
	q := i.settings.Quorums[i.set.Quorum]
	args := []string{
		"--lock=" + i.lock,
		"--redis=" + strings.Join(q.Nodes, ","),
		"--publish=kubernetes",
		"--podinfo-dir=" + infoPath,
	}
	if i.set.OnLoss != annotations.OnLossExec { // where podlease exec tells whether the workload has ended
		args = append(args, "--native-sidecar")
	}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	add("key-prefix", q.KeyPrefix)
	add("username", q.Username)
	for _, s := range q.secretFiles() {
		add(s.flag, secretPath+"/"+s.key)
	}
	add("cluster-name", i.settings.ClusterName)
	add("app-health", i.appHealth())
	if i.settings.Quarantine != nil {
		add("quarantine", i.settings.Quarantine.String())
	}
	if l := i.roleLabel(); l != annotations.Role {
		add("role-label", l)
	}
	if i.set.Readiness == annotations.ReadinessGate {
		args = append(args, "--readiness-gate")
	}
	if i.set.OnLoss == annotations.OnLossRestart || i.set.OnLoss == annotations.OnLossExit {
		args = append(args, "--on-loss=exit")
	}
	return append(args, i.set.Flags()...)
}

// env has what exec hooks need as well as the program.
func (i *injector) env() []corev1.EnvVar {
	limit := i.set.Memory.Value() / 10 * 9
	return []corev1.EnvVar{
		fromField("POD_NAME", "metadata.name"),
		fromField("POD_NAMESPACE", "metadata.namespace"),
		fromField("POD_UID", "metadata.uid"),
		{Name: "PODLEASE_LISTEN", Value: fmt.Sprintf(":%d", i.set.HTTPPort)},
		{Name: "PODLEASE_CONTROL_LISTEN", Value: fmt.Sprintf("127.0.0.1:%d", i.set.HTTPPort+1)},
		{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit, 10)},
	}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}

// resources are equal, or a Guaranteed Pod would become Burstable and quotas on limits
// would refuse it.
func (i *injector) resources() corev1.ResourceRequirements {
	list := func() corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: i.set.CPU.DeepCopy(), corev1.ResourceMemory: i.set.Memory.DeepCopy()}
	}
	return corev1.ResourceRequirements{Requests: list(), Limits: list()}
}

// securityContext is what the Pod security standard "restricted" asks for.
func (i *injector) securityContext() *corev1.SecurityContext {
	yes, no := true, false
	sc := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   &yes,
		RunAsNonRoot:             &yes,
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if p := i.pod.Spec.SecurityContext; p != nil && p.RunAsUser != nil && *p.RunAsUser == 0 {
		var user int64 = nonRoot
		sc.RunAsUser = &user
		i.reason("runAsUser %d: the Pod runs as root, and the sidecar must not", nonRoot)
	}
	return sc
}

// probe never names a host: the Pod security standard "restricted" refuses it.
func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(PortName), Scheme: corev1.URISchemeHTTP}},
		TimeoutSeconds:   1,
		PeriodSeconds:    period,
		SuccessThreshold: 1,
		FailureThreshold: failures,
	}
}

func (i *injector) readinessProbe() *corev1.Probe {
	switch i.set.Readiness {
	case annotations.ReadinessParticipating:
		return probe("/readyz", 1, 3)
	case annotations.ReadinessActive:
		return probe("/leader", 1, 1)
	}
	return nil
}

// appHealth is the address the sidecar asks, or empty.
func (i *injector) appHealth() string {
	switch {
	case i.set.AppHealth == annotations.Off, i.set.OnLoss == annotations.OnLossExec:
		return "" // under exec a standby's app does not run, so it could never contend
	case i.set.AppHealth != annotations.Auto:
		return i.set.AppHealth
	}
	address := healthOf(i.app)
	if address != "" {
		i.reason("app-health %s: the readiness probe of container %s", address, i.app.Name)
	}
	return address
}

func healthOf(c *corev1.Container) string {
	if c == nil || c.ReadinessProbe == nil {
		return ""
	}
	switch p := c.ReadinessProbe; {
	case p.HTTPGet != nil && p.HTTPGet.Host == "":
		return httpAddress(c, p.HTTPGet)
	case p.TCPSocket != nil && p.TCPSocket.Host == "":
		if port := portOf(c, p.TCPSocket.Port); port != "" {
			return "tcp://" + net.JoinHostPort("127.0.0.1", port)
		}
	}
	return ""
}

func httpAddress(c *corev1.Container, get *corev1.HTTPGetAction) string {
	port := portOf(c, get.Port)
	if port == "" {
		return ""
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort("127.0.0.1", port) + "/" + strings.TrimPrefix(get.Path, "/")
}

// portOf resolves a probe's port as the kubelet does, by number or by the name in the
// same container; empty when there is no such port.
func portOf(c *corev1.Container, port intstr.IntOrString) string {
	if port.Type == intstr.Int {
		return strconv.Itoa(int(port.IntVal))
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	if n, err := strconv.ParseUint(port.StrVal, 10, 16); err == nil {
		return strconv.FormatUint(n, 10)
	}
	return ""
}
