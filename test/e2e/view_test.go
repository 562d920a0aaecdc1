package e2e_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/recorder"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// askInterval is the time between two questions to a sidecar.
const askInterval = 10 * time.Millisecond

// workload is a Deployment or the like of the sample's app, whose Pods have the label
// app and whose Service, of the same name, selects the role.
type workload struct{ namespace, name string }

// orders is the sample's.
var orders = workload{namespace, "orders"}

func (w workload) String() string { return w.namespace + "/" + w.name }

func (w workload) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "app=" + w.name}
}

// pods are the workload's, those that end included.
func (w workload) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(w.namespace).List(ctx, w.selector())
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// view is all that can be seen of a workload from outside, while one spec runs: what
// the sidecars say, what the labels say, and what clients of the Service get.
type view struct {
	*recorder.Recorder
	of     workload
	labels *labels
	prober *prober

	mu   sync.Mutex
	pods map[string]*corev1.Pod // those with an address, also when gone
}

// look waits until the sample is whole and begins to watch it.
func look(ctx context.Context) *view {
	GinkgoHelper()
	whole(ctx)
	return orders.watch(ctx)
}

// watch begins to watch a workload, whatever state it is in.
func (w workload) watch(ctx context.Context) *view {
	GinkgoHelper()
	v := &view{Recorder: recorder.Start(askInterval), of: w, pods: map[string]*corev1.Pod{}}
	v.labels = &labels{of: w, roles: map[string]string{}, onPod: v.meet}
	service, err := client.CoreV1().Services(w.namespace).Get(ctx, w.name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	v.prober = newProber("http://" + service.Spec.ClusterIP)

	watching, stop := context.WithCancel(context.Background())
	var watchers sync.WaitGroup
	watchers.Go(func() { v.labels.run(watching) })
	watchers.Go(func() { v.prober.run(watching) })
	DeferCleanup(func() {
		v.Stop()
		stop()
		watchers.Wait()
	})
	return v
}

// whole waits until all Pods of the sample are there and able, Redis nodes up for
// longer than the quarantine among them, and one Pod bears the label.
func whole(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		redis, err := client.AppsV1().StatefulSets(namespace).Get(ctx, "redis", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(redis.Status.AvailableReplicas).To(Equal(*redis.Spec.Replicas), "Redis nodes available for as long as the quarantine")
		g.Expect(redis.Status.UpdatedReplicas).To(Equal(*redis.Spec.Replicas))
		app, err := client.AppsV1().Deployments(namespace).Get(ctx, "orders", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(app.Status.AvailableReplicas).To(Equal(*app.Spec.Replicas))
		pods, err := orders.pods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(int(*app.Spec.Replicas)))
		g.Expect(holders(pods)).To(HaveLen(1))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(500 * time.Millisecond).Should(Succeed())
}

func holders(pods []corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		if pod.Labels[roleLabel] == "active" {
			names = append(names, pod.Name)
		}
	}
	return names
}

// meet begins to ask a Pod's sidecar when it is first seen with an address.
func (v *view) meet(pod *corev1.Pod, gone bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.pods[pod.Name]
	same := known && before.UID == pod.UID
	switch {
	case gone && same:
		v.Unwatch(pod.Name)
	case !gone && !same: // new, or a StatefulSet's that takes the place of another
		if known {
			v.Unwatch(pod.Name)
		}
		v.pods[pod.Name] = pod
		v.WatchThrough(pod.Name, sidecarOf(pod))
	}
}

// sidecarOf dials a Pod's sidecar from inside the Pod's node.
func sidecarOf(pod *corev1.Pod) recorder.Dial {
	return dialIn(cluster.network(pod.Spec.NodeName), net.JoinHostPort(pod.Status.PodIP, "8484"))
}

func (v *view) pod(name string) *corev1.Pod {
	GinkgoHelper()
	v.mu.Lock()
	defer v.mu.Unlock()
	Expect(v.pods).To(HaveKey(name))
	return v.pods[name]
}

// active waits until a sidecar other than those named says that it is active.
func (v *view) active(ctx context.Context, but ...string) recorder.Run {
	GinkgoHelper()
	run, err := v.Wait(ctx, func(r recorder.Run) bool { return !slices.Contains(but, r.Who) })
	Expect(err).NotTo(HaveOccurred())
	return run
}

// after waits for the term that follows a run's, whoever has it.
func (v *view) after(ctx context.Context, run recorder.Run) recorder.Run {
	GinkgoHelper()
	next, err := v.Wait(ctx, func(r recorder.Run) bool { return r.Token > run.Token })
	Expect(err).NotTo(HaveOccurred())
	return next
}

// last is the end of a run's term, as far as was seen: a silence in between makes two
// runs of one term.
func (v *view) last(run recorder.Run) recorder.Run {
	for _, r := range v.Runs() {
		if r.Who == run.Who && r.Token == run.Token {
			run = r
		}
	}
	return run
}

// expectExclusion fails if any answers prove two active sidecars at one instant, or a
// fencing token that did not grow.
func (v *view) expectExclusion() {
	GinkgoHelper()
	report("watched", "%s", v.Effort())
	Expect(recorder.Overlaps(v.Runs())).To(BeEmpty(), "two active sidecars at one instant")
	Expect(recorder.Regressions(v.Runs())).To(BeEmpty(), "a later term without a greater token")
}

// expectOneLabel fails if the watch ever showed two Pods labelled active.
func (v *view) expectOneLabel() {
	GinkgoHelper()
	Expect(v.labels.twice()).To(BeEmpty(), "two Pods labelled active in one watch")
	Expect(v.labels.wrong()).To(BeEmpty(), "Pods without one of the two roles")
}

// expectSameTerm fails if any answer since the run began was of another term.
func (v *view) expectSameTerm(run recorder.Run) {
	GinkgoHelper()
	for _, r := range v.Runs() {
		Expect(r).To(And(HaveField("Who", run.Who), HaveField("Token", run.Token)), "the term was lost")
	}
	Expect(v.Active()).To(HaveLen(1), "nobody is active")
}

// endpoints are the addresses the Service's EndpointSlices hold ready.
func (w workload) endpoints(ctx context.Context) ([]string, error) {
	slices, err := client.DiscoveryV1().EndpointSlices(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + w.name})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	return ready, nil
}

// agreed waits until label and EndpointSlice name the holder alone.
func (v *view) agreed(ctx context.Context, run recorder.Run) {
	GinkgoHelper()
	Eventually(v.labels.holders).WithContext(ctx).WithPolling(5 * time.Millisecond).Should(ConsistOf(run.Who))
	Eventually(ctx, v.of.endpoints).WithPolling(20 * time.Millisecond).Should(ConsistOf(v.pod(run.Who).Status.PodIP))
}

// sees waits until the watch has shown a role on a Pod since a time, and tells when.
func (v *view) sees(ctx context.Context, pod, role string, from time.Duration) (at time.Duration) {
	GinkgoHelper()
	Eventually(func() (ok bool) {
		at, ok = v.labels.shown(pod, role, from)
		return ok
	}).WithContext(ctx).WithTimeout(patience).WithPolling(5 * time.Millisecond).Should(BeTrue())
	return at
}

// followed is agreed after the role moved, and reports how long that took.
func (v *view) followed(ctx context.Context, run recorder.Run) {
	GinkgoHelper()
	v.agreed(ctx, run)
	both := boottime.Now()
	labelled, _ := v.labels.since(run.Who, "active")
	report("label after the sidecar's first 200", "%v", (labelled - run.First.Received).Round(time.Millisecond))
	report("EndpointSlice after the sidecar's first 200", "%v", (both - run.First.Received).Round(time.Millisecond))
}

const (
	// settled is how long after the role moved new connections may still reach others.
	settled = 2 * time.Second
	// observed is how long new connections are watched after that.
	observed = 3 * time.Second
)

// expectService judges the new connections around a change of roles: from two seconds
// after it, they reach nobody but the holder. Those that got no reply are reported.
func (v *view) expectService(from time.Duration, run recorder.Run) {
	GinkgoHelper()
	after := run.First.Received + settled
	Eventually(boottime.Now).WithTimeout(settled + observed + time.Second).WithPolling(100 * time.Millisecond).
		Should(BeNumerically(">", after+observed))
	report("new connections until 2 s after the role moved", "%v", count(v.prober.between(from, after)))
	then := count(v.prober.between(after, after+observed))
	report("new connections after that", "%v", then)
	Expect(then.From).To(HaveLen(1), "%v", then)
	Expect(then.From).To(HaveKey(run.Who), "new connections that reached others")
	Expect(then.Inactive).To(BeZero())
}

// expectOnlyHolder fails if, since a time, a new connection reached anybody else, or a
// holder that was not active. Those that got no reply are reported.
func (v *view) expectOnlyHolder(since time.Duration, run recorder.Run) {
	GinkgoHelper()
	got := count(v.prober.between(since, boottime.Now()))
	report("new connections meanwhile", "%v", got)
	Expect(got.From).To(Equal(map[string]int{run.Who: got.All - got.Refused}), "new connections that reached others")
	Expect(got.Inactive).To(BeZero())
}

// moved does something that moves the role, waits until it has and judges what was
// seen meanwhile.
func (v *view) moved(ctx context.Context, what string, act func()) (from, to recorder.Run) {
	GinkgoHelper()
	from = v.active(ctx)
	start := boottime.Now()
	act()
	to = v.active(ctx, from.Who)
	report("next active after "+what, "%v", (to.First.Received - start).Round(time.Millisecond))
	v.followed(ctx, to)
	v.expectService(start, to)
	return v.last(from), to
}

// state is what people see.
func (w workload) state(ctx context.Context) string {
	lines := strings.Split(kubectl(ctx, "-n", w.namespace, "get", "pods", "-l", "app="+w.name, "-L", roleLabel), "\n")
	return "\n  " + strings.Join(lines, "\n  ")
}
