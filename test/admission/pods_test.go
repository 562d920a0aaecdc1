package admission_test

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// pod is one that asks for the sidecar and obeys the standard "restricted".
func pod(pairs ...string) *corev1.Pod {
	p := plainPod()
	p.Annotations = map[string]string{"podlease.io/inject": "true"}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations["podlease.io/"+pairs[i]] = pairs[i+1]
	}
	return p
}

func plainPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "orders-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default",
			SecurityContext:    &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}},
			Containers: []corev1.Container{{
				Name: "app", Image: "app", Command: []string{"/app"},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}

func create(ctx context.Context, namespace string, p *corev1.Pod) (*corev1.Pod, error) {
	return admin.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
}

func admitted(ctx context.Context, namespace string, p *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	stored, err := create(ctx, namespace, p)
	Expect(err).NotTo(HaveOccurred())
	last := stored.Spec.InitContainers[len(stored.Spec.InitContainers)-1]
	Expect(last.Name).To(Equal("podlease"))
	return stored
}

func sidecar(p *corev1.Pod) *corev1.Container {
	return &p.Spec.InitContainers[len(p.Spec.InitContainers)-1]
}

// webhookCalls is how often the API server has called our webhook.
func webhookCalls(ctx context.Context) string {
	GinkgoHelper()
	raw, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "apiserver_admission_webhook_request_total") && strings.Contains(line, `name="inject.podlease.io"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

var _ = Describe("A Pod without our keys", func() {
	It("never reaches the webhook and is stored as it is", func(ctx SpecContext) {
		ns := namespace(ctx)
		admitted(ctx, ns, pod()) // so that there is a counter
		before := webhookCalls(ctx)
		Expect(before).NotTo(BeEmpty())
		declined := pod("inject", "false", "lock", "x/y")
		for _, p := range []*corev1.Pod{plainPod(), declined} {
			stored, err := create(ctx, ns, p)
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.Spec.InitContainers).To(BeEmpty())
			Expect(stored.Spec.Containers).To(HaveLen(1))
			Expect(stored.Spec.Containers[0].Env).To(BeEmpty())
			Expect(stored.Labels).To(BeEmpty())
			Expect(equality.Semantic.DeepEqual(stored.Annotations, p.Annotations)).To(BeTrue())
		}
		Expect(webhookCalls(ctx)).To(Equal(before))
	})
})

var _ = Describe("A Pod that asks for the sidecar", func() {
	It("gets it, and its namespace what it needs", func(ctx SpecContext) {
		ns := namespace(ctx)
		stored := admitted(ctx, ns, pod("ttl", "12s"))
		Expect(stored.Labels).To(HaveKeyWithValue("podlease.io/role", "standby"))
		Expect(stored.Annotations).To(HaveKeyWithValue("podlease.io/lock", ns+"/orders"))
		Expect(sidecar(stored).Args).To(ContainElements("--ttl=12s", "--lock="+ns+"/orders", "--password-file=/etc/podlease/redis/password"))
		binding, err := admin.RbacV1().RoleBindings(ns).Get(ctx, "podlease-sidecar", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(binding.Subjects).To(HaveLen(1))
		Expect(binding.Subjects[0].Name).To(Equal("default"))
		source, err := admin.CoreV1().Secrets(system).Get(ctx, "podlease-redis-default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		copied, err := admin.CoreV1().Secrets(ns).Get(ctx, "podlease-default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(copied.Data).To(Equal(source.Data))
	})

	It("may keep a counter in a Lease object where its fencing tokens come from there, and nowhere else", func(ctx SpecContext) {
		ns := namespace(ctx)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "podlease-x"}}
		plain := admitted(ctx, ns, pod())
		_, err := as(ctx, ns, "default", plain).CoordinationV1().Leases(ns).Create(ctx, lease, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		p := pod("fencing", "kubernetes")
		p.Spec.ServiceAccountName = "counting"
		_, err = admin.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "counting"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		stored := admitted(ctx, ns, p)
		Expect(sidecar(stored).Args).To(ContainElement("--fencing=kubernetes"))
		binding, err := admin.RbacV1().RoleBindings(ns).Get(ctx, "podlease-sidecar-leases", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(binding.Subjects).To(ConsistOf(HaveField("Name", "counting")))
		c := as(ctx, ns, "counting", stored).CoordinationV1()
		Eventually(func() error { _, err := c.Leases(ns).Create(ctx, lease, metav1.CreateOptions{}); return err }).Should(Succeed())
		have, err := c.Leases(ns).Get(ctx, lease.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Leases(ns).Update(ctx, have, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Leases(system).Get(ctx, "podlease-controller", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	})

	It("is not changed any more by a second admission", func(ctx SpecContext) {
		ns := namespace(ctx)
		for _, loss := range []string{"none", "restart", "exit", "exec"} {
			for _, readiness := range []string{"participating", "active", "gate", "none"} {
				first := admitted(ctx, ns, pod("on-loss", loss, "readiness", readiness))
				again := first.DeepCopy()
				again.ObjectMeta = metav1.ObjectMeta{GenerateName: "orders-", Labels: first.Labels, Annotations: first.Annotations}
				second := admitted(ctx, ns, again)
				Expect(equality.Semantic.DeepEqual(first.Spec, second.Spec)).To(BeTrue(), "%s, %s:\n%v\n%v", loss, readiness, first.Spec, second.Spec)
				Expect(second.Annotations).To(Equal(first.Annotations))
			}
		}
	})

	It("prepares nothing on a dry run", func(ctx SpecContext) {
		ns := namespace(ctx)
		p, err := admin.CoreV1().Pods(ns).Create(ctx, pod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Spec.InitContainers).To(HaveLen(1))
		bindings, err := admin.RbacV1().RoleBindings(ns).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(bindings.Items).To(BeEmpty())
		_, err = admin.CoreV1().Secrets(ns).Get(ctx, "podlease-default", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	})

	It("adds each ServiceAccount, also when many come at once", func(ctx SpecContext) {
		ns := namespace(ctx)
		const accounts = 12
		errs := make(chan error, accounts)
		for n := range accounts {
			go func() {
				p := pod()
				p.Spec.ServiceAccountName = string(rune('a' + n))
				_, err := create(ctx, ns, p)
				errs <- err
			}()
		}
		for range accounts {
			Expect(<-errs).NotTo(HaveOccurred())
		}
		binding, err := admin.RbacV1().RoleBindings(ns).Get(ctx, "podlease-sidecar", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(binding.Subjects).To(HaveLen(accounts))
	})

	It("names what is missing where people make it", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := create(ctx, ns, pod("quorum", "own"))
		Expect(err).To(MatchError(And(ContainSubstring("Secret "+ns+"/podlease-own is missing"), ContainSubstring("inject.podlease.io"))))
		_, err = admin.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "podlease-own"}, Data: map[string][]byte{"password": []byte("x")}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		var stored *corev1.Pod
		Eventually(func() error { stored, err = create(ctx, ns, pod("quorum", "own")); return err }).Should(Succeed())
		Expect(sidecar(stored).Args).To(ContainElement("--password-file=/etc/podlease/redis/password"))
		Expect(sidecar(stored).Args).NotTo(ContainElement(ContainSubstring("--username-file")))
	})

	It("never overwrites somebody else's Secret", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := admin.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "podlease-default"}, Data: map[string][]byte{"a": []byte("b")}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = create(ctx, ns, pod())
		Expect(err).To(MatchError(ContainSubstring("it is not podlease's: delete it, or set quorums.default.copySecret=false")))
	})

	It("also with the label instead of the annotation", func(ctx SpecContext) {
		p := plainPod()
		p.Labels = map[string]string{"podlease.io/inject": "true"}
		admitted(ctx, namespace(ctx), p)
	})

	It("runs under the standards restricted and baseline", func(ctx SpecContext) {
		for _, level := range []string{"restricted", "baseline"} {
			ns := namespace(ctx, "pod-security.kubernetes.io/enforce", level)
			for _, loss := range []string{"none", "exec"} {
				admitted(ctx, ns, pod("on-loss", loss))
			}
		}
	})

	It("gets another user where the Pod runs as root", func(ctx SpecContext) {
		p := pod()
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))}
		Expect(sidecar(admitted(ctx, namespace(ctx), p)).SecurityContext.RunAsUser).To(HaveValue(BeEquivalentTo(65532)))
	})

	It("stays Guaranteed", func(ctx SpecContext) {
		p := pod()
		list := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		Expect(admitted(ctx, namespace(ctx), p).Status.QOSClass).To(Equal(corev1.PodQOSGuaranteed))
	})

	It("fits a quota on requests and limits", func(ctx SpecContext) {
		ns := namespace(ctx)
		hard := corev1.ResourceList{}
		used := corev1.ResourceList{}
		for _, r := range []corev1.ResourceName{"requests.cpu", "requests.memory", "limits.cpu", "limits.memory"} {
			hard[r], used[r] = resource.MustParse("2Gi"), resource.MustParse("0")
		}
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		quota, err := admin.CoreV1().ResourceQuotas(ns).Create(ctx, quota, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
		_, err = admin.CoreV1().ResourceQuotas(ns).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		p := pod()
		Eventually(func() error { _, err := create(ctx, ns, p); return err }).Should(MatchError(ContainSubstring("must specify")))
		list := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		admitted(ctx, ns, p)
		quota, err = admin.CoreV1().ResourceQuotas(ns).Get(ctx, "q", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(quota.Status.Used.Name("limits.cpu", resource.DecimalSI).String()).To(Equal("1100m"))
	})

	It("can be made to fit a LimitRange", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := admin.CoreV1().LimitRanges(ns).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:                 corev1.LimitTypeContainer,
			Min:                  corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("128Mi")},
			Max:                  corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
			MaxLimitRequestRatio: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1")},
		}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { _, err := create(ctx, ns, pod()); return err }).Should(MatchError(ContainSubstring("minimum cpu usage per Container is 200m")))
		admitted(ctx, ns, pod("cpu", "200m", "memory", "128Mi"))
	})

	It("is left its own process namespace and token settings", func(ctx SpecContext) {
		p := pod()
		p.Spec.ShareProcessNamespace, p.Spec.AutomountServiceAccountToken = new(true), new(false)
		stored := admitted(ctx, namespace(ctx), p)
		Expect(*stored.Spec.ShareProcessNamespace).To(BeTrue())
		Expect(*stored.Spec.AutomountServiceAccountToken).To(BeFalse())
		Expect(stored.Spec.Containers[0].VolumeMounts).To(BeEmpty())
		Expect(sidecar(stored).VolumeMounts).To(ContainElement(HaveField("MountPath", "/var/run/secrets/kubernetes.io/serviceaccount")))
	})
})

var _ = Describe("A refusal", func() {
	DescribeTable("names what is wrong and what is allowed",
		func(ctx SpecContext, change func(*corev1.Pod), parts ...string) {
			p := pod()
			change(p)
			_, err := create(ctx, namespace(ctx), p)
			Expect(err).To(HaveOccurred())
			for _, part := range append(parts, `admission webhook "inject.podlease.io" denied the request`) {
				Expect(err.Error()).To(ContainSubstring(part))
			}
		},
		Entry("inject", func(p *corev1.Pod) { p.Annotations["podlease.io/inject"] = "True" }, "podlease.io/inject", `"True"`, `"true", "false"`),
		Entry("ttl", func(p *corev1.Pod) { p.Annotations["podlease.io/ttl"] = "x" }, "podlease.io/ttl", `"x"`, "duration"),
		Entry("quorum", func(p *corev1.Pod) { p.Annotations["podlease.io/quorum"] = "us" }, "podlease.io/quorum", `"us"`, `"default", "open", "own"`),
		Entry("lock", func(p *corev1.Pod) { p.Annotations["podlease.io/lock"] = "other/x" }, "podlease.io/lock", "namespace"),
		Entry("host network", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "spec.hostNetwork"),
		Entry("Windows", func(p *corev1.Pod) {
			p.Spec.OS = &corev1.PodOS{Name: "windows"}
			p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = nil, nil
		}, "Linux only"),
		Entry("port", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8485}} }, "podlease.io/http-port", "8484", "1024 to 65534"),
	)

	It("warns of settings without inject, and of typos", func(ctx SpecContext) {
		c, w := withWarnings()
		p := plainPod()
		p.Annotations = map[string]string{"podlease.io/lock": "a/b", "podlease.io/injetc": "true"}
		_, err := c.CoreV1().Pods(namespace(ctx)).Create(ctx, p, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.String()).To(And(ContainSubstring("podlease.io/lock does nothing without podlease.io/inject"), ContainSubstring("did you mean podlease.io/inject?")))
	})
})

var _ = Describe("A workload", func() {
	template := func(pairs ...string) corev1.PodTemplateSpec {
		p := pod(pairs...)
		p.Labels = map[string]string{"app": "x"}
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	meta := metav1.ObjectMeta{Name: "x"}
	forJob := func(pairs ...string) corev1.PodTemplateSpec {
		t := template(pairs...)
		t.Spec.RestartPolicy = corev1.RestartPolicyNever
		return t
	}

	It("is refused at once for what its Pods would be refused later", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := admin.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template("ttl", "x")}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("spec.template: podlease: metadata.annotations[podlease.io/ttl]")))
		_, err = admin.AppsV1().StatefulSets(ns).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: selector, Template: template("readiness", "active")}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("OrderedReady")))
		_, err = admin.AppsV1().DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("readiness", "gate")}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("DaemonSet")))
		_, err = admin.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: forJob("quorum", "us")}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring(`Unsupported value: "us"`)))
		_, err = admin.BatchV1().CronJobs(ns).Create(ctx, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: forJob("inject", "True")}}}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("spec.jobTemplate.spec.template: podlease: metadata.annotations[podlease.io/inject]")))
	})

	It("is warned of a typo and of an annotation in the wrong place", func(ctx SpecContext) {
		c, w := withWarnings()
		d := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template("lokc", "x")}}
		d.Annotations = map[string]string{"podlease.io/inject": "true"}
		_, err := c.AppsV1().Deployments(namespace(ctx)).Create(ctx, d, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.String()).To(And(ContainSubstring("did you mean podlease.io/lock?"), ContainSubstring("put it under spec.template.metadata.annotations")))
	})

	It("has one lock for all runs of a CronJob", func(ctx SpecContext) {
		ns := namespace(ctx)
		cron, err := admin.BatchV1().CronJobs(ns).Create(ctx, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "night"}, Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: forJob()}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		owner := *metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))
		for _, run := range []string{"night-1", "night-2", "by-hand"} {
			job, err := admin.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: run, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: batchv1.JobSpec{Template: forJob()}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			p := pod()
			p.GenerateName, p.OwnerReferences = run+"-", []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
			Expect(admitted(ctx, ns, p).Annotations).To(HaveKeyWithValue("podlease.io/lock", ns+"/night"))
		}
		job, err := admin.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: batchv1.JobSpec{Template: forJob()}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		p := pod()
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		Expect(admitted(ctx, ns, p).Annotations).To(HaveKeyWithValue("podlease.io/lock", ns+"/alone"))
	})
})
