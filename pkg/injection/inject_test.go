package injection_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
)

func TestPodsThatDoNotAskAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"no key":      func(p *corev1.Pod) { delete(p.Annotations, annotations.Inject) },
		"false":       func(p *corev1.Pod) { p.Annotations[annotations.Inject] = "false" },
		"false label": func(p *corev1.Pod) { p.Labels = map[string]string{annotations.Inject: "false"} },
	} {
		p := pod()
		change(p)
		if r := injection.Inject(p, request, settings()); r.Pod != nil || r.Refusal != nil || len(r.Warnings) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestLockWithoutInjectIsWarned(t *testing.T) {
	p := pod("lock", "shop/x")
	delete(p.Annotations, annotations.Inject)
	r := injection.Inject(p, request, settings())
	if r.Pod != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], annotations.Lock) {
		t.Errorf("%+v", r)
	}
}

func TestSidecar(t *testing.T) {
	r := inject(t, pod("ttl", "12s", "priority", "-3"))
	c := sidecar(t, r.Pod)
	for _, arg := range []string{
		"--lock=shop/orders", "--redis=r0:6379,r1:6379,r2:6379", "--ttl=12s", "--priority=-3", "--native-sidecar",
		"--podinfo-dir=/etc/podlease/podinfo", "--username-file=/etc/podlease/redis/username", "--password-file=/etc/podlease/redis/password",
	} {
		if !hasArg(c, arg) {
			t.Errorf("args %q lack %q", c.Args, arg)
		}
	}
	if env(c, "PODLEASE_LISTEN") != ":8484" || env(c, "PODLEASE_CONTROL_LISTEN") != "127.0.0.1:8485" {
		t.Errorf("env %+v", c.Env)
	}
	if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Error("not a native sidecar")
	}
	if got := c.Lifecycle.PreStop.Exec.Command; !slices.Equal(got, []string{"/podlease-sidecar", "drain"}) {
		t.Errorf("preStop %q", got)
	}
	if c.StartupProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/livez" {
		t.Error("wrong probes")
	}
	if !reflect.DeepEqual(c.Resources.Requests, c.Resources.Limits) || c.Resources.Limits.Memory().String() != "64Mi" {
		t.Errorf("resources %+v", c.Resources)
	}
	if c.SecurityContext.RunAsUser != nil {
		t.Error("runAsUser is set although the Pod says nothing")
	}
}

func TestMetadata(t *testing.T) {
	p := pod()
	p.Labels = map[string]string{annotations.Role: "active"}
	r := inject(t, p)
	if r.Pod.Labels[annotations.Role] != "standby" || r.Pod.Labels[annotations.Injected] != "true" {
		t.Errorf("labels %v", r.Pod.Labels)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], `label podlease.io/role: "active"`) {
		t.Errorf("warnings %q", r.Warnings)
	}
	if r.Pod.Annotations[annotations.Lock] != "shop/orders" {
		t.Errorf("annotations %v", r.Pod.Annotations)
	}
	status, ok := injection.ReadStatus(r.Pod.Annotations)
	want := injection.Status{Version: "1.0.0", Image: "example.com/podlease-sidecar:1", Lock: "shop/orders", Quorum: "default", Fencing: "redis"}
	if !ok || status != want {
		t.Errorf("status %+v, want %+v", status, want)
	}
}

func TestRoleLabelOfTheInstallation(t *testing.T) {
	s := settings()
	s.RoleLabel = "example.com/role"
	r := injection.Inject(pod(), request, s)
	if r.Pod.Labels["example.com/role"] != "standby" || r.Pod.Labels[annotations.Role] != "" {
		t.Errorf("labels %v", r.Pod.Labels)
	}
	if !hasArg(sidecar(t, r.Pod), "--role-label=example.com/role") {
		t.Error("the sidecar does not know")
	}
}

func TestURLForOtherContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := pod("http-port", "9000")
	p.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "own", Env: []corev1.EnvVar{{Name: "PODLEASE_URL", Value: "mine"}}})
	r := inject(t, p)
	got := []string{env(&r.Pod.Spec.InitContainers[0], "PODLEASE_URL"), env(&r.Pod.Spec.InitContainers[1], "PODLEASE_URL")}
	for n := range r.Pod.Spec.Containers {
		got = append(got, env(&r.Pod.Spec.Containers[n], "PODLEASE_URL"))
	}
	want := []string{"", "http://127.0.0.1:9000", "http://127.0.0.1:9000", "mine"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadiness(t *testing.T) {
	for mode, path := range map[string]string{"participating": "/readyz", "active": "/leader", "gate": "", "none": ""} {
		r := inject(t, pod("readiness", mode))
		c := sidecar(t, r.Pod)
		got := ""
		if c.ReadinessProbe != nil {
			got = c.ReadinessProbe.HTTPGet.Path
		}
		gated := slices.Contains(r.Pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "podlease.io/active"})
		if got != path || gated != (mode == "gate") || hasArg(c, "--readiness-gate") != (mode == "gate") {
			t.Errorf("%s: probe %q, gate %v", mode, got, gated)
		}
		if c.StartupProbe == nil || c.StartupProbe.HTTPGet.Path != "/livez" {
			t.Errorf("%s: start-up depends on Redis", mode)
		}
	}
}

func TestRootPodGetsAnotherUserForTheSidecar(t *testing.T) {
	for _, c := range []struct{ user, want int64 }{{0, 65532}, {1000, 0}} {
		p := pod()
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &c.user}
		got := sidecar(t, inject(t, p).Pod).SecurityContext.RunAsUser
		if (got == nil) != (c.want == 0) || (got != nil && *got != c.want) {
			t.Errorf("Pod's user %d: sidecar's %v", c.user, got)
		}
	}
}

func TestTokenIsMountedInTheSidecarOnly(t *testing.T) {
	p := pod()
	no := false
	p.Spec.AutomountServiceAccountToken = &no
	r := inject(t, p)
	var mounted []string
	for _, c := range append(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers...) {
		for _, m := range c.VolumeMounts {
			mounted = append(mounted, c.Name+":"+m.MountPath)
		}
	}
	want := []string{"podlease:/var/run/secrets/kubernetes.io/serviceaccount", "podlease:/etc/podlease/podinfo", "podlease:/etc/podlease/redis"}
	if !slices.Equal(mounted, want) {
		t.Errorf("mounts %q", mounted)
	}
}

func TestQuorums(t *testing.T) {
	r := inject(t, pod("quorum", "open"))
	c := sidecar(t, r.Pod)
	if !hasArg(c, "--redis=redis:6379") || !hasArg(c, "--key-prefix=p:") {
		t.Errorf("args %q", c.Args)
	}
	for _, v := range r.Pod.Spec.Volumes {
		if v.Secret != nil {
			t.Error("a quorum without a Secret mounts one")
		}
	}
	for _, v := range inject(t, pod()).Pod.Spec.Volumes {
		if v.Secret != nil && v.Secret.SecretName != "podlease-default" {
			t.Errorf("Secret %q", v.Secret.SecretName)
		}
	}
}

func TestAppHealth(t *testing.T) {
	named := intstr.FromString("http")
	for name, c := range map[string]struct {
		annotation string
		probe      *corev1.ProbeHandler
		want       string
	}{
		"no probe":    {},
		"http":        {probe: &corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/ok?x=1"}}, want: "http://127.0.0.1:80/ok?x=1"},
		"https named": {probe: &corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: named, Scheme: "HTTPS"}}, want: "https://127.0.0.1:8080/"},
		"tcp":         {probe: &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: named}}, want: "tcp://127.0.0.1:8080"},
		"exec":        {probe: &corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
		"other host":  {probe: &corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "db", Port: named}}},
		"no such":     {probe: &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("grpc")}}},
		"off":         {annotation: "off", probe: &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: named}}},
		"given":       {annotation: "tcp://127.0.0.1:1", probe: &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: named}}, want: "tcp://127.0.0.1:1"},
	} {
		p := pod()
		if c.annotation != "" {
			p.Annotations[annotations.AppHealth] = c.annotation
		}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		if c.probe != nil {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: *c.probe}
		}
		got := ""
		for _, a := range sidecar(t, inject(t, p).Pod).Args {
			if v, ok := strings.CutPrefix(a, "--app-health="); ok {
				got = v
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAppContainer(t *testing.T) {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}}
	two := func(pairs ...string) *corev1.Pod {
		p := pod(pairs...)
		p.Spec.Containers = []corev1.Container{{Name: "istio-proxy"}, {Name: "a"}, {Name: "b"}}
		return p
	}
	for want, p := range map[int]*corev1.Pod{1: two(), 2: two("app-container", "b")} {
		p.Spec.Containers[want].ReadinessProbe = probe
		if !hasArg(sidecar(t, inject(t, p).Pod), "--app-health=tcp://127.0.0.1:1") {
			t.Errorf("container %d was not chosen", want)
		}
	}
	p := two()
	p.Annotations["kubectl.kubernetes.io/default-container"] = "b"
	p.Spec.Containers[2].ReadinessProbe = probe
	if !hasArg(sidecar(t, inject(t, p).Pod), "--app-health=tcp://127.0.0.1:1") {
		t.Error("kubectl's default container was not chosen")
	}
	refused(t, two("app-container", "c"), "podlease.io/app-container", `"c"`, `"a", "b"`)
}

func TestOnLossRestart(t *testing.T) {
	r := inject(t, pod("on-loss", "restart"))
	c := sidecar(t, r.Pod)
	if c.LivenessProbe != nil {
		t.Error("a liveness probe would make the kubelet restart the sidecar without the rule")
	}
	if len(c.RestartPolicyRules) != 1 || c.RestartPolicyRules[0].Action != "RestartAllContainers" ||
		c.RestartPolicyRules[0].ExitCodes.Operator != "NotIn" || !slices.Equal(c.RestartPolicyRules[0].ExitCodes.Values, []int32{0, 2, 3}) {
		t.Errorf("rules %+v", c.RestartPolicyRules)
	}
	for _, arg := range []string{"--on-loss=exit", "--ttl=15s", "--stop-budget=4s"} {
		if !hasArg(c, arg) {
			t.Errorf("args %q lack %q", c.Args, arg)
		}
	}
	s := settings()
	s.RestartAllContainers = false
	if r := injection.Inject(pod("on-loss", "restart"), request, s); r.Refusal == nil || !strings.Contains(r.Refusal.Error(), "1.36") {
		t.Errorf("refusal %v", r.Refusal)
	}
}

func TestOnLossExit(t *testing.T) {
	c := sidecar(t, inject(t, pod("on-loss", "exit")).Pod)
	if !hasArg(c, "--on-loss=exit") || c.RestartPolicyRules != nil || c.LivenessProbe == nil {
		t.Errorf("%+v", c)
	}
}

func TestOnLossExec(t *testing.T) {
	p := pod("on-loss", "exec", "wait", "30s")
	app := &p.Spec.Containers[0]
	app.Command, app.Args = []string{"/bin/app", "--", "x"}, []string{"$(PORT)"}
	app.ReadinessProbe = &corev1.Probe{TimeoutSeconds: 2, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Port: intstr.FromInt32(80), Path: "/ok", HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "shop"}},
	}}}
	app.LivenessProbe = &corev1.Probe{InitialDelaySeconds: 2, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/check"}}}}
	service := "db"
	app.StartupProbe = &corev1.Probe{InitialDelaySeconds: 5, FailureThreshold: 6, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 5, Service: &service}}}
	r := inject(t, p)
	app = &r.Pod.Spec.Containers[0]
	for what, c := range map[string]struct{ got, want []string }{
		"command": {app.Command, []string{"/run/podlease/podlease", "exec", "--sidecar=http://127.0.0.1:8484", "--wait=30s", "--", "/bin/app", "--", "x"}},
		"args":    {app.Args, []string{"$(PORT)"}},
		"ready":   {app.ReadinessProbe.Exec.Command, []string{"/run/podlease/podlease", "exec", "probe", "--timeout=2s", "--header=Host: shop", "http://127.0.0.1:80/ok"}},
		"live":    {app.LivenessProbe.Exec.Command, []string{"/run/podlease/podlease", "exec", "probe", "--timeout=1s", "--grace=67s", "--", "/check"}},
		"startup": {app.StartupProbe.Exec.Command, []string{"/run/podlease/podlease", "exec", "probe", "--timeout=1s", "grpc://127.0.0.1:5/db"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
	inits := r.Pod.Spec.InitContainers
	if len(inits) != 2 || inits[0].Name != "podlease-install" || inits[0].Image != "example.com/podlease:1" {
		t.Errorf("init containers %+v", inits)
	}
	if c := sidecar(t, r.Pod); c.Lifecycle != nil || hasArg(c, "--native-sidecar") {
		t.Error("a drain would leave the command no more than the stop budget, and SIGTERM does not mean that it has ended")
	}
	if hasArg(sidecar(t, r.Pod), "--app-health=http://127.0.0.1:80/ok") {
		t.Error("a standby's app does not run, so its health must not be asked")
	}
	if r.Pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"] != "podlease-tool" {
		t.Errorf("annotations %v", r.Pod.Annotations)
	}
}

func TestOnLossExecWarnsOfHooksThatRunBeforeTheCommand(t *testing.T) {
	p := pod("on-loss", "exec")
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/warm-up"}}}}
	if r := inject(t, p); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "postStart") {
		t.Errorf("warnings %q", r.Warnings)
	}
}

func TestOnLossExecRefusals(t *testing.T) {
	p := pod("on-loss", "exec")
	p.Spec.Containers[0].Command = nil
	refused(t, p, "spec.containers[app].command", "podlease.io/on-loss", `"exec"`, `add command: [`)
	refused(t, pod("on-loss", "exec", "app-health", "tcp://127.0.0.1:1"), "podlease.io/app-health", "tcp://127.0.0.1:1", `"auto", "off"`)
}

func TestRefusals(t *testing.T) {
	host := pod()
	host.Spec.HostNetwork = true
	refused(t, host, "spec.hostNetwork", "true", "podlease.io/inject", "allowed is false")

	windows := pod()
	windows.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	refused(t, windows, "windows", "Linux only")
	windows = pod()
	windows.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows"}
	refused(t, windows, "windows", "Linux only")

	for _, port := range []int32{8484, 8485} {
		clash := pod()
		clash.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port, Protocol: corev1.ProtocolTCP}}
		refused(t, clash, "podlease.io/http-port", "8484", `container "app"`, "allowed is 1024 to 65534")
	}
	udp := pod()
	udp.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8484, Protocol: corev1.ProtocolUDP}}
	inject(t, udp)

	taken := pod()
	taken.Spec.Containers[0].Name = "podlease"
	refused(t, taken, "spec.containers[podlease]", "the name is the sidecar's")
	taken = pod()
	taken.Spec.InitContainers = []corev1.Container{{Name: "podlease"}}
	refused(t, taken, "spec.initContainers[podlease]", "the name is the sidecar's")

	refused(t, pod("inject", "True"), "podlease.io/inject", `"True"`, `"true", "false"`)
	refused(t, pod("quorum", "us"), "podlease.io/quorum", `"us"`, `"default", "open"`)
	refused(t, pod("ttl", "x"), "podlease.io/ttl", `"x"`, "duration")

	mirror := pod()
	mirror.Annotations["kubernetes.io/config.mirror"] = "x"
	refused(t, mirror, "static Pods")

	daemon := owned("apps/v1", "DaemonSet", "agent")
	daemon.Annotations[annotations.Readiness] = "active"
	refused(t, daemon, "podlease.io/readiness", `"active"`, "DaemonSet", `"participating", "none"`)

	long := owned("apps/v1", "StatefulSet", strings.Repeat("x", 220))
	refused(t, long, "podlease.io/lock", "1 to 200")
}

func TestSeveralFaultsAreToldAtOnce(t *testing.T) {
	p := pod("readiness", "active")
	p.Spec.HostNetwork = true
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8484}}
	refused(t, p, "spec.hostNetwork", "podlease.io/http-port")
}

func owned(apiVersion, kind, name string) *corev1.Pod {
	yes := true
	p := pod()
	p.GenerateName = name + "-"
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &yes}}
	return p
}

func TestLockNames(t *testing.T) {
	labelled := func(p *corev1.Pod, key, value string) *corev1.Pod {
		p.Labels = map[string]string{key: value}
		return p
	}
	bare := pod()
	bare.Name, bare.GenerateName = "one", ""
	both := pod()
	both.Name = "orders-x1"
	secondary := pod()
	secondary.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "thing"}}
	job := owned("batch/v1", "Job", "night-29384756")
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		cronJob string
		want    string
	}{
		"Deployment":       {pod: labelled(owned("apps/v1", "ReplicaSet", "orders-7c9f"), "pod-template-hash", "7c9f"), want: "shop/orders"},
		"bare ReplicaSet":  {pod: owned("apps/v1", "ReplicaSet", "orders-7c9f"), want: "shop/orders-7c9f"},
		"Rollout":          {pod: labelled(owned("apps/v1", "ReplicaSet", "orders-5d8c"), "rollouts-pod-template-hash", "5d8c"), want: "shop/orders"},
		"foreign hash":     {pod: labelled(owned("apps/v1", "ReplicaSet", "orders-5d8c"), "pod-template-hash", "other"), want: "shop/orders-5d8c"},
		"StatefulSet":      {pod: owned("apps/v1", "StatefulSet", "db"), want: "shop/db"},
		"DaemonSet":        {pod: owned("apps/v1", "DaemonSet", "agent"), want: "shop/agent"},
		"Job":              {pod: job, want: "shop/night-29384756"},
		"CronJob":          {pod: job, cronJob: "night", want: "shop/night"},
		"custom owner":     {pod: owned("example.com/v1", "Cluster", "pg"), want: "shop/pg"},
		"custom Job":       {pod: owned("example.com/v1", "Job", "x"), cronJob: "never", want: "shop/x"},
		"no controller":    {pod: secondary, want: "shop/thing"},
		"bare Pod":         {pod: bare, want: "shop/one"},
		"name before base": {pod: both, want: "shop/orders-x1"},
		"generateName":     {pod: pod(), want: "shop/orders"},
		"given":            {pod: pod("lock", "shop/my/own"), want: "shop/my/own"},
	} {
		r := injection.Inject(c.pod, injection.Request{Namespace: "shop", CronJob: c.cronJob}, settings())
		if r.Refusal != nil || r.Lock != c.want || r.Pod.Annotations[annotations.Lock] != c.want {
			t.Errorf("%s: %q (%v), want %q", name, r.Lock, r.Refusal, c.want)
		}
	}
}

func TestOwningCronJob(t *testing.T) {
	yes := true
	owners := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "night", Controller: &yes}}
	if got := injection.OwningCronJob(owners); got != "night" {
		t.Errorf("got %q", got)
	}
	if got := injection.OwningJob(owned("batch/v1", "Job", "x")); got != "x" {
		t.Errorf("got %q", got)
	}
	if got := injection.OwningJob(owned("apps/v1", "ReplicaSet", "x")); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestJobWithRestartIsWarned(t *testing.T) {
	p := owned("batch/v1", "Job", "x")
	p.Annotations[annotations.OnLoss] = "restart"
	if r := inject(t, p); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], `use "exec" for Jobs`) {
		t.Errorf("warnings %q", r.Warnings)
	}
}
