package statusapi

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/podlease/podlease/pkg/election"
)

// Observer is told how long things took. *Metrics is one.
type Observer interface {
	// ObserveAcquire is told of each attempt that took the lease.
	ObserveAcquire(d time.Duration)
	// ObserveRenew is told of each renewal that a quorum confirmed.
	ObserveRenew(d time.Duration)
	// ObserveDemotion is told, once per term, how long its end took, from no longer
	// being active to the release or the decision against it.
	ObserveDemotion(d time.Duration)
}

// MetricsSource is what metrics are read from. *election.Candidate is one.
type MetricsSource interface {
	Leadership() election.Leadership
	Nodes() []election.NodeState
	Stats() election.Stats
}

// LabelStatus tells how publishing the role goes.
type LabelStatus interface {
	// InSync reports whether what was published agrees with the role.
	InSync() bool
	// Failures counts attempts to publish that failed.
	Failures() uint64
}

// Build is what a program was made from.
type Build struct {
	Version, Revision, GoVersion string
}

// Metrics are the program's metrics. State is read at each scrape; only durations are
// collected in between.
type Metrics struct {
	registry                 *prometheus.Registry
	acquire, renew, demotion prometheus.Histogram
}

var _ Observer = (*Metrics)(nil)

// From half a millisecond, a round trip within a zone, to longer than any node
// timeout.
var roundBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

var demotionBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewMetrics makes the metrics of one candidate.
func NewMetrics(build Build) *Metrics {
	m := &Metrics{
		registry: prometheus.NewPedanticRegistry(),
		acquire:  histogram("podlease_acquire_duration_seconds", "How long attempts took that got the lease.", roundBuckets),
		renew:    histogram("podlease_renew_duration_seconds", "How long renewals took until a quorum had confirmed.", roundBuckets),
		demotion: histogram("podlease_demotion_duration_seconds", "How long ends of terms took, from no longer being active to the release or the decision against it.", demotionBuckets),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "podlease_build_info", Help: "What the program was made from; always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "goversion": build.GoVersion},
	})
	info.Set(1)
	m.registry.MustRegister(m.acquire, m.renew, m.demotion, info)
	return m
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// Watch adds the state of source. label is nil where the role is not published.
func (m *Metrics) Watch(source MetricsSource, label LabelStatus) {
	m.registry.MustRegister(&collector{source: source, label: label})
}

// ObserveAcquire implements Observer.
func (m *Metrics) ObserveAcquire(d time.Duration) { m.acquire.Observe(d.Seconds()) }

// ObserveRenew implements Observer.
func (m *Metrics) ObserveRenew(d time.Duration) { m.renew.Observe(d.Seconds()) }

// ObserveDemotion implements Observer.
func (m *Metrics) ObserveDemotion(d time.Duration) { m.demotion.Observe(d.Seconds()) }

// Handler writes the metrics. It does not compress: that takes more memory than the
// few kilobytes are worth.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		DisableCompression:  true,
		MaxRequestsInFlight: 4,
		Timeout:             writeTimeout,
	})
}
