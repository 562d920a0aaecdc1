package statusapi

import (
	"net/http"
	"strconv"
	"sync"
	"time"

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

// Metrics are one candidate's metrics. State is read at each scrape; only durations
// are collected in between.
//
// They are written without the Prometheus client library: that makes the program
// 2.9 MB larger, and every Pod's memory with it. Tests hold the result against the
// library's own parser and linter.
type Metrics struct {
	build                    Build
	acquire, renew, demotion *histogram

	mu     sync.Mutex
	source MetricsSource // nil before Watch
	label  LabelStatus   // nil where the role is not published
}

var _ Observer = (*Metrics)(nil)

// From half a millisecond, a round trip within a zone, to longer than any node
// timeout.
var roundBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

var demotionBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewMetrics makes the metrics of one candidate.
func NewMetrics(build Build) *Metrics {
	return &Metrics{
		build: build, acquire: newHistogram(roundBuckets), renew: newHistogram(roundBuckets), demotion: newHistogram(demotionBuckets),
	}
}

// Watch adds the state of source. label is nil where the role is not published.
func (m *Metrics) Watch(source MetricsSource, label LabelStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source, m.label = source, label
}

// ObserveAcquire implements Observer.
func (m *Metrics) ObserveAcquire(d time.Duration) { m.acquire.observe(d) }

// ObserveRenew implements Observer.
func (m *Metrics) ObserveRenew(d time.Duration) { m.renew.observe(d) }

// ObserveDemotion implements Observer.
func (m *Metrics) ObserveDemotion(d time.Duration) { m.demotion.observe(d) }

// ServeHTTP writes the metrics as Prometheus text.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	source, label := m.source, m.label
	m.mu.Unlock()
	var p page
	p.family("podlease_build_info", gauge, "What the program was made from; always 1.")
	p.sample(1, "version", m.build.Version, "revision", m.build.Revision, "goversion", m.build.GoVersion)
	p.histogram("podlease_acquire_duration_seconds", "How long attempts took that got the lease.", m.acquire)
	p.histogram("podlease_renew_duration_seconds", "How long renewals took until a quorum had confirmed.", m.renew)
	p.histogram("podlease_demotion_duration_seconds", "How long ends of terms took, from no longer being active to the release or the decision against it.", m.demotion)
	if source != nil {
		p.leadership(source.Leadership())
		p.stats(source.Leadership().Lock, source.Stats())
		p.nodes(source.Nodes())
	}
	if label != nil {
		p.label(label)
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(p.text)))
	_, _ = w.Write(p.text) // whoever asked is gone, which is theirs to notice
}

func (p *page) leadership(l election.Leadership) {
	valid, token := time.Duration(0), uint64(0)
	if l.Active() {
		valid, token = l.ValidFor, l.FencingToken
	}
	p.family("podlease_is_active", gauge, "Whether this candidate is active, as of the scrape.")
	p.sample(boolean(l.Active()), "lock", l.Lock)
	p.family("podlease_valid_seconds", gauge, "How much longer this candidate is active if no renewal succeeds.")
	p.sample(valid.Seconds())
	p.family("podlease_fencing_token", gauge, "The fencing token of the present term; 0 unless active.")
	p.sample(float64(token))
}

// results are reported from the start, so that rates have a beginning.
var results = []string{"acquired", "held", "split", "no-quorum", "error"}

func (p *page) stats(lock string, s election.Stats) {
	p.family("podlease_transitions_total", counter, "Changes of role.")
	p.sample(float64(s.ToActive), "lock", lock, "to", string(election.Active))
	p.sample(float64(s.ToStandby), "lock", lock, "to", string(election.Standby))
	p.family("podlease_acquire_attempts_total", counter, "Attempts to take the lease, by what came of them.")
	for _, result := range results {
		p.sample(float64(s.Attempts[result]), "lock", lock, "result", result)
	}
	p.family("podlease_last_renew_timestamp_seconds", gauge, "When the present lease was renewed last; 0 without one.")
	p.sample(seconds(s.LastRenew))
	p.family("podlease_pauses_detected_total", counter, "Times in which this process did not run although it should have.")
	p.sample(float64(s.Pauses))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func (p *page) nodes(nodes []election.NodeState) {
	for _, f := range []struct {
		name, help string
		value      func(election.NodeState) float64
	}{
		{"podlease_node_up", "Whether the node answered the last request.", func(n election.NodeState) float64 { return boolean(n.Up) }},
		{"podlease_node_fit", "Whether the node is counted.", func(n election.NodeState) float64 { return boolean(n.Unfit == "") }},
		{"podlease_node_mature", "Whether the node may grant a new lease.", func(n election.NodeState) float64 { return boolean(n.Mature) }},
		{"podlease_node_held", "Whether the own lease has a valid vote at the node.", func(n election.NodeState) float64 { return boolean(n.Voted) }},
		{"podlease_node_latency_seconds", "The round trip of the last answered request.", func(n election.NodeState) float64 { return n.Latency.Seconds() }},
	} {
		p.family(f.name, gauge, f.help)
		for _, node := range nodes {
			p.sample(f.value(node), "node", node.Name)
		}
	}
	p.nodeErrors(nodes)
}

// nodeErrors leaves out the kinds that a node never had.
func (p *page) nodeErrors(nodes []election.NodeState) {
	p.family("podlease_node_errors_total", counter, "Failed requests by kind.")
	for _, node := range nodes {
		for kind, n := range node.Errors {
			p.sample(float64(n), "node", node.Name, "kind", string(kind))
		}
	}
}

func (p *page) label(label LabelStatus) {
	p.family("podlease_label_in_sync", gauge, "Whether the role on the Pod agrees with the lock.")
	p.sample(boolean(label.InSync()))
	p.family("podlease_label_sync_failures_total", counter, "Attempts to publish the role that failed.")
	p.sample(float64(label.Failures()))
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
