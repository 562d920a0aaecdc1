package admission_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func role(ctx context.Context, p *corev1.Pod) func() (string, error) {
	return func() (string, error) {
		now, err := admin.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return now.Labels["podlease.io/role"], nil
	}
}

func activate(ctx context.Context, p *corev1.Pod, token int) {
	GinkgoHelper()
	Expect(patchStatus(ctx, admin, p, fmt.Sprintf(
		`{"metadata":{"labels":{"podlease.io/role":"active"},"annotations":{"podlease.io/fencing-token":"%d","controller.kubernetes.io/pod-deletion-cost":"2147483647"}}}`, token))).To(Succeed())
}

// metric sums a metric over the replicas.
func metric(ctx context.Context, name string) float64 {
	GinkgoHelper()
	var sum float64
	for _, r := range replicas {
		if r.process.Ended() != nil {
			continue
		}
		text, err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/metrics", r.metrics))
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
				n, err := strconv.ParseFloat(value, 64)
				Expect(err).NotTo(HaveOccurred())
				sum += n
			}
		}
	}
	return sum
}

var _ = Describe("The janitor", func() {
	It("takes the label off a Pod with a lower token, and off no other", func(ctx SpecContext) {
		ns := namespace(ctx)
		before := metric(ctx, "podlease_stale_roles_cleared_total")
		old, now, elsewhere := admitted(ctx, ns, pod()), admitted(ctx, ns, pod()), admitted(ctx, ns, pod("lock", ns+"/other"))
		activate(ctx, elsewhere, 1)
		activate(ctx, old, 7)
		Consistently(role(ctx, old), "500ms").Should(Equal("active"))
		activate(ctx, now, 8)
		Eventually(role(ctx, old)).Should(Equal("standby"))
		p, err := admin.CoreV1().Pods(ns).Get(ctx, old.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Annotations).NotTo(Or(HaveKey("podlease.io/fencing-token"), HaveKey("controller.kubernetes.io/pod-deletion-cost")))
		Expect(role(ctx, now)()).To(Equal("active"))
		Expect(role(ctx, elsewhere)()).To(Equal("active"))
		Expect(metric(ctx, "podlease_stale_roles_cleared_total")).To(Equal(before + 1))
	})

	It("takes the label off a Pod that has ended", func(ctx SpecContext) {
		p := admitted(ctx, namespace(ctx), pod())
		activate(ctx, p, 7)
		Expect(patchStatus(ctx, admin, p, `{"status":{"phase":"Failed"}}`)).To(Succeed())
		Eventually(role(ctx, p)).Should(Equal("standby"))
	})
})

// start tells what the kubelet would of a Pod whose sidecar runs and whose app is ready.
func start(ctx context.Context, p *corev1.Pod) {
	GinkgoHelper()
	status := map[string]any{"status": map[string]any{
		"phase":                 "Running",
		"initContainerStatuses": []any{map[string]any{"name": "podlease", "started": true, "ready": true, "image": "x", "imageID": "x", "restartCount": 0}},
		"containerStatuses":     []any{map[string]any{"name": "app", "started": true, "ready": true, "image": "x", "imageID": "x", "restartCount": 0}},
	}}
	raw, err := json.Marshal(status)
	Expect(err).NotTo(HaveOccurred())
	Expect(patchStatus(ctx, admin, p, string(raw))).To(Succeed())
}

var _ = Describe("The hand-over where readiness is leadership", func() {
	It("goes to the newest revision when its Pod can take over", func(ctx SpecContext) {
		ns := namespace(ctx)
		of := func(revision string) *corev1.Pod {
			labels := map[string]string{"app": "x", "pod-template-hash": revision}
			template := pod("readiness", "active")
			template.Labels = labels
			rs, err := admin.AppsV1().ReplicaSets(ns).Create(ctx, &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: "orders-" + revision, Annotations: map[string]string{"deployment.kubernetes.io/revision": revision}},
				Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec}},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			template.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
			return admitted(ctx, ns, template)
		}
		old := of("1")
		start(ctx, old)
		activate(ctx, old, 5)
		now := of("2")
		annotations := func() (map[string]string, error) {
			p, err := admin.CoreV1().Pods(ns).Get(ctx, old.Name, metav1.GetOptions{})
			return p.Annotations, err
		}
		Consistently(annotations, "500ms").ShouldNot(HaveKey("podlease.io/step-down"), "the new Pod cannot take over yet")
		start(ctx, now)
		Eventually(annotations).Should(And(HaveKeyWithValue("podlease.io/step-down", string(now.UID)), HaveKeyWithValue("podlease.io/priority", "-100")))
		p, err := admin.CoreV1().Pods(ns).Get(ctx, now.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Annotations).NotTo(HaveKey("podlease.io/priority"))
	})
})

var _ = Describe("A copied Secret", func() {
	It("is kept equal to its source, and comes back", func(ctx SpecContext) {
		ns := namespace(ctx)
		admitted(ctx, ns, pod())
		source, err := admin.CoreV1().Secrets(system).Get(ctx, "podlease-redis-default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		data := func() (map[string][]byte, error) {
			s, err := admin.CoreV1().Secrets(ns).Get(ctx, "podlease-default", metav1.GetOptions{})
			return s.Data, err
		}
		copied, err := admin.CoreV1().Secrets(ns).Get(ctx, "podlease-default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		copied.Data["password"] = []byte("changed")
		_, err = admin.CoreV1().Secrets(ns).Update(ctx, copied, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(data).Should(Equal(source.Data))
		Expect(admin.CoreV1().Secrets(ns).Delete(ctx, "podlease-default", metav1.DeleteOptions{})).To(Succeed())
		Eventually(data).Should(Equal(source.Data))
		source.Data["extra"] = []byte("x")
		source, err = admin.CoreV1().Secrets(system).Update(ctx, source, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(data).Should(Equal(source.Data))
		delete(source.Data, "extra")
		_, err = admin.CoreV1().Secrets(system).Update(ctx, source, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(data).Should(Equal(source.Data))
	})

	It("has a password that the nodes know as a hash only", func(ctx SpecContext) {
		source, err := admin.CoreV1().Secrets(system).Get(ctx, "podlease-redis-default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		acl, err := admin.CoreV1().Secrets(system).Get(ctx, "podlease-redis-default-acl", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(acl.Data["users.acl"])).To(And(HavePrefix("user default off\nuser podlease on #"), Not(ContainSubstring(string(source.Data["password"])))))
	})
})

var _ = Describe("With the controller down", Serial, Ordered, func() {
	It("refuses only Pods that ask, and admits them when it is back", func(ctx SpecContext) {
		ns := namespace(ctx)
		for _, r := range replicas {
			if r.process.Ended() == nil {
				r.stop()
			}
		}
		_, err := create(ctx, ns, pod())
		Expect(err).To(MatchError(And(ContainSubstring(`failed calling webhook "inject.podlease.io"`))))
		stored, err := create(ctx, ns, plainPod())
		Expect(err).NotTo(HaveOccurred())
		Expect(stored.Spec.InitContainers).To(BeEmpty())
		startReplica(ctx)
		startReplica(ctx)
		Eventually(func() error { _, err := create(ctx, ns, pod()); return err }).Should(Succeed())
	})

	It("reports, when it is back, Pods that ask and run without the sidecar", func(ctx SpecContext) {
		ns := namespace(ctx)
		p := plainPod()
		p.Annotations = map[string]string{"podlease.io/inject": "false"}
		slipped, err := create(ctx, ns, p)
		Expect(err).NotTo(HaveOccurred())
		Expect(patchStatus(ctx, admin, slipped, `{"metadata":{"annotations":{"podlease.io/inject":"true"}},"status":{"phase":"Running"}}`)).To(Succeed())
		whole := admitted(ctx, ns, pod())
		for _, r := range replicas {
			if r.process.Ended() == nil {
				r.stop()
			}
		}
		startReplica(ctx)
		startReplica(ctx)
		Eventually(metric).WithArguments(ctx, "podlease_missing_sidecar_pods").Should(Equal(1.0))
		Eventually(func(g Gomega) {
			list, err := admin.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Items).To(ContainElement(And(HaveField("Reason", "SidecarMissing"), HaveField("Regarding.Name", slipped.Name))))
			g.Expect(list.Items).NotTo(ContainElement(HaveField("Regarding.Name", whole.Name)))
		}).Should(Succeed())
		Expect(admin.CoreV1().Pods(ns).Delete(ctx, slipped.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
	})
})

var _ = Describe("After a list of Redis nodes has jumped", Serial, func() {
	It("reports Pods that run with the old one", func(ctx SpecContext) {
		ns := namespace(ctx)
		old := admitted(ctx, ns, pod())
		one := func(n int) string {
			return fmt.Sprintf("%q,", fmt.Sprintf("podlease-redis-default-%d.podlease-redis-default.podlease-system.svc:6379", n))
		}
		for _, r := range replicas {
			if r.process.Ended() == nil {
				r.stop()
			}
		}
		r := startReplica(ctx, "--config="+controllerConfig(one(0), "", one(1), ""))
		reported := func(g Gomega, ctx context.Context) []eventsv1.Event {
			list, err := admin.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			return list.Items
		}
		Eventually(reported).WithContext(ctx).Should(ContainElement(And(HaveField("Reason", "NodeListJump"), HaveField("Regarding.Name", old.Name))))
		Eventually(metric).WithArguments(ctx, "podlease_node_list_jump_pods").Should(BeNumerically(">", 0))
		r.stop()
		startReplica(ctx)
		startReplica(ctx)
	})
})

var _ = Describe("Under a stream of creations", Serial, func() {
	stream := func(ctx context.Context, while func()) {
		GinkgoHelper()
		ns := namespace(ctx)
		done, errs := make(chan struct{}), make(chan error, 1)
		count := 0
		go func() {
			defer close(errs)
			for {
				select {
				case <-done:
					return
				default:
				}
				count++
				if _, err := create(ctx, ns, pod()); err != nil {
					errs <- fmt.Errorf("creation %d: %w", count, err)
					return
				}
			}
		}()
		while()
		close(done)
		Expect(<-errs).NotTo(HaveOccurred())
		AddReportEntry("creations", count)
	}
	// served are the certificates of all replicas.
	served := func(ctx context.Context) (all [][]byte, err error) {
		for _, r := range replicas {
			if r.process.Ended() != nil {
				continue
			}
			c, err := servedBy(ctx, r)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		return all, nil
	}
	spoil := func(ctx context.Context, key string) {
		GinkgoHelper()
		s, err := admin.CoreV1().Secrets(system).Get(ctx, "podlease-webhook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		delete(s.Data, key)
		s.Data[key] = []byte("spoilt")
		_, err = admin.CoreV1().Secrets(system).Update(ctx, s, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}

	It("loses none when the certificate and then the authority change", func(ctx SpecContext) {
		stream(ctx, func() {
			for _, key := range []string{"tls.key", "ca.key"} {
				before, err := served(ctx)
				Expect(err).NotTo(HaveOccurred())
				spoil(ctx, key)
				for _, c := range before {
					Eventually(served).WithArguments(ctx).ShouldNot(ContainElement(c))
				}
			}
		})
		Expect(webhookConfiguration(ctx).Annotations).To(HaveKey("podlease.io/ca-superseded"))
	})

	It("loses none when the certificate is somebody else's, and changes with its authority", func(ctx SpecContext) {
		ownCertificate(ctx)
		r := startReplica(ctx, "--config="+controllerConfig("secretName: podlease-webhook", "secretName: own-webhook", "external: false", "external: true"))
		for _, other := range replicas {
			if other != r && other.process.Ended() == nil {
				other.stop()
			}
		}
		stream(ctx, func() {
			for range 2 {
				wanted := ownCertificate(ctx)
				Eventually(func() ([]byte, error) { return servedBy(ctx, r) }).Should(Equal(wanted))
			}
		})
		startReplica(ctx)
		startReplica(ctx)
		r.stop()
	})

	It("loses none when a replica is replaced", func(ctx SpecContext) {
		stream(ctx, func() {
			for range 2 {
				startReplica(ctx)
				for _, r := range replicas {
					if r.process.Ended() == nil {
						r.stop()
						break
					}
				}
			}
			time.Sleep(time.Second) // the stream goes on for a while with the new ones
		})
	})
})

// ownCertificate fills a Secret as cert-manager does, with a new authority each time, and
// returns the server's certificate.
func ownCertificate(ctx context.Context) []byte {
	GinkgoHelper()
	chain, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	leaf, ca := pem.Decode(chain)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "own-webhook"}, Data: map[string][]byte{"tls.crt": chain, "tls.key": key, "ca.crt": ca}}
	_, err = admin.CoreV1().Secrets(system).Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = admin.CoreV1().Secrets(system).Update(ctx, s, metav1.UpdateOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
	return leaf.Bytes
}

// servedBy is the certificate that a replica shows.
func servedBy(ctx context.Context, r *replica) ([]byte, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	c, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", r.hook))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw, nil
}
