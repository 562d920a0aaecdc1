package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// pair starts one candidate that is active and one that stands by.
func pair(ctx SpecContext, servers []*redistest.Server, args ...string) (active, standby *sidecartest.Sidecar) {
	GinkgoHelper()
	args = append([]string{"--ttl=3s"}, args...)
	active = sidecar("active", servers, args...)
	expectActive(ctx, active)
	standby = sidecar("standby", servers, args...)
	expectStandby(ctx, standby, "held by active")
	return active, standby
}

func expectStandby(ctx SpecContext, c *sidecartest.Sidecar, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		doc, err := c.Leadership(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(doc.Role).To(Equal("standby"))
		g.Expect(doc.Reason).To(HavePrefix(reason))
	}).WithContext(ctx).Should(Succeed())
}

func status(ctx context.Context, c *sidecartest.Sidecar, path string) int {
	GinkgoHelper()
	response, err := c.Get(ctx, path)
	Expect(err).NotTo(HaveOccurred())
	return response.Status
}

var _ = Describe("The read-only endpoints", func() {
	It("answer for the active candidate and for a standby", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		for path, want := range map[string][2]int{
			"/leader": {200, 503}, "/active": {200, 503}, "/standby": {503, 200},
			"/readyz": {200, 200}, "/livez": {200, 200}, "/v1/leadership": {200, 200}, "/metrics": {200, 200}, "/": {200, 200},
			"/nothing": {404, 404},
		} {
			Expect(status(ctx, active, path)).To(Equal(want[0]), "active "+path)
			Expect(status(ctx, standby, path)).To(Equal(want[1]), "standby "+path)
		}
		for _, c := range []*sidecartest.Sidecar{active, standby} {
			response, err := c.Get(ctx, "/")
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body).To(MatchJSON(`{"name":"active"}`))
		}
	}, SpecTimeout(behaviour.Patience))

	It("give the whole document", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		before := time.Now()
		doc, err := active.Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(doc.Lock).To(Equal("orders"))
		Expect(doc.Identity).To(Equal("active"))
		Expect(doc.Role).To(Equal("active"))
		Expect(doc.Active).To(BeTrue())
		Expect(doc.FencingToken).To(And(BeNumerically(">", 0), BeNumerically("<", uint64(1)<<53)))
		Expect(doc.Term).NotTo(BeEmpty())
		Expect(doc.ValidForMs).To(And(BeNumerically(">", 0), BeNumerically("<=", 3000-30-750)))
		Expect(doc.Quorum.Size).To(Equal(3))
		Expect(doc.Quorum.Needed).To(Equal(2))
		Expect(doc.AsOf).To(BeTemporally("~", before, time.Minute))
		Expect(doc.Since).To(BeTemporally("<=", doc.AsOf))
		Expect(doc.Reason).To(BeEmpty())

		doc, err = standby.Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(doc.ValidForMs).To(BeZero())
		Expect(doc.FencingToken).To(BeZero())
		Expect(doc.Holder).To(Equal("active"))

		response, err := active.Get(ctx, "/leader")
		Expect(err).NotTo(HaveOccurred())
		var leader sidecartest.Leadership
		Expect(json.Unmarshal([]byte(response.Body), &leader)).To(Succeed())
		Expect(response.Header.Get("Podlease-Fencing-Token")).To(Equal(strconv.FormatUint(leader.FencingToken, 10)))
		response, err = standby.Get(ctx, "/leader")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Header).NotTo(HaveKey("Podlease-Fencing-Token"))
	}, SpecTimeout(behaviour.Patience))

	It("allow GET and HEAD only", func(ctx SpecContext) {
		active := sidecar("active", nodes(1))
		expectActive(ctx, active)
		for method, want := range map[string]int{
			http.MethodHead: 200, http.MethodPost: 405, http.MethodPut: 405, http.MethodDelete: 405, http.MethodOptions: 405,
		} {
			response, err := active.Do(ctx, method, active.Addr, "/leader")
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Status).To(Equal(want), method)
		}
	}, SpecTimeout(behaviour.Patience))

	It("have no control verbs", func(ctx SpecContext) {
		active := sidecar("active", nodes(1))
		expectActive(ctx, active)
		response, err := active.Do(ctx, http.MethodPost, active.Addr, "/v1/step-down")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Status).To(BeNumerically(">=", 400))
		expectActive(ctx, active)
	}, SpecTimeout(behaviour.Patience))

	It("tell each change as a server-sent event, and that they live in between", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		events := listen(ctx, standby)
		Expect(next(ctx, events).Active).To(BeFalse())
		active.Terminate()
		Eventually(func() bool { return next(ctx, events).Active }).WithContext(ctx).Should(BeTrue())
		Eventually(func() string { return (<-events).comment }).WithContext(ctx).ShouldNot(BeEmpty())
	}, SpecTimeout(behaviour.Patience))

	It("let one wait until it is active", func(ctx SpecContext) {
		active, standby := pair(ctx, nodes(3))
		response, err := standby.Get(ctx, "/v1/leadership?wait=active&timeout=200ms")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Status).To(Equal(http.StatusGatewayTimeout))
		Expect(status(ctx, active, "/v1/leadership?wait=active&timeout=200ms")).To(Equal(http.StatusOK))

		done := make(chan sidecartest.Response, 1)
		go func() {
			defer GinkgoRecover()
			response, err := standby.Get(ctx, "/v1/leadership?wait=active&timeout=15s")
			Expect(err).NotTo(HaveOccurred())
			done <- response
		}()
		active.Terminate()
		Eventually(done).WithContext(ctx).Should(Receive(And(
			HaveField("Status", http.StatusOK), HaveField("Body", ContainSubstring(`"role":"active"`)))))
	}, SpecTimeout(behaviour.Patience))

	It("measure what the documentation lists", func(ctx SpecContext) {
		servers := nodes(3)
		active := sidecar("active", servers, "--ttl=1s")
		Expect(metric(ctx, active, "podlease_is_active", `lock="orders"`)).To(BeNumerically(">=", 0))
		expectActive(ctx, active)
		expectVotes(ctx, active, 3)
		for name, want := range map[string]float64{
			"podlease_is_active": 1, "podlease_node_up": 3, "podlease_node_fit": 3, "podlease_node_mature": 3, "podlease_node_held": 3,
		} {
			Expect(metric(ctx, active, name)).To(Equal(want), name)
		}
		for _, name := range []string{
			"podlease_transitions_total", "podlease_acquire_attempts_total", "podlease_acquire_duration_seconds_count", "podlease_renew_duration_seconds_count",
			"podlease_valid_seconds", "podlease_last_renew_timestamp_seconds", "podlease_fencing_token", "podlease_node_latency_seconds",
			"podlease_build_info",
		} {
			Eventually(func() float64 { return metric(ctx, active, name) }).WithContext(ctx).Should(BeNumerically(">", 0), name)
		}
		Expect(metric(ctx, active, "podlease_pauses_detected_total")).To(BeZero())
		servers[0].Kill()
		Eventually(func() float64 { return metric(ctx, active, "podlease_node_up") }).WithContext(ctx).Should(Equal(2.0))
	}, SpecTimeout(behaviour.Patience))
})

func metric(ctx context.Context, c *sidecartest.Sidecar, name string, labels ...string) float64 {
	GinkgoHelper()
	value, found, err := c.Metric(ctx, name, labels...)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue(), "no metric "+name)
	return value
}

// event is one of a stream: a document or a comment.
type event struct {
	doc     *sidecartest.Leadership
	comment string
}

// listen follows the stream of a candidate until the spec ends.
func listen(ctx context.Context, c *sidecartest.Sidecar) <-chan event {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Addr+"/v1/leadership?watch=true", nil)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(response.Body.Close)
	Expect(response.Header.Get("Content-Type")).To(HavePrefix("text/event-stream"))
	events := make(chan event)
	go func() {
		defer close(events)
		name := ""
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			var e event
			switch field {
			case "":
				if lines.Text() == "" {
					continue
				}
				e.comment = lines.Text()
			case "event":
				name = value
				continue
			case "data":
				if name != "leadership" || json.Unmarshal([]byte(value), &e.doc) != nil {
					return
				}
			default:
				continue
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// next is the next document of a stream.
func next(ctx context.Context, events <-chan event) sidecartest.Leadership {
	GinkgoHelper()
	for {
		select {
		case e, open := <-events:
			Expect(open).To(BeTrue(), "the stream ended")
			if e.doc != nil {
				return *e.doc
			}
		case <-ctx.Done():
			Fail("no event: " + ctx.Err().Error())
		}
	}
}
