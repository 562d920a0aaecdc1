package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What came of an admission request, as the metrics say it.
const (
	ResultInjected = "injected"
	ResultIgnored  = "ignored" // did not ask for the sidecar
	ResultRefused  = "refused" // the Pod is wrong
	ResultError    = "error"   // the cluster is not ready for it
)

// Metrics count admission requests.
type Metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podlease_admission_requests_total",
			Help: "Admission requests for Pods, by what came of them.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "podlease_admission_duration_seconds",
			Help:    "How long an admission request for a Pod took.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	for _, result := range []string{ResultInjected, ResultIgnored, ResultRefused, ResultError} {
		m.requests.WithLabelValues(result)
	}
	registry.MustRegister(m.requests, m.duration)
	return m
}

func (m *Metrics) observe(result string, took time.Duration) {
	m.requests.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}
