package podstatus_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/podstatus"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const deletionCost = "controller.kubernetes.io/pod-deletion-cost"

var _ = Describe("The own Pod", func() {
	var (
		s   *shop
		pod *corev1.Pod
	)

	BeforeEach(func(ctx SpecContext) {
		s = newShop(ctx)
		pod = s.pod(ctx, "orders-1")
	})

	condition := func(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
		for _, c := range p.Status.Conditions {
			if c.Type == kind {
				return c.Status
			}
		}
		return ""
	}

	It("tells the role in label, annotations, condition and deletion cost, and keeps the rest", func(ctx SpecContext) {
		pub, c := publish(direct(tokenFile(s.token(ctx, pod))), named(pod))
		Expect(pub.Sync(ctx)).To(Succeed())
		for range 2 {
			got := s.get(ctx, pod.Name)
			Expect(got.Labels).To(Equal(map[string]string{"app": "orders", "podlease.io/role": "standby"}))
			Expect(got.Annotations).To(Equal(map[string]string{"example.com/note": "kept"}))
			Expect(condition(got, "podlease.io/active")).To(Equal(corev1.ConditionFalse))

			c.elect(1764495600123456)
			Expect(pub.Sync(ctx)).To(Succeed())
			got = s.get(ctx, pod.Name)
			Expect(got.Labels).To(HaveKeyWithValue("podlease.io/role", "active"))
			Expect(got.Annotations).To(And(
				HaveKeyWithValue("podlease.io/fencing-token", "1764495600123456"),
				HaveKeyWithValue("podlease.io/active-since", c.Leadership().Since.UTC().Format("2006-01-02T15:04:05.000Z")),
				HaveKeyWithValue(deletionCost, "2147483647"),
				HaveKeyWithValue("example.com/note", "kept")))
			Expect(condition(got, "podlease.io/active")).To(Equal(corev1.ConditionTrue))
			Expect(condition(got, corev1.PodScheduled)).To(Equal(corev1.ConditionTrue))
			Expect(condition(got, corev1.PodReady)).To(Equal(corev1.ConditionFalse))
			Expect(got.Status.Phase).To(Equal(corev1.PodRunning))

			c.lose()
			Expect(pub.Sync(ctx)).To(Succeed())
		}
		Expect(pub.Failures()).To(BeZero())
	}, SpecTimeout(patience))

	It("keeps the deletion cost of the template", func(ctx SpecContext) {
		pod = s.pod(ctx, "orders-2", func(p *corev1.Pod) { p.Annotations[deletionCost] = "7" })
		pub, c := publish(direct(tokenFile(s.token(ctx, pod))), named(pod))
		c.elect(1)
		Expect(pub.Sync(ctx)).To(Succeed())
		c.lose()
		Expect(pub.Sync(ctx)).To(Succeed())
		Expect(s.get(ctx, pod.Name).Annotations).To(HaveKeyWithValue(deletionCost, "7"))
	}, SpecTimeout(patience))

	It("is all that the shipped rights change", func(ctx SpecContext) {
		api := direct(tokenFile(s.token(ctx, pod)))
		path := []string{"api", "v1", "namespaces", s.name, "pods", pod.Name}
		image := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "example.com/evil"}}}}
		Expect(api.Do(ctx, apiserver.Request{Method: http.MethodPatch, Path: append(path, "status"), ContentType: apiserver.StrategicMergePatch, Body: image}, nil)).To(Succeed())
		Expect(s.get(ctx, pod.Name).Spec.Containers[0].Image).To(Equal("example.com/app:1"))
		for _, r := range []apiserver.Request{
			{Method: http.MethodGet, Path: path},
			{Method: http.MethodGet, Path: append(path, "status")},
			{Method: http.MethodGet, Path: path[:5]},
			{Method: http.MethodDelete, Path: path},
			{Method: http.MethodPatch, Path: path, ContentType: apiserver.StrategicMergePatch, Body: image},
			{Method: http.MethodGet, Path: []string{"api", "v1", "namespaces", s.name, "events"}},
		} {
			Expect(api.Do(ctx, r, nil)).To(MatchError(HavePrefix("the API server answered 403 ")), "%s %v", r.Method, r.Path)
		}
	}, SpecTimeout(patience))

	It("is published once its right is there", func(ctx SpecContext) {
		s.unbind(ctx)
		pub, _ := publish(direct(tokenFile(s.token(ctx, pod))), named(pod))
		Eventually(pub.Failures).Should(BeNumerically(">=", 2))
		Expect(pub.InSync()).To(BeFalse())
		s.bind(ctx)
		Expect(pub.Sync(ctx)).To(Succeed())
	}, SpecTimeout(2*patience))

	It("is left alone when it is another of the same name", func(ctx SpecContext) {
		again := s.replace(ctx, pod)
		pub, c := publish(direct(tokenFile(s.token(ctx, again))), named(pod))
		c.elect(1)
		Expect(pub.Sync(ctx)).To(MatchError(podstatus.ErrPodGone))
		Expect(s.role(ctx, again.Name)).To(BeEmpty())
	}, SpecTimeout(patience))

	It("is given up with the token that was bound to it", func(ctx SpecContext) {
		api := direct(tokenFile(s.token(ctx, pod)))
		pub, c := publish(api, named(pod))
		Expect(pub.Sync(ctx)).To(Succeed())
		again := s.replace(ctx, pod)
		c.elect(1)
		Eventually(pub.Failures).Should(BeNumerically(">=", 1))
		Expect(pub.InSync()).To(BeFalse())
		Expect(s.role(ctx, again.Name)).To(BeEmpty())
	}, SpecTimeout(patience))

	It("is given up when it was deleted", func(ctx SpecContext) {
		other := s.pod(ctx, "orders-2")
		s.remove(ctx, pod)
		pub, _ := publish(direct(tokenFile(s.token(ctx, other))), named(pod))
		Expect(pub.Sync(ctx)).To(MatchError(podstatus.ErrPodGone))
	}, SpecTimeout(patience))

	It("is put right when somebody else changes the label", func(ctx SpecContext) {
		pub, c := publish(direct(tokenFile(s.token(ctx, pod))), named(pod))
		Expect(pub.Sync(ctx)).To(Succeed())
		dir := GinkgoT().TempDir()
		kubelet := func(role string) {
			GinkgoHelper()
			Expect(os.WriteFile(filepath.Join(dir, "annotations"), nil, 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, "labels"), []byte("app=\"orders\"\npodlease.io/role=\""+role+"\"\n"), 0o600)).To(Succeed())
		}
		kubelet("standby")
		watch := &podstatus.Watch{Dir: dir, Log: logr.Discard(), OnChange: func(p podstatus.Podinfo) { pub.Observe(p.Labels) }}
		Expect(watch.Read()).To(Succeed())
		background(watch.Run)
		for range 2 {
			s.relabel(ctx, pod.Name, "king")
			kubelet("king")
			Eventually(s.role).WithArguments(ctx, pod.Name).Should(Equal(string(c.Leadership().Role)))
			kubelet(string(c.Leadership().Role))
			c.elect(1)
			Expect(pub.Sync(ctx)).To(Succeed())
		}
	}, SpecTimeout(patience))

	DescribeTable("is right soon after a fault of the API server", func(ctx SpecContext, fault http.HandlerFunc) {
		p := newProxy()
		pub, c := publish(connect(p.url, p.ca, tokenFile(s.token(ctx, pod))), named(pod))
		Expect(pub.Sync(ctx)).To(Succeed())
		p.fail(fault)
		c.elect(1)
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		Expect(pub.Sync(bounded)).To(MatchError(context.DeadlineExceeded))
		Eventually(p.count).Should(BeNumerically(">=", 2), "tries")
		Expect(pub.InSync()).To(BeFalse())
		Expect(s.role(ctx, pod.Name)).To(Equal("standby"))
		p.fail(nil)
		Expect(pub.Sync(ctx)).To(Succeed())
		Expect(s.role(ctx, pod.Name)).To(Equal("active"))
		Expect(pub.Failures()).NotTo(BeZero())
	},
		Entry("that never answers", http.HandlerFunc(hang), SpecTimeout(patience)),
		Entry("401", answering(http.StatusUnauthorized), SpecTimeout(patience)),
		Entry("404 of something before it", answering(http.StatusNotFound), SpecTimeout(patience)),
		Entry("409", answering(http.StatusConflict), SpecTimeout(patience)),
		Entry("429", answering(http.StatusTooManyRequests), SpecTimeout(patience)),
		Entry("500", answering(http.StatusInternalServerError), SpecTimeout(patience)),
		Entry("503", answering(http.StatusServiceUnavailable), SpecTimeout(patience)))

	It("is labelled once an expired token was replaced", func(ctx SpecContext) {
		file := tokenFile(s.expiredToken(ctx, pod))
		pub, _ := publish(direct(file), named(pod))
		Eventually(pub.Failures).Should(BeNumerically(">=", 2))
		Expect(s.role(ctx, pod.Name)).To(BeEmpty())
		Expect(os.WriteFile(file, []byte(s.token(ctx, pod)), 0o600)).To(Succeed())
		Expect(pub.Sync(ctx)).To(Succeed())
		Expect(s.role(ctx, pod.Name)).To(Equal("standby"))
	}, SpecTimeout(patience))

	It("gets events that people see", func(ctx SpecContext) {
		r, err := podstatus.NewRecorder(direct(tokenFile(s.token(ctx, pod))), named(pod), logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		background(r.Run)
		list := func() []corev1.Event {
			events, err := admin.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
			Expect(err).NotTo(HaveOccurred())
			return events.Items
		}
		r.Record(election.Event{Kind: election.LeaderElected, Message: "active, fencing token 7"})
		Eventually(list).Should(ConsistOf(And(
			HaveField("Reason", "LeaderElected"), HaveField("Message", "active, fencing token 7"),
			HaveField("Type", "Normal"), HaveField("Source.Component", "podlease"),
			HaveField("InvolvedObject.Name", pod.Name), HaveField("Count", int32(1)))))
		r.Record(election.Event{Kind: election.LeaderElected, Message: "active, fencing token 7"})
		Eventually(list).Should(ConsistOf(HaveField("Count", int32(2))))
		r.Record(election.Event{Kind: election.RedisQuorumLost, Message: "1 of 3 nodes answered"})
		Eventually(list).Should(ContainElement(And(HaveField("Reason", "RedisQuorumLost"), HaveField("Type", "Warning"))))
		r.Record(election.Event{Kind: election.RedisQuorumRegained, Message: "2 of 3 nodes answered"})
		Eventually(list).Should(ContainElement(And(HaveField("Reason", "RedisQuorumRegained"), HaveField("Type", "Normal"))))
	}, SpecTimeout(patience))
})

var _ = Describe("The API server", Serial, func() {
	var (
		s   *shop
		pod *corev1.Pod
		pub *podstatus.Publisher
		c   *candidate
	)

	BeforeEach(func(ctx SpecContext) {
		s = newShop(ctx)
		pod = s.pod(ctx, "orders-1")
		pub, c = publish(direct(tokenFile(s.token(ctx, pod))), named(pod))
		Expect(pub.Sync(ctx)).To(Succeed())
	}, NodeTimeout(patience))

	It("may be away: the label is right soon after its return", func(ctx SpecContext) {
		Expect(server.StopAPI()).To(Succeed())
		c.elect(1)
		Eventually(pub.Failures).Should(BeNumerically(">=", 3))
		Expect(server.StartAPI(ctx)).To(Succeed())
		back := time.Now()
		Expect(pub.Sync(ctx)).To(Succeed())
		AddReportEntry("label right after the return", time.Since(back).String())
		Expect(s.role(ctx, pod.Name)).To(Equal("active"))
	}, SpecTimeout(2*patience))

	It("may be frozen: nothing waits longer than it wants to, and the last word holds", func(ctx SpecContext) {
		Expect(server.FreezeAPI()).To(Succeed())
		DeferCleanup(server.ThawAPI)
		c.elect(1)
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		Expect(pub.Sync(bounded)).To(MatchError(context.DeadlineExceeded))
		Eventually(pub.Failures).Should(BeNumerically(">=", 1))
		c.lose() // the server holds requests that say active
		Eventually(pub.Failures).Should(BeNumerically(">=", 2))
		Expect(server.ThawAPI()).To(Succeed())
		Expect(pub.Sync(ctx)).To(Succeed())
		// Requests that it held may yet come through, and are overwritten.
		Eventually(s.role).WithContext(ctx).WithArguments(ctx, pod.Name).MustPassRepeatedly(100).Should(Equal("standby"))
	}, SpecTimeout(patience))
})
