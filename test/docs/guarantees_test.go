package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Each row of the table of faults names at least one test, and each name is a test's: a
// function, the text of a spec, or the name of a case.
func TestEachFaultIsBackedByTestsThatExist(t *testing.T) {
	rows := faults(t)
	if len(rows) < 40 {
		t.Fatalf("%d rows, which is fewer than there were", len(rows))
	}
	named := map[string]map[string]bool{} // by file
	for _, row := range rows {
		tests := evidence.FindAllStringSubmatch(row[3], -1)
		if len(tests) == 0 {
			t.Errorf("%s: no test is named", row[0])
		}
		for _, m := range tests {
			file := filepath.Join(root, "docs", m[2])
			if named[file] == nil {
				named[file] = names(t, file)
			}
			if !named[file][m[1]] {
				t.Errorf("%s: %s has no test or case named %q", row[0], m[2], m[1])
			}
		}
	}
}

var evidence = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)

// faults are the rows of the table but its headings.
func faults(t *testing.T) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(read(t, root+"/docs/guarantees.md"), "\n| fault | what you see | for how long | shown by |\n| --- | --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/guarantees.md has no table of faults")
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.HasSuffix(strings.TrimSpace(line), "| | | |") { // a heading
			continue
		}
		if len(cells) != 4 {
			t.Fatalf("a row of %d cells, want 4: %s", len(cells), line)
		}
		rows = append(rows, cells)
	}
	return rows
}

// names are what tests and their cases are called in a Go file: functions, the first
// argument of a call (It, Entry, t.Run), a field called name, the key of a map, and the
// first field of a literal. A name that is put together is taken without its variable part.
func names(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	add := func(e ast.Expr) {
		if text, ok := constant(e); ok {
			found[strings.TrimRight(text, ": ")] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found[n.Name.Name] = strings.HasPrefix(n.Name.Name, "Test")
		case *ast.CallExpr:
			if len(n.Args) > 1 {
				add(n.Args[0])
			}
		case *ast.CompositeLit:
			if len(n.Elts) > 1 {
				add(n.Elts[0])
			}
		case *ast.KeyValueExpr:
			add(n.Key)
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "name" {
				add(n.Value)
			}
		}
		return true
	})
	return found
}

// constant is the text of a literal, or of the literal that a sum begins with.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return constant(e.X)
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	}
	return "", false
}
