package admission_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// benchPods is how many Pods the measurement makes; $BENCH_PODS says otherwise.
func benchPods() int {
	if n, err := strconv.Atoi(os.Getenv("BENCH_PODS")); err == nil {
		return n
	}
	return 200
}

var bucket = regexp.MustCompile(`^(\S+)_bucket\{(.*)le="([^"]+)"\} (\S+)$`)

// quantile reads the upper bound of the bucket that has the quantile, of the histograms
// in text that match.
func quantile(text, name, labels string, q float64) string {
	counts, order := map[string]float64{}, []string{}
	for line := range strings.Lines(text) {
		m := bucket.FindStringSubmatch(strings.TrimSpace(line))
		if len(m) == 0 || m[1] != name || !strings.Contains(m[2], labels) {
			continue
		}
		n, _ := strconv.ParseFloat(m[4], 64)
		if _, seen := counts[m[3]]; !seen {
			order = append(order, m[3])
		}
		counts[m[3]] += n
	}
	for _, le := range order {
		if counts[le] >= q*counts["+Inf"] {
			return le
		}
	}
	return "none"
}

func residentKiB(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func apiMetrics(ctx context.Context) string {
	GinkgoHelper()
	raw, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// Figures, not a verdict: the machine decides.
var _ = Describe("Measured", Serial, Label("bench"), func() {
	It("how long an admission takes", func(ctx SpecContext) {
		ns := namespace(ctx)
		for n := range benchPods() {
			admitted(ctx, ns, pod("lock", fmt.Sprintf("%s/app-%d", ns, n/3)))
		}
		var own strings.Builder
		for _, r := range replicas {
			if r.process.Ended() != nil {
				continue
			}
			text, err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/metrics", r.metrics))
			Expect(err).NotTo(HaveOccurred())
			own.WriteString(text)
			AddReportEntry("peak resident memory", residentKiB(r.process.PID()), ReportEntryVisibilityAlways)
		}
		AddReportEntry("figures", fmt.Sprintf("%d Pods; own histogram: p50 <= %s s, p99 <= %s s; the API server's: p50 <= %s s, p99 <= %s s", benchPods(),
			quantile(own.String(), "podlease_admission_duration_seconds", "", .5), quantile(own.String(), "podlease_admission_duration_seconds", "", .99),
			quantile(apiMetrics(ctx), "apiserver_admission_webhook_admission_duration_seconds", `name="inject.podlease.io"`, .5),
			quantile(apiMetrics(ctx), "apiserver_admission_webhook_admission_duration_seconds", `name="inject.podlease.io"`, .99)), ReportEntryVisibilityAlways)
	})
})
