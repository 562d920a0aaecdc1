package e2e_test

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podlease/podlease/pkg/boottime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	chart = "../../charts/podlease"
	// system is where the chart is installed.
	system     = "podlease-system"
	controller = "deployment/podlease-controller"
	redisNodes = "statefulset/podlease-redis-default"
	sampleApp  = "ghcr.io/podlease/sample-app:dev"
)

// images are what the cluster has; all other values are the chart's.
var images = []string{
	"sidecar.image.tag=dev", "tool.image.tag=dev", "controller.image.tag=dev", "quorums.default.deploy.image.tag=7-alpine",
}

func helm(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return command(ctx, "helm", append(args, "--namespace", system)...)
}

// release installs the chart, or changes the values of the installed one.
func release(ctx context.Context, values ...string) {
	GinkgoHelper()
	args := []string{"upgrade", "--install", "podlease", chart, "--create-namespace"}
	for _, value := range slices.Concat(images, values) {
		args = append(args, "--set", value)
	}
	helm(ctx, args...)
}

// remove takes the release away, and what it leaves behind on purpose.
func remove(ctx context.Context) {
	GinkgoHelper()
	helm(ctx, "uninstall", "podlease", "--ignore-not-found")
	kubectl(ctx, "delete", "namespace", system, "--ignore-not-found")
	kubectl(ctx, "delete", "clusterrole", "podlease-sidecar", "podlease-sidecar-leases", "--ignore-not-found")
}

// rolledOut waits until an update of the release's objects is complete.
func rolledOut(ctx context.Context, objects ...string) {
	GinkgoHelper()
	for _, object := range objects {
		kubectl(ctx, "--namespace", system, "rollout", "status", object, "--timeout=5m")
	}
}

// redisReady waits until all Redis Pods of the release are Ready, and tells when they
// were.
func redisReady(ctx context.Context) time.Duration {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		set, err := client.AppsV1().StatefulSets(system).Get(ctx, "podlease-redis-default", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(set.Status.ReadyReplicas).To(Equal(*set.Spec.Replicas))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(20 * time.Millisecond).Should(Succeed())
	return boottime.Now()
}

// newNamespace makes one under the standard "restricted", until the spec is over.
func newNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { kubectl(ctx, "delete", "namespace", name, "--ignore-not-found") })
	Eventually(func() error {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

// template is the sample's app as one would write it, with annotations of podlease:
// "inject", "true" and so on.
func (w workload) template(pairs ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.name}},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "app", Image: sampleApp, Command: []string{"/sample-app"},
				Ports:           []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				ReadinessProbe:  &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if len(pairs) > 0 {
		t.Annotations = map[string]string{}
	}
	for pair := range slices.Chunk(pairs, 2) {
		t.Annotations["podlease.io/"+pair[0]] = pair[1]
	}
	return t
}

// serve makes the workload's Service, which reaches the active Pod only.
func (w workload) serve(ctx context.Context) {
	GinkgoHelper()
	_, err := client.CoreV1().Services(w.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": w.name, roleLabel: "active"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func (w workload) deploy(ctx context.Context, replicas int32, pairs ...string) {
	GinkgoHelper()
	_, err := client.AppsV1().Deployments(w.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.name}},
			Template: w.template(pairs...),
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func (w workload) deploySet(ctx context.Context, replicas int32, policy appsv1.PodManagementPolicyType, pairs ...string) {
	GinkgoHelper()
	_, err := client.AppsV1().StatefulSets(w.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, PodManagementPolicy: policy,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.name}},
			Template: w.template(pairs...),
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// kubectl runs one in the workload's namespace.
func (w workload) kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return kubectl(ctx, append([]string{"--namespace", w.namespace}, args...)...)
}

// rolledOut waits until `kubectl rollout status` returns.
func (w workload) rolledOut(ctx context.Context, kind string) {
	GinkgoHelper()
	w.kubectl(ctx, "rollout", "status", kind+"/"+w.name, "--timeout=2m")
}

// settled waits until the workload has so many Pods, all of them running, and one of
// them active.
func (w workload) settled(ctx context.Context, pods int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		have, err := w.pods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(have).To(HaveLen(pods))
		g.Expect(have).To(HaveEach(HaveField("Status.Phase", corev1.PodRunning)))
		g.Expect(holders(have)).To(HaveLen(1))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// redisCLI runs a command on one of the release's Redis nodes, as the sidecars' user.
func redisCLI(ctx context.Context, node string, args ...string) string {
	GinkgoHelper()
	secret, err := client.CoreV1().Secrets(system).Get(ctx, "podlease-redis-default", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return kubectl(ctx, slices.Concat([]string{"--namespace", system, "exec", node, "--", "redis-cli", "--no-auth-warning",
		"--user", string(secret.Data["username"]), "--pass", string(secret.Data["password"])}, args)...)
}

// steal gives a workload's lease to nobody for a while, behind its holder's back.
func (w workload) steal(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	for _, node := range []string{"podlease-redis-default-0", "podlease-redis-default-1", "podlease-redis-default-2"} {
		answer := redisCLI(ctx, node, "SET", "podlease:"+w.String(), "somebody-else", "PX", strings.TrimSuffix(d.String(), "s")+"000")
		Expect(answer).To(Equal("OK"))
	}
}
