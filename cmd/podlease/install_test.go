package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// installed runs podlease install; the running program is the test's.
func installed(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	var out, errOut strings.Builder
	code = run(t.Context(), append([]string{"install"}, args...), nil, &out, &errOut)
	return code, errOut.String()
}

func TestInstallCopiesTheRunningProgramAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "podlease")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var inUse *os.File // as when a container that runs the copy is there already
	for range 2 {
		if code, stderr := installed(t, path); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o555 {
			t.Errorf("mode %o, want 555: whatever user the app has must be able to run it", got)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the copy is not the program (%d bytes, want %d, %v)", len(got), len(want), err)
		}
		if inUse, err = os.Open(path); err != nil {
			t.Fatal(err)
		}
		defer inUse.Close()
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInstallSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing":    {nil, 2, "want one"},
		"two":        {[]string{"a", "b"}, 2, "want one"},
		"flag":       {[]string{"--to=a"}, 2, "--to"},
		"no folder":  {[]string{filepath.Join(dir, "none", "podlease")}, 1, filepath.Join(dir, "none")},
		"a folder":   {[]string{dir}, 1, dir},
		"empty path": {[]string{""}, 2, "want one"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stderr := installed(t, tc.args...)
			if code != tc.code || !strings.Contains(stderr, tc.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, %q; want %d and one line that says %q", code, stderr, tc.code, tc.says)
			}
		})
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".podlease*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
