package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// section returns the part of docs/sidecar.md under a heading of level two.
func section(t *testing.T, heading string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/sidecar.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/sidecar.md has no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// matches are what a pattern's only group finds, sorted and each once.
func matches(pattern, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// firstCells are the first cells of a section's table rows, where flags and paths are defined.
func firstCells(text string) string {
	return strings.Join(matches(`(?m)^\| (.*?) \|`, text), "\n")
}

func TestDocumentedFlagsAreThoseOfHelp(t *testing.T) {
	var help bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, nil, &help, os.Stderr); code != exitOK {
		t.Fatalf("--help exits with %d", code)
	}
	got := matches("`(--[a-z-]+)`", firstCells(section(t, "Flags")))
	want := slices.DeleteFunc(matches(`(?m)^  (--[a-z-]+)`, help.String()), func(name string) bool { return name == "--version" })
	if !slices.Equal(got, want) {
		t.Errorf("docs/sidecar.md and --help differ:\n docs: %v\n help: %v", got, want)
	}
}

func TestDocumentedExitCodesAreThoseOfTheProgram(t *testing.T) {
	got := matches(`(?m)^\| (\d+) \|`, section(t, "Ending"))
	var want []string
	for _, code := range []int{exitOK, exitOther, exitUsage, exitUnfit, exitLost} {
		want = append(want, strconv.Itoa(code))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("docs/sidecar.md lists exit codes %v, the program has %v", got, want)
	}
}
