package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is one line of the report.
type result struct {
	Measure string  `json:"measure"`
	Library string  `json:"library"`
	Nodes   int     `json:"nodes"`
	State   string  `json:"state"`
	Count   int     `json:"count"`
	Failed  int     `json:"failed"`
	Failure string  `json:"failure,omitempty"` // the first one
	Unit    string  `json:"unit"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// report collects results and prints each section as a table.
type report struct {
	out io.Writer

	Started time.Time         `json:"started"`
	Setting map[string]string `json:"setting"`
	Results []result          `json:"results"`
	Checks  []check           `json:"checks"`
}

// check compares a result with what is aimed at.
type check struct {
	Aim  string  `json:"aim"`
	Got  float64 `json:"got"`
	Want float64 `json:"want"` // at most
	OK   bool    `json:"ok"`
}

func newReport(out io.Writer) *report {
	return &report{out: out, Started: time.Now().UTC(), Setting: map[string]string{}}
}

func (rep *report) prologue(set settings) {
	rep.Setting["go"] = runtime.Version()
	rep.Setting["cpus"] = fmt.Sprint(runtime.NumCPU())
	rep.Setting["load"] = firstLine(os.ReadFile("/proc/loadavg"))
	rep.Setting["redis"] = firstLine(exec.Command("redis-server", "--version").Output())
	rep.Setting["commit"] = firstLine(exec.Command("git", "describe", "--always", "--dirty").Output())
	rep.Setting["ttl"] = set.ttl.String()
	for _, key := range slices.Sorted(maps.Keys(rep.Setting)) {
		fmt.Fprintf(rep.out, "%-7s %s\n", key, rep.Setting[key])
	}
}

func firstLine(text []byte, err error) string {
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// section takes one measure and prints what it added.
func (rep *report) section(ctx context.Context, m measure, set settings) error {
	results, checks := len(rep.Results), len(rep.Checks)
	fmt.Fprintf(rep.out, "\n%s: %s\n", m.name, m.about)
	start := time.Now()
	if err := m.run(ctx, set, rep); err != nil {
		return err
	}
	rep.table(rep.Results[results:])
	for _, c := range rep.Checks[checks:] {
		fmt.Fprintf(rep.out, "  %s: %.2f, aim at most %.2f: %s\n", c.Aim, c.Got, c.Want, verdict(c.OK))
	}
	fmt.Fprintf(rep.out, "  took %.0f s\n", time.Since(start).Seconds())
	return nil
}

func verdict(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

func (rep *report) table(results []result) {
	w := tabwriter.NewWriter(rep.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "  measure\tlibrary\tnodes\tstate\tn\tfailed\tp50\tp99\tmax\tunit\t")
	for _, r := range results {
		fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%s\t\n",
			r.Measure, r.Library, r.Nodes, r.State, r.Count, r.Failed, r.P50, r.P99, r.Max, r.Unit)
	}
	_ = w.Flush()
	for _, r := range results {
		if r.Failure != "" {
			fmt.Fprintf(rep.out, "  %s of %s failed first with: %s\n", r.Measure, r.Library, r.Failure)
		}
	}
}

func (rep *report) add(r result) { rep.Results = append(rep.Results, r) }

// figure adds a line that has one figure.
func (rep *report) figure(measure, library string, nodes int, state string, count int, value float64, unit string) {
	rep.add(result{Measure: measure, Library: library, Nodes: nodes, State: state, Count: count, Unit: unit, P50: value, P99: value, Max: value})
}

// aim notes whether got is at most want.
func (rep *report) aim(what string, got, want float64) {
	rep.Checks = append(rep.Checks, check{Aim: what, Got: got, Want: want, OK: got <= want})
}

func (rep *report) save(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// samples are the durations of one kind of call.
type samples struct {
	took    []time.Duration
	failed  int
	failure error // the first one
}

func (s *samples) add(took time.Duration, err error) {
	if err != nil {
		s.failed++
		s.failure = cmp.Or(s.failure, err)
		return
	}
	s.took = append(s.took, took)
}

// quantile is the smallest sample that a share p of all does not exceed.
func (s *samples) quantile(p float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.took))
	return sorted[max(0, min(len(sorted)-1, int(p*float64(len(sorted))+0.9999)-1))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// result fills in the figures of a line of the report.
func (s *samples) result(r result) result {
	r.Count, r.Failed, r.Unit = len(s.took)+s.failed, s.failed, "ms"
	if s.failure != nil {
		r.Failure = s.failure.Error()
	}
	r.P50, r.P99, r.Max = ms(s.quantile(0.5)), ms(s.quantile(0.99)), ms(s.quantile(1))
	return r
}
