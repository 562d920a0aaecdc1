package annotations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unknown warns of each key under the prefix that podlease does not know, and names
// the nearest that it does; and of settings written as labels.
func Unknown(m Metadata, inst Installation) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m.Annotations)) {
		if w := unknownAnnotation(name); w != "" {
			out = append(out, w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		if w := unknownLabel(name, inst.RoleLabel); w != "" {
			out = append(out, w)
		}
	}
	return out
}

func unknownAnnotation(name string) string {
	if _, known := Find(name); known || !strings.HasPrefix(name, Prefix) {
		return ""
	}
	return fmt.Sprintf("annotation %s is not known to podlease: did you mean %s?", name, Nearest(name))
}

func unknownLabel(name, roleLabel string) string {
	if !strings.HasPrefix(name, Prefix) || name == roleLabel {
		return ""
	}
	switch k, known := Find(name); {
	case known && k.Label:
		return ""
	case known:
		return fmt.Sprintf("label %s does nothing: it is read as an annotation", name)
	}
	return fmt.Sprintf("label %s is not known to podlease: did you mean %s?", name, Nearest(name))
}

// Nearest is the key that users write whose name is the fewest edits away.
func Nearest(name string) string {
	best, least := Inject, len(name)+len(Inject)
	for _, k := range table {
		if k.Author == Podlease {
			continue
		}
		if d := distance(strings.ToLower(name), k.Name); d < least {
			best, least = k.Name, d
		}
	}
	return best
}

// distance counts the insertions, deletions and replacements of bytes between a and b
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
