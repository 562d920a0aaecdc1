package statusapi_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/statusapi"
)

// measured is a candidate with nodes and counters.
type measured struct {
	*candidate
	nodes []election.NodeState
	stats election.Stats
}

func (m *measured) Nodes() []election.NodeState { return m.nodes }
func (m *measured) Stats() election.Stats       { return m.stats }

type label struct{}

func (label) InSync() bool     { return true }
func (label) Failures() uint64 { return 5 }

func newMeasured() *measured {
	odd := "b\"\\\n:1"
	return &measured{
		candidate: newCandidate(activeLeadership()),
		nodes: []election.NodeState{
			{NodeStatus: redlock.NodeStatus{Name: "a:1", Up: true, Mature: true, Latency: 1500 * time.Microsecond}, Voted: true},
			{NodeStatus: redlock.NodeStatus{
				Name: odd, Unfit: "a replica", Err: errors.New("refused"),
				Errors: map[redlock.ErrorKind]uint64{redlock.KindTimeout: 2, redlock.KindReadOnly: 1},
			}},
		},
		stats: election.Stats{
			ToActive: 2, ToStandby: 1, Attempts: map[string]uint64{"acquired": 2, "held": 7}, Pauses: 3, LastRenew: time.UnixMilli(1764495600123),
		},
	}
}

func scrape(t *testing.T, m *statusapi.Metrics) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	w := request(m, http.MethodGet, "/metrics")
	if got := w.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
	text = w.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus does not read it: %v\n%s", err, text)
	}
	return text, families
}

func TestMetricsAsPrometheusReadsThem(t *testing.T) {
	source := newMeasured()
	m := statusapi.NewMetrics(statusapi.Build{Version: "v1", Revision: "abc", GoVersion: "go1"})
	m.Watch(source, label{})
	m.ObserveAcquire(3 * time.Millisecond)
	m.ObserveRenew(500 * time.Microsecond)
	m.ObserveRenew(time.Minute)
	m.ObserveDemotion(time.Second)
	text, families := scrape(t, m)

	want := map[string]float64{
		`podlease_is_active{lock="orders"}`:                                 1,
		`podlease_transitions_total{lock="orders",to="active"}`:             2,
		`podlease_transitions_total{lock="orders",to="standby"}`:            1,
		`podlease_acquire_attempts_total{lock="orders",result="acquired"}`:  2,
		`podlease_acquire_attempts_total{lock="orders",result="held"}`:      7,
		`podlease_acquire_attempts_total{lock="orders",result="split"}`:     0,
		`podlease_acquire_attempts_total{lock="orders",result="no-quorum"}`: 0,
		`podlease_acquire_attempts_total{lock="orders",result="error"}`:     0,
		`podlease_valid_seconds`:                                            6.5129,
		`podlease_last_renew_timestamp_seconds`:                             1764495600.123,
		`podlease_fencing_token`:                                            1764495600123456,
		`podlease_pauses_detected_total`:                                    3,
		`podlease_node_up{node="a:1"}`:                                      1,
		`podlease_node_fit{node="a:1"}`:                                     1,
		`podlease_node_mature{node="a:1"}`:                                  1,
		`podlease_node_held{node="a:1"}`:                                    1,
		`podlease_node_latency_seconds{node="a:1"}`:                         0.0015,
		`podlease_node_up{node="b\"\\\n:1"}`:                                0,
		`podlease_node_fit{node="b\"\\\n:1"}`:                               0,
		`podlease_node_errors_total{kind="timeout",node="b\"\\\n:1"}`:       2,
		`podlease_node_errors_total{kind="readonly",node="b\"\\\n:1"}`:      1,
		`podlease_label_in_sync`:                                            1,
		`podlease_label_sync_failures_total`:                                5,
		`podlease_build_info{goversion="go1",revision="abc",version="v1"}`:  1,
	}
	got := values(families)
	for name, value := range want {
		if v, there := got[name]; !there || v != value {
			t.Errorf("%s: got %v (there: %v), want %v", name, v, there, value)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	histograms(t, families)
}

// values are the samples of gauges and counters.
func values(families map[string]*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+quote(l.GetValue()))
			}
			slices.Sort(labels)
			id := name
			if len(labels) > 0 {
				id += "{" + strings.Join(labels, ",") + "}"
			}
			all[id] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return all
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s) + `"`
}

func histograms(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	for name, want := range map[string]struct {
		count uint64
		sum   float64
		below map[float64]uint64
	}{
		"podlease_acquire_duration_seconds":  {1, 0.003, map[float64]uint64{0.0025: 0, 0.005: 1, 2.5: 1}},
		"podlease_renew_duration_seconds":    {2, 60.0005, map[float64]uint64{0.0005: 1, 2.5: 1}},
		"podlease_demotion_duration_seconds": {1, 1, map[float64]uint64{0.5: 0, 1: 1}},
	} {
		h := families[name].GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != want.count || h.GetSampleSum() != want.sum {
			t.Errorf("%s: count %d, sum %v", name, h.GetSampleCount(), h.GetSampleSum())
		}
		for _, b := range h.GetBucket() {
			if n, asked := want.below[b.GetUpperBound()]; asked && b.GetCumulativeCount() != n {
				t.Errorf("%s: %d below %v, want %d", name, b.GetCumulativeCount(), b.GetUpperBound(), n)
			}
		}
	}
}

func TestMetricsOfAStandbyAreThereFromTheStart(t *testing.T) {
	is := standbyLeadership("held by shop/b")
	is.FencingToken, is.ValidFor = 9, time.Second // have no meaning in a standby
	source := &measured{candidate: newCandidate(is)}
	m := statusapi.NewMetrics(statusapi.Build{})
	m.Watch(source, nil)
	_, families := scrape(t, m)
	got := values(families)
	for _, name := range []string{
		`podlease_is_active{lock="orders"}`, "podlease_valid_seconds", "podlease_fencing_token", "podlease_last_renew_timestamp_seconds",
		`podlease_transitions_total{lock="orders",to="active"}`,
	} {
		if v, there := got[name]; !there || v != 0 {
			t.Errorf("%s: got %v (there: %v), want 0", name, v, there)
		}
	}
	if _, there := families["podlease_label_in_sync"]; there {
		t.Error("metrics of a label where none is published")
	}
}

func TestMetricsBeforeThereIsACandidate(t *testing.T) {
	_, families := scrape(t, statusapi.NewMetrics(statusapi.Build{}))
	if families["podlease_build_info"] == nil {
		t.Error("no podlease_build_info")
	}
}
