package main

import (
	"bytes"
	"crypto/x509"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// program builds a static program called podlease-test.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "podlease-test")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", out, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64", "GOFLAGS=-buildvcs=false")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return out
}

func pack(t *testing.T, binary string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "images", "test.tar")
	err := run([]string{"--binary", binary, "--name", "ghcr.io/podlease/podlease-test:dev", "--arch", "arm64", "--version", "v1.2.3", "--out", out})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestArchiveSaysHowTheProgramStarts(t *testing.T) {
	img, err := tarball.ImageFromPath(pack(t, program(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.OS != "linux" || file.Architecture != "arm64" {
		t.Errorf("platform %s/%s, want linux/arm64", file.OS, file.Architecture)
	}
	config := file.Config
	if config.User != "65532:65532" {
		t.Errorf("user %q, want the number 65532", config.User)
	}
	if len(config.Entrypoint) != 1 || config.Entrypoint[0] != "/podlease-test" {
		t.Errorf("entry point %v, want /podlease-test", config.Entrypoint)
	}
	if got := config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("version label %q, want v1.2.3", got)
	}

	roots, err := io.ReadAll(mutate.Extract(img))
	if err != nil {
		t.Fatal(err)
	}
	start := bytes.Index(roots, []byte("-----BEGIN"))
	if start < 0 || !x509.NewCertPool().AppendCertsFromPEM(roots[start:]) {
		t.Error("the image has no certificate authorities")
	}
}

func TestSameInputGivesTheSameBytes(t *testing.T) {
	binary := program(t)
	first, err := os.ReadFile(pack(t, binary))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TZ", "Asia/Tokyo")
	second, err := os.ReadFile(pack(t, binary))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two archives of the same program differ")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1764495600")
	third, err := os.ReadFile(pack(t, binary))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first, third) {
		t.Error("SOURCE_DATE_EPOCH makes no difference")
	}
}

func TestWhatCannotStartIsRefused(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		args []string
		want string
	}{
		"a script":              {[]string{"--binary", script, "--name", "ghcr.io/a/b:c", "--out", "x"}, "not a Linux program"},
		"a name without a tag":  {[]string{"--binary", script, "--name", "podlease", "--out", "x"}, "name:"},
		"no name":               {[]string{"--binary", script, "--out", "x"}, "--name"},
		"a program that's gone": {[]string{"--binary", "nowhere", "--name", "ghcr.io/a/b:c", "--out", "x"}, "nowhere"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Chdir(t.TempDir())
			err := run(c.args)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names %q", err, c.want)
			}
		})
	}
}
