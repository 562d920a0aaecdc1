package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/podlease/podlease/pkg/annotations"
)

// The chart's defaults for annotations come from the table that checks annotations.
func TestSchemaKnowsTheAnnotations(t *testing.T) {
	const path = chart + "/values.schema.json"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	properties := schema["properties"].(map[string]any)["sidecar"].(map[string]any)["properties"].(map[string]any)
	want := plain(t, annotations.Schema())
	if *update {
		for name := range properties {
			if name != "image" && name != "quarantine" {
				delete(properties, name)
			}
		}
		maps.Copy(properties, want)
		write := plain(t, schema)
		text, err := json.MarshalIndent(write, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		put(t, path, string(text)+"\n")
	}
	for name, property := range want {
		if !reflect.DeepEqual(properties[name], property) {
			t.Errorf("sidecar.%s differs from pkg/annotations: run go test ./test/chart -update", name)
		}
	}
	if got := slices.Sorted(maps.Keys(properties)); len(got) != len(want)+2 {
		t.Errorf("sidecar has %q besides image and quarantine", got)
	}
}

// Every object of the schema is closed, so a typo in a value is an error.
func TestSchemaIsClosed(t *testing.T) {
	for _, value := range []string{"sidcar.ttl=3s", "sidecar.tll=3s", "quorums.default.node=x", "controller.image.name=x", "sidecar.ttl=3", "webhook.failurePolicy=Maybe", "quorums.default.deploy.replicas=many"} {
		if out, err := tryTemplate(t, value); err == nil {
			t.Errorf("--set %s was taken:\n%.200s", value, out)
		}
	}
}

func plain(t *testing.T, v map[string]any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
