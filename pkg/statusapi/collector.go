package statusapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podlease/podlease/pkg/election"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("podlease_"+name, help, labels, nil)
}

var (
	descActive      = desc("is_active", "Whether this candidate is active, as of the scrape.", "lock")
	descTransitions = desc("transitions_total", "Changes of role.", "lock", "to")
	descAttempts    = desc("acquire_attempts_total", "Attempts to take the lease, by what came of them.", "lock", "result")
	descValid       = desc("valid_seconds", "How much longer this candidate is active if no renewal succeeds.")
	descLastRenew   = desc("last_renew_timestamp_seconds", "When the lease was renewed last; 0 before that.")
	descFencing     = desc("fencing_token", "The fencing token of the present term; 0 unless active.")
	descPauses      = desc("pauses_detected_total", "Times in which this process did not run although it should have.")
	descUp          = desc("node_up", "Whether the node answered the last request.", "node")
	descFit         = desc("node_fit", "Whether the node is counted.", "node")
	descMature      = desc("node_mature", "Whether the node may grant a new lease.", "node")
	descHeld        = desc("node_held", "Whether the own lease has a valid vote at the node.", "node")
	descLatency     = desc("node_latency_seconds", "The round trip of the last answered request.", "node")
	descErrors      = desc("node_errors_total", "Failed requests by kind.", "node", "kind")
	descInSync      = desc("label_in_sync", "Whether the role on the Pod agrees with the lock.")
	descSyncFailed  = desc("label_sync_failures_total", "Attempts to publish the role that failed.")
)

// results are reported from the start, so that rates have a beginning.
var results = []string{"acquired", "held", "split", "no-quorum", "error"}

// collector reads a candidate's state at each scrape.
type collector struct {
	source MetricsSource
	label  LabelStatus
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descActive, descTransitions, descAttempts, descValid, descLastRenew, descFencing, descPauses,
		descUp, descFit, descMature, descHeld, descLatency, descErrors, descInSync, descSyncFailed,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := sink{ch}
	lock := c.source.Leadership().Lock
	c.collectStats(s, lock)
	for _, node := range c.source.Nodes() {
		collectNode(s, node)
	}
	if c.label != nil {
		s.gauge(descInSync, boolean(c.label.InSync()))
		s.counter(descSyncFailed, c.label.Failures())
	}
	c.collectLeadership(s) // last, so that it is as fresh as can be
}

func (c *collector) collectLeadership(s sink) {
	l := c.source.Leadership()
	valid, token := time.Duration(0), uint64(0)
	if l.Active() {
		valid, token = l.ValidFor, l.FencingToken
	}
	s.gauge(descValid, valid.Seconds())
	s.gauge(descFencing, float64(token))
	s.gauge(descActive, boolean(l.Active()), l.Lock)
}

func (c *collector) collectStats(s sink, lock string) {
	stats := c.source.Stats()
	s.counter(descTransitions, stats.ToActive, lock, string(election.Active))
	s.counter(descTransitions, stats.ToStandby, lock, string(election.Standby))
	for _, result := range results {
		s.counter(descAttempts, stats.Attempts[result], lock, result)
	}
	renewed := 0.0
	if !stats.LastRenew.IsZero() {
		renewed = float64(stats.LastRenew.UnixMilli()) / 1000
	}
	s.gauge(descLastRenew, renewed)
	s.counter(descPauses, stats.Pauses)
}

func collectNode(s sink, node election.NodeState) {
	s.gauge(descUp, boolean(node.Up), node.Name)
	s.gauge(descFit, boolean(node.Unfit == ""), node.Name)
	s.gauge(descMature, boolean(node.Mature), node.Name)
	s.gauge(descHeld, boolean(node.Voted), node.Name)
	s.gauge(descLatency, node.Latency.Seconds(), node.Name)
	for kind, n := range node.Errors {
		s.counter(descErrors, n, node.Name, string(kind))
	}
}

// sink makes metrics of numbers.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
