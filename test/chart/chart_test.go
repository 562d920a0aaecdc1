// Package chart_test checks that the chart renders, and that config/ is the same as the
// chart with default values.
package chart_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/podlease/podlease/test/controlplane"
)

var update = flag.Bool("update", false, "write config/ anew from the chart")

const (
	chart     = "../../charts/podlease"
	configDir = "../../config"
	namespace = "podlease-system"
)

// program finds a tool: as $NAME, beside the API server that the tests of admission
// start, or in $PATH.
func program(t *testing.T, name string) string {
	t.Helper()
	if path := os.Getenv(strings.ToUpper(name)); path != "" {
		return path
	}
	if dir, err := controlplane.Binaries(); err == nil {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: install it, or set %s", err, strings.ToUpper(name))
	}
	return path
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program(t, name), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, &stderr)
	}
	return out
}

func template(t *testing.T, values ...string) []byte {
	t.Helper()
	args := []string{"template", "podlease", chart, "--namespace", namespace, "--kube-version", "1.37.0", "--skip-tests"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return run(t, "helm", args...)
}

var separator = regexp.MustCompile(`(?m)^---\n`)

// objects parses a stream of manifests, by kind, namespace and name.
func objects(t *testing.T, stream []byte) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for _, text := range separator.Split(string(stream), -1) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if o.Object != nil {
			out[key(o)] = normal(o)
		}
	}
	return out
}

func key(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
}

// helmOnly is what only Helm has a use for.
var helmOnly = []string{"helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "checksum/config"}

// normal leaves out what only Helm has.
func normal(o *unstructured.Unstructured) *unstructured.Unstructured {
	for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		for _, field := range []string{"labels", "annotations"} {
			at := append(slices.Clone(path), field)
			values, found, _ := unstructured.NestedMap(o.Object, at...)
			if !found {
				continue
			}
			for _, k := range helmOnly {
				delete(values, k)
			}
			if len(values) == 0 {
				unstructured.RemoveNestedField(o.Object, at...)
				continue
			}
			_ = unstructured.SetNestedMap(o.Object, values, at...)
		}
	}
	return o
}

// places says in which folder of config/ the file of a kind lies.
func place(o *unstructured.Unstructured) string {
	switch kind := o.GetKind(); {
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		return "webhook"
	case strings.HasPrefix(kind, "ValidatingAdmissionPolicy"):
		return "policy"
	case kind == "ClusterRole", kind == "ClusterRoleBinding", kind == "Role", kind == "RoleBinding", kind == "ServiceAccount":
		return "rbac"
	case strings.Contains(o.GetName(), "redis"):
		return "redis"
	}
	return "controller"
}

var kindWords = regexp.MustCompile(`([a-z])([A-Z])`)

func fileName(o *unstructured.Unstructured) string {
	name := strings.TrimPrefix(strings.TrimPrefix(o.GetName(), "podlease-"), "podlease")
	kind := strings.ToLower(kindWords.ReplaceAllString(o.GetKind(), "${1}_$2"))
	if o.GetKind() == "ClusterRole" && strings.HasPrefix(name, "sidecar") {
		kind = "role"
	}
	return strings.TrimPrefix(strings.ReplaceAll(name, "-", "_")+"_"+kind+".yaml", "_")
}

var helmLines = regexp.MustCompile(`(?m)^ +(` + strings.Join([]string{`helm\.sh/chart`, `helm\.sh/resource-policy`, `app\.kubernetes\.io/managed-by`, `app\.kubernetes\.io/version`, `checksum/config`}, "|") + `):.*\n`)
var emptyAnnotations = regexp.MustCompile(`(?m)^( *)annotations:\n((?: *#.*\n)*)( *)(\S)`)

// write makes config/ from the chart, comments and all.
func write(t *testing.T) {
	t.Helper()
	files := map[string][]string{}
	for _, text := range separator.Split(string(template(t)), -1) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil || o.Object == nil {
			continue
		}
		text = regexp.MustCompile(`(?m)^# Source: .*\n`).ReplaceAllString(text, "")
		text = helmLines.ReplaceAllString(text, "")
		text = emptyAnnotations.ReplaceAllStringFunc(text, func(m string) string {
			g := emptyAnnotations.FindStringSubmatch(m)
			if len(g[3]) > len(g[1]) {
				return m
			}
			return g[3] + g[4]
		})
		dir := place(o)
		files[dir] = append(files[dir], fileName(o))
		put(t, filepath.Join(configDir, dir, fileName(o)), text)
	}
	for dir, names := range files {
		slices.Sort(names)
		put(t, filepath.Join(configDir, dir, "kustomization.yaml"), kustomization(names))
	}
	put(t, filepath.Join(configDir, "default", "namespace.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "+namespace+"\n")
	put(t, filepath.Join(configDir, "default", "kustomization.yaml"), kustomization([]string{"namespace.yaml", "../rbac", "../controller", "../webhook", "../policy", "../redis"}))
}

func kustomization(names []string) string {
	return "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- " + strings.Join(names, "\n- ") + "\n"
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The two ways to install differ in nothing but what only Helm has a use for.
func TestKustomizeIsTheSameAsTheChart(t *testing.T) {
	if *update {
		write(t)
	}
	fromHelm := objects(t, template(t))
	fromKustomize := objects(t, run(t, "kubectl", "kustomize", filepath.Join(configDir, "default")))
	delete(fromKustomize, "Namespace//"+namespace)
	for k, want := range fromHelm {
		got, ok := fromKustomize[k]
		if !ok {
			t.Errorf("config/ lacks %s", k)
			continue
		}
		if !reflect.DeepEqual(got.Object, want.Object) {
			t.Errorf("%s differs:\nchart:\n%s\nconfig:\n%s\nrun go test ./test/chart -update", k, show(want), show(got))
		}
	}
	for k := range fromKustomize {
		if fromHelm[k] == nil {
			t.Errorf("the chart lacks %s", k)
		}
	}
}

func show(o *unstructured.Unstructured) string {
	raw, err := yaml.Marshal(o.Object)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(raw)
}

// tryTemplate renders with values that may be wrong.
func tryTemplate(t *testing.T, values ...string) (string, error) {
	t.Helper()
	return try(t, "1.37.0", values...)
}

func tryKube(t *testing.T, version string) (string, error) {
	t.Helper()
	return try(t, version)
}

func try(t *testing.T, kube string, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", "podlease", chart, "--namespace", namespace, "--kube-version", kube, "--skip-tests"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, err := exec.CommandContext(t.Context(), program(t, "helm"), args...).CombinedOutput()
	return string(out), err
}
