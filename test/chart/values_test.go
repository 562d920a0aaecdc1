package chart_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What values change, as users see it in what is rendered.
func TestValues(t *testing.T) {
	for name, c := range map[string]struct {
		values  []string
		has     []string
		hasNot  []string
		objects []string
		without []string
	}{
		"default": {
			has:     []string{"podlease-redis-default-2.podlease-redis-default.podlease-system.svc:6379", "failurePolicy: Fail", "reinvocationPolicy: IfNeeded"},
			objects: []string{"StatefulSet/podlease-system/podlease-redis-default", "PodDisruptionBudget/podlease-system/podlease-controller", "ValidatingAdmissionPolicy//podlease-sidecar"},
			without: []string{"NetworkPolicy/podlease-system/podlease-controller"},
		},
		"own Redis": {
			values:  []string{"quorums.default.nodes={a:6379,b:6379,c:6379}", "quorums.default.secretName=creds"},
			has:     []string{`nodes: ["a:6379","b:6379","c:6379"]`, `secretName: "creds"`, `"podlease-default"`},
			without: []string{"StatefulSet/podlease-system/podlease-redis-default"},
		},
		"Redis without a Secret": {
			values: []string{"quorums.default.nodes={a:6379}"},
			hasNot: []string{"the copies of the quorums"},
		},
		"a second quorum": {
			values:  []string{"quorums.eu.deploy.enabled=true", "quorums.eu.deploy.replicas=5", "quorums.eu.keyPrefix=eu:"},
			has:     []string{"podlease-redis-eu-4.podlease-redis-eu", `keyPrefix: "eu:"`, `["podlease-default","podlease-eu"]`},
			objects: []string{"StatefulSet/podlease-system/podlease-redis-eu", "StatefulSet/podlease-system/podlease-redis-default"},
		},
		"rights by hand": {
			values: []string{"rbac.manage=false", "quorums.default.copySecret=false"},
			has:    []string{"manageRBAC: false", "copySecret: false"},
			hasNot: []string{"[bind]"},
		},
		"no policies": {
			values:  []string{"admissionPolicy.enabled=false"},
			without: []string{"ValidatingAdmissionPolicy//podlease-sidecar", "ValidatingAdmissionPolicyBinding//podlease-role-label"},
		},
		"another role label": {
			values: []string{"roleLabel=example.com/role"},
			has:    []string{`roleLabel: "example.com/role"`, "k == 'example.com/role'"},
			hasNot: []string{"labels[?'podlease.io/role']"},
		},
		"one replica": {
			values:  []string{"controller.replicas=1"},
			without: []string{"PodDisruptionBudget/podlease-system/podlease-controller"},
		},
		"own certificate": {
			values: []string{"webhook.certificate.secretName=mine"},
			has:    []string{"secretName: mine", "external: true"},
		},
		"persistence": {
			values: []string{"quorums.default.deploy.persistence.enabled=true", "quorums.default.deploy.persistence.size=2Gi"},
			has:    []string{"volumeClaimTemplates", "storage: 2Gi", "always"},
			hasNot: []string{"emptyDir"},
		},
		"removed with the release": {
			values: []string{"quorums.default.deploy.keep=false"},
			has:    []string{"helm.sh/resource-policy: keep # running sidecars"},
			hasNot: []string{"helm.sh/resource-policy: keep\nspec"},
		},
		"all extras": {
			values:  []string{"networkPolicy.enabled=true", "metrics.podMonitor.enabled=true", "metrics.serviceMonitor.enabled=true"},
			objects: []string{"NetworkPolicy/podlease-system/podlease-controller", "NetworkPolicy/podlease-system/podlease-redis-default", "PodMonitor/podlease-system/podlease-sidecars", "ServiceMonitor/podlease-system/podlease-controller"},
		},
		"images": {
			values: []string{"sidecar.image.repository=r.example/s", "sidecar.image.tag=1", "controller.image.digest=sha256:" + strings.Repeat("a", 64), "quorums.default.deploy.image.repository=r.example/redis", "quorums.default.deploy.image.tag=8"},
			has:    []string{`"r.example/s:1"`, "podlease-controller@sha256:aaaa", `"r.example/redis:8"`},
		},
		"defaults of annotations": {
			values: []string{"sidecar.ttl=20s", "sidecar.fencing=kubernetes", "clusterName=east", "locks.crossNamespace=true"},
			has:    []string{`ttl: "20s"`, `fencing: "kubernetes"`, `clusterName: "east"`, "crossNamespaceLocks: true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw := template(t, c.values...)
			all := objects(t, raw)
			for _, text := range c.has {
				if !strings.Contains(string(raw), text) {
					t.Errorf("lacks %q", text)
				}
			}
			for _, text := range c.hasNot {
				if strings.Contains(string(raw), text) {
					t.Errorf("has %q", text)
				}
			}
			for _, k := range c.objects {
				if all[k] == nil {
					t.Errorf("lacks %s", k)
				}
			}
			for _, k := range c.without {
				if all[k] != nil {
					t.Errorf("has %s", k)
				}
			}
		})
	}
}

func TestValuesThatCannotWork(t *testing.T) {
	for value, message := range map[string]string{
		"quorums.eu.keyPrefix=x": "quorums.eu: give nodes, or set deploy.enabled=true",
		"quorums.default.nodes={a:1},quorums.default.deploy.enabled=true": "not both",
		"quorums.default.secretName=x":                                    "made by the controller",
	} {
		if out, err := tryTemplate(t, value); err == nil || !strings.Contains(out, message) {
			t.Errorf("--set %s: %v: %s", value, err, out)
		}
	}
}

// Nothing differs between two renderings: no lookups, no random certificates.
func TestRenderingIsStable(t *testing.T) {
	if a, b := template(t), template(t); !bytes.Equal(a, b) {
		t.Error("two renderings differ")
	}
}

func TestOlderKubernetesIsRefused(t *testing.T) {
	out, err := tryKube(t, "1.29.3")
	if err == nil || !strings.Contains(out, ">= 1.30.0-0") {
		t.Errorf("%v: %s", err, out)
	}
}

// Own Pods never wait for the webhook, which may be down.
func TestOwnPodsDeclineInjection(t *testing.T) {
	for k, o := range objects(t, template(t)) {
		if o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
			continue
		}
		value, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels", "podlease.io/inject")
		if value != "false" {
			t.Errorf("%s: podlease.io/inject is %q", k, value)
		}
	}
}

var metricName = regexp.MustCompile(`podlease_[a-z_]+`)

// An alert on a metric that nothing exports would never fire.
func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	exported := map[string]bool{}
	for _, root := range []string{"../../pkg", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, name := range regexp.MustCompile(`"podlease_[a-z_]+"`).FindAllString(string(text), -1) {
				exported[strings.Trim(name, `"`)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rule := objects(t, template(t, "metrics.prometheusRule.enabled=true"))["PrometheusRule/podlease-system/podlease"]
	groups, _, _ := unstructured.NestedSlice(rule.Object, "spec", "groups")
	rules := groups[0].(map[string]any)["rules"].([]any)
	if len(rules) < 5 {
		t.Errorf("%d alerts", len(rules))
	}
	for _, r := range rules {
		names := metricName.FindAllString(r.(map[string]any)["expr"].(string), -1)
		if len(names) == 0 {
			t.Errorf("%v is on no metric", r)
		}
		for _, name := range names {
			if !exported[name] {
				t.Errorf("nothing exports %s", name)
			}
		}
	}
}
