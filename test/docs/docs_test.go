// Package docs_test keeps what the documentation says of the code true: code that it
// shows is code that is tested, links lead somewhere, and each fault of
// docs/guarantees.md is backed by tests that exist.
package docs_test

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// documents are the Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "build" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			found = append(found, path)
		}
		return nil
	})
	if err != nil || len(found) < 10 {
		t.Fatalf("%d documents, error %v", len(found), err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// prose is a document without its code blocks, which may contain what looks like a link.
func prose(text string) string {
	return regexp.MustCompile("(?s)\n *```.*?\n *```").ReplaceAllString(text, "")
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, document := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(prose(read(t, document)), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", document, m[1], err)
				continue
			}
			if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: link %s: there is no such heading", document, m[1])
			}
		}
	}
}

// anchors are what the headings of a document are called in links, as GitHub does it.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}

var from = regexp.MustCompile(`^From \[.*\]\((.*)\):$`)

// A code block that says where it is from has to be there, line by line; in fencing.md
// all of them say so, but for the drawing.
func TestCodeShownIsCodeTested(t *testing.T) {
	shown := 0
	for _, document := range documents(t) {
		for _, b := range blocks(read(t, document)) {
			if b.file == "" {
				if filepath.Base(document) == "fencing.md" && b.language != "" {
					t.Errorf("%s: a block of %s does not say where it is from:\n%s", document, b.language, b.code)
				}
				continue
			}
			shown++
			if !strings.Contains(unindented(read(t, filepath.Join(filepath.Dir(document), b.file))), unindented(b.code)) {
				t.Errorf("%s: this is not in %s:\n%s", document, b.file, b.code)
			}
		}
	}
	if shown < 6 {
		t.Errorf("%d blocks say where they are from, which is fewer than there were", shown)
	}
}

type block struct{ language, file, code string }

// blocks are the code blocks of a document.
func blocks(text string) (found []block) {
	var last, language, code string
	inside := false
	for scan := bufio.NewScanner(strings.NewReader(text)); scan.Scan(); {
		line := scan.Text()
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && inside:
			b := block{language: language, code: code}
			if m := from.FindStringSubmatch(last); m != nil {
				b.file = m[1]
			}
			found = append(found, b)
			inside, code, last = false, "", ""
		case fence:
			inside, language = true, strings.TrimPrefix(line, "```")
		case inside:
			code += line + "\n"
		case line != "":
			last = line
		}
	}
	return found
}

// unindented is a text without the space at the beginning and at the end of its lines.
func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
