package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutAClusterItSaysWhatIsMissingAndHowToNameOne(t *testing.T) {
	dir := t.TempDir()
	empty, none := filepath.Join(dir, "empty"), filepath.Join(dir, "none")
	if err := os.WriteFile(empty, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a Pod
	remedies := []string{"--kubeconfig", "KUBECONFIG", "Pod"}
	for name, tc := range map[string]struct {
		environment string
		args        []string
		says        []string
	}{
		"$KUBECONFIG is not there":          {none, nil, append(remedies, none)},
		"$KUBECONFIG has nothing":           {empty, nil, append(remedies, empty)},
		"--context of nothing":              {none, []string{"--context=prod"}, []string{"prod"}},
		"--kubeconfig has nothing":          {none, []string{"--kubeconfig=" + empty}, append(remedies, empty)},
		"--kubeconfig is not there":         {none, []string{"--kubeconfig=" + none}, []string{none, "no such file"}},
		"--context that is not in the file": {empty, []string{"--context=prod"}, []string{"prod"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.environment)
			for _, command := range [][]string{{"step-down", "shop/orders"}, {"status", "--redis=127.0.0.1:1", "-n=shop", "shop/orders"}} {
				var stdout, stderr strings.Builder
				if code := run(t.Context(), append(command, tc.args...), nil, &stdout, &stderr); code != 1 {
					t.Errorf("%s: exit code %d, want 1", command[0], code)
				}
				if strings.Count(stderr.String(), "\n") != 1 || strings.Contains(stderr.String(), "KUBERNETES_MASTER") {
					t.Errorf("%s: %q, want one line, and no word of what podlease does not read", command[0], stderr.String())
				}
				for _, part := range tc.says {
					if !strings.Contains(stderr.String(), part) {
						t.Errorf("%s: %q does not say %s", command[0], stderr.String(), part)
					}
				}
			}
		})
	}
}
