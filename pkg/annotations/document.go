package annotations

import (
	"fmt"
	"strings"
)

const documentHead = `<!-- Made from pkg/annotations; change it there, then run: go test ./pkg/annotations -update -->
# Annotations

All keys begin with ` + "`podlease.io/`" + ` and go on the **Pod template** (` + "`spec.template.metadata.annotations`" + `),
not on the Deployment itself. Values are strings: write ` + "`\"true\"`, not `true`" + `. Durations are written as
` + "`10s`, `500ms` or `1m30s`" + `.

A wrong value refuses the Pod with a message that names the annotation, the value and what is allowed; the same is
said when the Deployment is applied. An unknown key under the prefix is a warning that names the nearest known one.
`

// Markdown is the documentation of all keys.
func Markdown() string {
	var b strings.Builder
	b.WriteString(documentHead)
	section(&b, "What you write", "Read when the Pod is made.", User)
	section(&b, "What is read live", "May be changed on a running Pod, for example with `kubectl annotate pod NAME podlease.io/step-down=now`.", Live)
	b.WriteString("\n## What podlease writes\n\n| key | as | meaning |\n| --- | --- | --- |\n")
	for _, k := range table {
		if k.Author == Podlease {
			_, _ = fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, kind(k), k.Meaning)
		}
	}
	return b.String()
}

func section(b *strings.Builder, title, about string, author Author) {
	_, _ = fmt.Fprintf(b, "\n## %s\n\n%s\n\n| annotation | default | allowed | meaning |\n| --- | --- | --- | --- |\n", title, about)
	for _, k := range table {
		if k.Author == author {
			_, _ = fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.Name, k.Default, k.allowed(), k.Meaning)
		}
	}
}

func kind(k Key) string {
	if k.Label {
		return "label"
	}
	return "annotation"
}

func (k Key) allowed() string {
	if k.Values == nil {
		return k.Allowed
	}
	out := make([]string, len(k.Values))
	for i, v := range k.Values {
		out[i] = "`" + v + "`"
	}
	return strings.Join(out, ", ")
}

// Schema is the JSON schema of the chart's defaults: one property for each key that
// has a chart value, by the value's name. An empty string leaves the built-in default.
func Schema() map[string]any {
	out := map[string]any{}
	for _, k := range table {
		if k.Chart == "" {
			continue
		}
		property := map[string]any{"type": "string", "description": plain("Default of the annotation " + k.Name + ". " + k.Meaning)}
		if k.Values != nil {
			property["enum"] = append([]any{""}, anys(k.Values)...)
		} else {
			property["pattern"] = "^$|" + k.Pattern
		}
		out[k.Chart] = property
	}
	return out
}

func plain(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }

func anys(values []string) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// ChartDefaults turns the chart's values, by their names, into defaults by key, and
// tells what is wrong with them.
func ChartDefaults(values map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, k := range table {
		v, ok := values[k.Chart]
		if k.Chart == "" || !ok || v == "" {
			continue
		}
		if err := k.Check(v); err != nil {
			return nil, fmt.Errorf("sidecar.%s: %q: %w", k.Chart, v, err)
		}
		out[k.Name] = v
	}
	for name := range values {
		if !isChartValue(name) {
			return nil, fmt.Errorf("sidecar.%s: there is no such default", name)
		}
	}
	return out, nil
}

func isChartValue(name string) bool {
	for _, k := range table {
		if k.Chart == name && name != "" {
			return true
		}
	}
	return false
}
