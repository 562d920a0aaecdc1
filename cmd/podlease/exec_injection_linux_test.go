package main

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/injection"
	"github.com/podlease/podlease/pkg/settings"
)

// injected is a Pod whose command runs under podlease exec, as the webhook makes it.
func injected(t *testing.T, wait string, probe corev1.ProbeHandler) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "orders-", Annotations: map[string]string{
			annotations.Inject: "true", annotations.OnLoss: annotations.OnLossExec, annotations.Wait: wait, annotations.HTTPPort: "9000",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "app", Command: []string{"/app", "--", "--wait=x"}, Args: []string{"--flag"},
			StartupProbe:   &corev1.Probe{TimeoutSeconds: 3, FailureThreshold: 30, ProbeHandler: probe},
			ReadinessProbe: &corev1.Probe{TimeoutSeconds: 3, ProbeHandler: probe},
			LivenessProbe:  &corev1.Probe{TimeoutSeconds: 3, ProbeHandler: probe},
		}}},
	}
	r := injection.Inject(pod, injection.Request{Namespace: "shop"}, injection.Settings{
		Image: "sidecar", ToolImage: "tool", Quorums: map[string]injection.Quorum{"default": {Nodes: []string{"r:6379"}}},
	})
	if r.Refusal != nil || r.Pod == nil {
		t.Fatalf("refused: %v", r.Refusal)
	}
	return r.Pod
}

// commandLine checks that a container's command is this program's, and returns the rest.
func commandLine(t *testing.T, command []string, words ...string) []string {
	t.Helper()
	if !slices.Equal(command[1:1+len(words)], words) {
		t.Fatalf("command %q does not begin with %q", command, words)
	}
	return command[1+len(words):]
}

func TestTheInjectedCommandIsUnderstood(t *testing.T) {
	for text, want := range map[string]time.Duration{"forever": -1, "0s": 0, "90s": 90 * time.Second} {
		app := injected(t, text, corev1.ProbeHandler{}).Spec.Containers[0]
		flags := settings.NewFlags("exec")
		opt, arguments := newExecOptions(flags), flags.Arguments()
		line := append(commandLine(t, app.Command, "exec"), app.Args...)
		if err := flags.Parse(line, []string{"PODLEASE_URL=http://127.0.0.1:9000"}); err != nil {
			t.Fatal(err)
		}
		if err := opt.complete(flags, *arguments); err != nil {
			t.Fatal(err)
		}
		if opt.wait != want || opt.sidecar != "http://127.0.0.1:9000" || opt.control != "http://127.0.0.1:9001" {
			t.Errorf("%q: wait %v, sidecar %s, control %s", line, opt.wait, opt.sidecar, opt.control)
		}
		if !slices.Equal(opt.command, []string{"/app", "--", "--wait=x", "--flag"}) {
			t.Errorf("command %q", opt.command)
		}
	}
}

func TestTheInjectedProbesAreUnderstood(t *testing.T) {
	service := "db"
	for name, probe := range map[string]corev1.ProbeHandler{
		"http": {HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "ok?a=b", HTTPHeaders: []corev1.HTTPHeader{{Name: "Accept", Value: "a, b"}, {Name: "Host", Value: "shop:80"}}}},
		"tls":  {HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(443), Scheme: corev1.URISchemeHTTPS}},
		"tcp":  {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
		"grpc": {GRPC: &corev1.GRPCAction{Port: 9}},
		"db":   {GRPC: &corev1.GRPCAction{Port: 9, Service: &service}},
		"exec": {Exec: &corev1.ExecAction{Command: []string{"/check", "--timeout=9s"}}},
	} {
		t.Run(name, func(t *testing.T) {
			app := injected(t, "forever", probe).Spec.Containers[0]
			for grace, p := range map[time.Duration]*corev1.Probe{0: app.ReadinessProbe, 300 * time.Second: app.LivenessProbe} {
				flags := settings.NewFlags("probe")
				opt, arguments := newProbeOptions(flags), flags.Arguments()
				if err := flags.Parse(commandLine(t, p.Exec.Command, "exec", "probe"), nil); err != nil {
					t.Fatal(err)
				}
				if err := opt.complete(flags, *arguments); err != nil {
					t.Fatal(err)
				}
				if opt.timeout != 3*time.Second || opt.grace != grace {
					t.Errorf("timeout %v, grace %v, want %v", opt.timeout, opt.grace, grace)
				}
				if probe.Exec != nil && !slices.Equal(opt.command, probe.Exec.Command) {
					t.Errorf("command %q", opt.command)
				}
			}
		})
	}
}

func TestTheInjectedInstallationIsUnderstood(t *testing.T) {
	pod := injected(t, "forever", corev1.ProbeHandler{})
	install := pod.Spec.InitContainers[0]
	if arguments := commandLine(t, install.Command, "install"); len(arguments) != 1 || arguments[0] != pod.Spec.Containers[0].Command[0] {
		t.Errorf("installs to %q, and the app's command is %q", arguments, pod.Spec.Containers[0].Command)
	}
}
