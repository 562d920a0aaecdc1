package annotations_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/podlease/podlease/pkg/annotations"
)

var update = flag.Bool("update", false, "write the generated documentation")

var installation = annotations.Installation{Quorums: []string{"default", "eu"}, RestartAllContainers: true}

func metadata(pairs ...string) annotations.Metadata {
	m := annotations.Metadata{Namespace: "shop", Annotations: map[string]string{annotations.Inject: "true"}}
	for i := 0; i < len(pairs); i += 2 {
		m.Annotations[annotations.Prefix+pairs[i]] = pairs[i+1]
	}
	return m
}

func TestDocumentationIsInStep(t *testing.T) {
	const path = "../../docs/annotations.md"
	want := annotations.Markdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of step: run go test ./pkg/annotations -update", path)
	}
}

func TestDefaults(t *testing.T) {
	s, warnings, errs := annotations.Parse(metadata(), installation)
	if len(errs) > 0 || len(warnings) > 0 {
		t.Fatalf("errors %v, warnings %v", errs, warnings)
	}
	if len(s.Flags()) != 0 {
		t.Errorf("flags %v, want none: the sidecar's own defaults hold", s.Flags())
	}
	want := annotations.Timing{TTL: 10 * time.Second, RenewInterval: 2 * time.Second, StopBudget: 2500 * time.Millisecond, NodeTimeout: 200 * time.Millisecond}
	if s.Timing != want {
		t.Errorf("timing %+v, want %+v", s.Timing, want)
	}
	if s.Quorum != "default" || s.Readiness != "participating" || s.OnLoss != "none" || s.AppHealth != "auto" || s.Wait != "forever" || s.HTTPPort != 8484 {
		t.Errorf("set %+v", s)
	}
}

// Every annotation's wrong value is refused with a message that names the annotation,
// the value and what is allowed.
func TestWrongValuesNameKeyValueAndAllowed(t *testing.T) {
	for _, c := range []struct{ key, value, allowed string }{
		{"lock", "/orders", "without //, a leading or a trailing /"},
		{"lock", "shop//orders", "1 to 200"},
		{"lock", "shop/ö", "A-Z a-z 0-9"},
		{"lock", "other/orders", `must lie under the Pod's namespace, for example "shop/orders"`},
		{"quorum", "us", `supported values: "default", "eu"`},
		{"quorum", "US/1", "lower-case"},
		{"ttl", "10", "a duration such as 10s"},
		{"ttl", "400ms", "at least 500ms"},
		{"ttl", "31s", "at most 30s"},
		{"ttl", "10.0001s", "whole milliseconds"},
		{"ttl", "25h", "at most 24h"},
		{"renew-interval", "0s", "above zero"},
		{"renew-interval", "3s", "3 × renew-interval 3s + node-timeout 200ms"},
		{"stop-budget", "-1s", "at least 0s"},
		{"stop-budget", "9s", "stop-budget 9s"},
		{"node-timeout", "x", "a duration"},
		{"node-timeout", "2s", "at least 10 × node-timeout"},
		{"priority", "101", "from -100 to 100"},
		{"priority", "high", "from -100 to 100"},
		{"fencing", "etcd", `"redis", "kubernetes", "off"`},
		{"log-level", "trace", `"debug", "info", "error"`},
		{"app-health", "http://10.0.0.1:80/", "on loopback"},
		{"app-health", "http://127.0.0.1/", "with a port"},
		{"app-health", "yes", `"auto"`},
		{"app-container", "App", "lower-case"},
		{"readiness", "leader", `"participating", "active", "gate", "none"`},
		{"on-loss", "kill", `"none", "restart", "exit", "exec"`},
		{"wait", "-1s", `"forever" or a duration`},
		{"http-port", "80", "from 1024 to 65534"},
		{"http-port", "65535", "from 1024 to 65534"},
		{"cpu", "0", "at least 1m"},
		{"memory", "1Mi", "at least 16Mi"},
		{"paused", "yes", `"true", "false"`},
	} {
		_, _, errs := annotations.Parse(metadata(c.key, c.value), installation)
		message := aggregate(errs)
		for _, part := range []string{"metadata.annotations[podlease.io/" + c.key + "]", `"` + c.value + `"`, c.allowed} {
			if !strings.Contains(message, part) {
				t.Errorf("%s=%q: message %q lacks %q", c.key, c.value, message, part)
			}
		}
	}
}

// The table above must not miss a key that can be wrong.
func TestEveryKeyThatCanBeWrongRefusesNonsense(t *testing.T) {
	for _, k := range annotations.Keys() {
		if k.Author == annotations.Podlease || k.Name == annotations.StepDown || k.Name == annotations.Inject {
			continue
		}
		_, _, errs := annotations.Parse(metadata(k.Short(), " ~ "), installation)
		if len(errs) == 0 {
			t.Errorf("%s takes nonsense", k.Name)
		}
	}
}

func aggregate(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

func TestWanted(t *testing.T) {
	type labels = map[string]string
	for name, c := range map[string]struct {
		annotation, label string
		want              bool
		wrong             string
	}{
		"nothing":                       {},
		"annotation":                    {annotation: "true", want: true},
		"label":                         {label: "true", want: true},
		"false wins as a label":         {annotation: "true", label: "false"},
		"false wins as an annotation":   {annotation: "false", label: "true"},
		"false wins even over nonsense": {annotation: "false", label: "yes"},
		"capitals":                      {annotation: "True", wrong: `metadata.annotations[podlease.io/inject]: Unsupported value: "True": supported values: "true", "false"`},
		"wrong label":                   {label: "1", wrong: `metadata.labels[podlease.io/inject]: Unsupported value: "1"`},
	} {
		m := annotations.Metadata{Annotations: labels{}, Labels: labels{}}
		if c.annotation != "" {
			m.Annotations[annotations.Inject] = c.annotation
		}
		if c.label != "" {
			m.Labels[annotations.Inject] = c.label
		}
		got, errs := annotations.Wanted(m)
		if got != c.want && c.wrong == "" {
			t.Errorf("%s: wanted %v", name, got)
		}
		if message := aggregate(errs); (message != "") != (c.wrong != "") || !strings.Contains(message, c.wrong) {
			t.Errorf("%s: message %q, want %q", name, message, c.wrong)
		}
	}
}

func TestPodOverChartOverFlag(t *testing.T) {
	inst := installation
	inst.Defaults = map[string]string{annotations.TTL: "20s", annotations.LogLevel: "debug", annotations.CPU: "50m"}
	s, _, errs := annotations.Parse(metadata("log-level", "info", "priority", "5"), inst)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, want := strings.Join(s.Flags(), " "), "--ttl=20s --priority=5 --log-level=info"; got != want {
		t.Errorf("flags %q, want %q", got, want)
	}
	if s.CPU.String() != "50m" || s.Timing.RenewInterval != 4*time.Second {
		t.Errorf("cpu %v, renew %v", &s.CPU, s.Timing.RenewInterval)
	}
}

func TestRestartRaisesDefaultsAndRefusesShortBudgets(t *testing.T) {
	s, _, errs := annotations.Parse(metadata("on-loss", "restart"), installation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, want := strings.Join(s.Flags(), " "), "--ttl=15s --stop-budget=4s"; got != want {
		t.Errorf("flags %q, want %q", got, want)
	}
	inst := installation
	inst.Defaults = map[string]string{annotations.TTL: "10s", annotations.StopBudget: "1s"}
	if s, _, errs = annotations.Parse(metadata("on-loss", "restart"), inst); len(errs) > 0 || s.Timing.TTL != 15*time.Second || s.Timing.StopBudget != 4*time.Second {
		t.Errorf("short defaults of the chart: %+v, %v", s, errs)
	}
	_, _, errs = annotations.Parse(metadata("on-loss", "restart", "stop-budget", "3s"), installation)
	if message := aggregate(errs); !strings.Contains(message, `podlease.io/stop-budget]: Invalid value: "3s": must be at least 3.5s`) {
		t.Errorf("message %q", message)
	}
	_, _, errs = annotations.Parse(metadata("on-loss", "restart", "stop-budget", "3500ms"), installation)
	if len(errs) > 0 {
		t.Error(errs)
	}
}

func TestRestartNeedsTheRule(t *testing.T) {
	inst := installation
	inst.RestartAllContainers = false
	_, _, errs := annotations.Parse(metadata("on-loss", "restart"), inst)
	if message := aggregate(errs); !strings.Contains(message, "needs Kubernetes 1.36") {
		t.Errorf("message %q", message)
	}
}

func TestQuarantineBoundsTTL(t *testing.T) {
	minute := time.Minute
	inst := installation
	inst.Quarantine = &minute
	if _, _, errs := annotations.Parse(metadata("ttl", "60s"), inst); len(errs) > 0 {
		t.Error(errs)
	}
	if _, _, errs := annotations.Parse(metadata("ttl", "61s"), inst); len(errs) == 0 {
		t.Error("a TTL above the quarantine was taken")
	}
}

func TestCrossNamespaceLocks(t *testing.T) {
	inst := installation
	inst.CrossNamespaceLocks = true
	if s, _, errs := annotations.Parse(metadata("lock", "global/orders"), inst); len(errs) > 0 || s.Lock != "global/orders" {
		t.Error(errs)
	}
}

func TestWarnings(t *testing.T) {
	m := metadata("lokc", "shop/x", "wait", "3s")
	m.Labels = map[string]string{
		annotations.Prefix + "rol": "x", annotations.TTL: "3s", annotations.Role: "standby", annotations.Injected: "true", "app": "x",
	}
	_, warnings, errs := annotations.Parse(m, installation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	got := strings.Join(warnings, "\n")
	for _, want := range []string{
		"annotation podlease.io/lokc is not known to podlease: did you mean podlease.io/lock?",
		"label podlease.io/rol is not known",
		"label podlease.io/ttl does nothing: it is read as an annotation",
		`podlease.io/wait does nothing without podlease.io/on-loss: "exec"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings %q lack %q", got, want)
		}
	}
	if len(warnings) != 4 {
		t.Errorf("%d warnings: %q", len(warnings), got)
	}
}

func TestIgnoredWithoutInject(t *testing.T) {
	m := annotations.Metadata{Annotations: map[string]string{annotations.Lock: "shop/x", annotations.Prefix + "injetc": "true", annotations.Status: "{}"}}
	got := strings.Join(annotations.Ignored(m, installation), "\n")
	want := "podlease.io/lock does nothing without podlease.io/inject: \"true\"\nannotation podlease.io/injetc is not known to podlease: did you mean podlease.io/inject?"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMessagesPointIntoTheTemplate(t *testing.T) {
	m := metadata("ttl", "x")
	m.Path = field.NewPath("spec", "template", "metadata")
	_, _, errs := annotations.Parse(m, installation)
	if message := aggregate(errs); !strings.HasPrefix(message, "spec.template.metadata.annotations[podlease.io/ttl]") {
		t.Errorf("message %q", message)
	}
}

func TestChartDefaults(t *testing.T) {
	got, err := annotations.ChartDefaults(map[string]string{"ttl": "12s", "cpu": "", "renewInterval": "2s"})
	if err != nil || len(got) != 2 || got[annotations.TTL] != "12s" || got[annotations.RenewInterval] != "2s" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err = annotations.ChartDefaults(map[string]string{"ttl": "12"}); err == nil || !strings.Contains(err.Error(), "sidecar.ttl") {
		t.Errorf("error %v", err)
	}
	if _, err = annotations.ChartDefaults(map[string]string{"tll": "12s"}); err == nil {
		t.Error("an unknown default was taken")
	}
}

func TestSchemaIsJSONOfEveryChartValue(t *testing.T) {
	raw, err := json.Marshal(annotations.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ttl", "renewInterval", "stopBudget", "nodeTimeout", "priority", "fencing", "logLevel", "cpu", "memory"} {
		if !strings.Contains(string(raw), `"`+name+`":`) {
			t.Errorf("schema lacks %s", name)
		}
	}
}

// No text makes the parser panic or take a set whose arithmetic cannot work.
func FuzzParse(f *testing.F) {
	f.Add("10s", "2s", "2500ms", "200ms", "restart")
	f.Add("1h", "-1s", "0", "1ns", "exec")
	f.Fuzz(func(t *testing.T, ttl, renew, budget, timeout, loss string) {
		m := metadata("ttl", ttl, "renew-interval", renew, "stop-budget", budget, "node-timeout", timeout, "on-loss", loss)
		s, _, errs := annotations.Parse(m, installation)
		if len(errs) > 0 {
			return
		}
		x := s.Timing
		if 3*x.RenewInterval+x.NodeTimeout > x.TTL-x.TTL/100-x.StopBudget {
			t.Errorf("taken: %+v", x)
		}
	})
}
