package podstatus_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/podlease/podlease/pkg/fencing/leasetoken"
	"github.com/podlease/podlease/pkg/podstatus"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const ttl = 2 * time.Second

// workload is a few Pods with their sidecars, run as programs.
type workload struct {
	*shop
	redis    []string
	sidecars map[string]*sidecartest.Sidecar
	args     map[string][]string // by Pod, to start its sidecar again
}

func newWorkload(ctx context.Context, flags ...string) *workload {
	GinkgoHelper()
	w := &workload{
		shop:     newShop(ctx),
		redis:    redistest.URLs(redistest.Cluster(GinkgoTB(), 3)),
		sidecars: map[string]*sidecartest.Sidecar{},
		args:     map[string][]string{},
	}
	for i := range 3 {
		w.add(ctx, fmt.Sprintf("orders-%d", i), flags...)
	}
	return w
}

func (w *workload) add(ctx context.Context, name string, flags ...string) {
	GinkgoHelper()
	pod := w.pod(ctx, name)
	info := GinkgoT().TempDir()
	writePodinfo(info, pod)
	background(func(ctx context.Context) { kubelet(ctx, pod, info) })
	w.args[name] = append([]string{
		"--ttl=" + ttl.String(), "--publish=kubernetes", "--kubeconfig=" + kubeconfig(w.token(ctx, pod)),
		"--pod-namespace=" + w.name, "--pod-name=" + name, "--pod-uid=" + string(pod.UID), "--podinfo-dir=" + info,
	}, flags...)
	w.start(name)
}

func (w *workload) start(name string) {
	GinkgoHelper()
	w.sidecars[name] = program.Start(GinkgoTB(), sidecartest.Options{Name: name, Lock: w.name + "/orders", Redis: w.redis, Args: w.args[name]})
}

// active waits until a candidate other than those is active and labelled so.
func (w *workload) active(ctx context.Context, not ...string) string {
	GinkgoHelper()
	var found string
	Eventually(func(g Gomega) {
		found = ""
		for name, s := range w.sidecars {
			l, err := s.Leadership(ctx)
			if err == nil && l.Active {
				found = name
			}
		}
		g.Expect(found).NotTo(BeElementOf(append(not, "")))
		g.Expect(w.role(ctx, found)).To(Equal("active"))
	}).WithContext(ctx).Should(Succeed())
	return found
}

// kubelet keeps the downward-API files of a Pod.
func kubelet(ctx context.Context, pod *corev1.Pod, dir string) {
	for ctx.Err() == nil {
		events, err := admin.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name})
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the API server is away; a kubelet tries again
			continue
		}
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				writePodinfo(dir, p)
			}
		}
	}
}

func writePodinfo(dir string, pod *corev1.Pod) {
	for name, values := range map[string]map[string]string{"annotations": pod.Annotations, "labels": pod.Labels} {
		var lines strings.Builder
		for k, v := range values {
			fmt.Fprintf(&lines, "%s=%q\n", k, v)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", []byte(lines.String()), 0o600); err == nil {
			_ = os.Rename(path+".new", path) // fails when the spec is over
		}
	}
}

func kubeconfig(token string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(path, fmt.Appendf(nil, `
current-context: shop
contexts: [{name: shop, context: {cluster: test, user: sidecar}}]
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: %s}}]
users: [{name: sidecar, user: {tokenFile: %s}}]
`, server.Addr(), server.CAFile(), tokenFile(token)), 0o600)).To(Succeed())
	return path
}

// witness watches a namespace and notes every moment at which two Pods are labelled active.
type witness struct {
	mu     sync.Mutex
	roles  map[string]string
	double []string
	turns  []string
}

func (s *shop) witness(ctx context.Context) *witness {
	GinkgoHelper()
	events, err := admin.CoreV1().Pods(s.name).Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	w := &witness{roles: map[string]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				w.see(pod)
			}
		}
	}()
	DeferCleanup(func() {
		events.Stop()
		<-done
	})
	return w
}

func (w *witness) see(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	role := pod.Labels[podstatus.DefaultRoleLabel]
	if role == "active" && w.roles[pod.Name] != role {
		w.turns = append(w.turns, pod.Name)
	}
	w.roles[pod.Name] = role
	var active []string
	for name, role := range w.roles {
		if role == "active" {
			active = append(active, name)
		}
	}
	if len(active) > 1 {
		w.double = append(w.double, fmt.Sprint(pod.ResourceVersion, active))
	}
}

func (w *witness) seen() (turns int, double []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.turns), w.double
}

var _ = Describe("Sidecars on a real API server and real Redis nodes", Serial, func() {
	var w *workload

	BeforeEach(func(ctx SpecContext) {
		w = newWorkload(ctx)
	}, NodeTimeout(patience))

	It("hand over at each new step-down annotation, with never two Pods labelled active", func(ctx SpecContext) {
		witness := w.witness(ctx)
		for i := range 3 {
			old := w.active(ctx)
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"podlease.io/step-down":"%d"}}}`, i)
			_, err := admin.CoreV1().Pods(w.name).Patch(ctx, old, types.MergePatchType, patch, metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			w.active(ctx, old)
			_, err = w.sidecars[old].Post(ctx, "/v1/resume")
			Expect(err).NotTo(HaveOccurred())
		}
		turns, double := witness.seen()
		Expect(turns).To(BeNumerically(">=", 3), "the watch saw no hand-overs")
		Expect(double).To(BeEmpty())
	}, SpecTimeout(2*patience))

	It("hand over on SIGTERM, with never two Pods labelled active", func(ctx SpecContext) {
		witness := w.witness(ctx)
		first := w.active(ctx)
		w.sidecars[first].Terminate()
		Expect(w.sidecars[first].ExitCode(ctx)).To(BeZero())
		Expect(w.role(ctx, first)).To(Equal("standby"))
		delete(w.sidecars, first)
		w.active(ctx, first)
		_, double := witness.seen()
		Expect(double).To(BeEmpty())
	}, SpecTimeout(patience))

	It("label standby first when they come back from a crash", func(ctx SpecContext) {
		witness := w.witness(ctx)
		old := w.active(ctx)
		w.sidecars[old].Crash()
		w.start(old)
		Eventually(w.role).WithArguments(ctx, old).Should(Equal("standby"))
		w.active(ctx)
		_, double := witness.seen()
		Expect(double).To(BeEmpty())
	}, SpecTimeout(patience))

	It("keep their term while the API server answers nothing, and label again after", func(ctx SpecContext) {
		old := w.active(ctx)
		term, err := w.sidecars[old].Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(server.FreezeAPI()).To(Succeed())
		DeferCleanup(server.ThawAPI)
		Consistently(func() (string, error) {
			l, err := w.sidecars[old].Leadership(ctx)
			return l.Term, err
		}).WithContext(ctx).WithTimeout(2 * ttl).Should(Equal(term.Term))

		_, err = w.sidecars[old].Post(ctx, "/v1/step-down?for=1h")
		Expect(err).NotTo(HaveOccurred())
		var now string
		Eventually(func() string {
			for name, s := range w.sidecars {
				if l, err := s.Leadership(ctx); err == nil && l.Active {
					now = name
				}
			}
			return now
		}).WithContext(ctx).ShouldNot(BeElementOf("", old))
		Expect(server.ThawAPI()).To(Succeed())
		Eventually(w.role).WithContext(ctx).WithArguments(ctx, old).Should(Equal("standby"))
		Eventually(w.role).WithContext(ctx).WithArguments(ctx, w.active(ctx)).Should(Equal("active"))
		Eventually(func() (float64, error) {
			in, _, err := w.sidecars[old].Metric(ctx, "podlease_label_in_sync")
			return in, err
		}).WithContext(ctx).Should(Equal(1.0))
	}, SpecTimeout(2*patience))

	It("take no part while an annotation pauses them", func(ctx SpecContext) {
		old := w.active(ctx)
		pause := func(value string) {
			GinkgoHelper()
			patch := []byte(`{"metadata":{"annotations":{"podlease.io/paused":` + value + `}}}`)
			_, err := admin.CoreV1().Pods(w.name).Patch(ctx, old, types.MergePatchType, patch, metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		reason := func() (string, error) {
			l, err := w.sidecars[old].Leadership(ctx)
			return l.Reason, err
		}
		pause(`"true"`)
		Eventually(reason).WithContext(ctx).Should(Equal("paused"))
		w.active(ctx, old)
		pause("null")
		Eventually(reason).WithContext(ctx).ShouldNot(Equal("paused"))
	}, SpecTimeout(patience))
})

var _ = Describe("Fencing tokens from a Lease object", func() {
	It("grow with every term, and need the API server only to begin one", Serial, func(ctx SpecContext) {
		w := newWorkload(ctx, "--fencing=kubernetes")
		Consistently(func(g Gomega) { // without the right to count nobody is active
			for _, s := range w.sidecars {
				l, err := s.Leadership(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(l.Active).To(BeFalse())
			}
		}).WithContext(ctx).WithTimeout(ttl).Should(Succeed())
		w.bindLeases(ctx)
		var last uint64
		for range 3 {
			name := w.active(ctx)
			l, err := w.sidecars[name].Leadership(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(l.FencingToken).To(BeNumerically(">", last))
			last = l.FencingToken
			lease, err := admin.CoordinationV1().Leases(w.name).Get(ctx, leasetoken.LeaseName(w.name+"/orders"), metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(lease.Annotations).To(HaveKeyWithValue("podlease.io/fencing-token", strconv.FormatUint(last, 10)))
			Expect(*lease.Spec.HolderIdentity).To(Equal(name))
			_, err = w.sidecars[name].Post(ctx, "/v1/step-down?for=1s")
			Expect(err).NotTo(HaveOccurred())
			w.active(ctx, name)
		}
		name := w.active(ctx)
		before, err := w.sidecars[name].Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(server.FreezeAPI()).To(Succeed())
		DeferCleanup(server.ThawAPI)
		Consistently(func() (string, error) {
			l, err := w.sidecars[name].Leadership(ctx)
			return l.Term, err
		}).WithContext(ctx).WithTimeout(2 * ttl).Should(Equal(before.Term))
		Expect(server.ThawAPI()).To(Succeed())
	}, SpecTimeout(2*patience))

	It("are never given twice", func(ctx SpecContext) {
		s := newShop(ctx)
		s.bindLeases(ctx)
		api := direct(tokenFile(s.token(ctx, s.pod(ctx, "orders-1"))))
		tokens := make(chan uint64, 100)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				defer GinkgoRecover()
				source, err := leasetoken.New(leasetoken.Config{API: api, Namespace: s.name, Lock: "orders"})
				Expect(err).NotTo(HaveOccurred())
				var last uint64
				for range 20 {
					var token uint64
					Eventually(func() (err error) { // a try that gets no answer in time is repeated
						token, err = source.Next(ctx)
						return err
					}).WithContext(ctx).Should(Succeed())
					Expect(token).To(BeNumerically(">", last))
					last = token
					tokens <- token
				}
			})
		}
		all.Wait()
		close(tokens)
		seen := map[uint64]bool{}
		for token := range tokens {
			Expect(seen).NotTo(HaveKey(token))
			seen[token] = true
		}
		Expect(seen).To(HaveLen(100))
	}, SpecTimeout(patience))
})
