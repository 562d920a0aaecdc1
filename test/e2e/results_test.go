package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The figures of a full run are kept in the repository, with the commit they are of.
var _ = ReportAfterSuite("results", func(suite Report) {
	path := os.Getenv("PODLEASE_E2E_RESULTS")
	if path == "" {
		return
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Results of the last `make e2e-full`\n\n%s, commit %s, %s/%s with %d CPUs, Kubernetes %s: %s in %v.\n",
		suite.StartTime.UTC().Format(time.DateOnly), commit(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), serverVersion(),
		outcome(suite), suite.RunTime.Round(time.Second))
	for _, spec := range suite.SpecReports {
		if spec.LeafNodeType == types.NodeTypeIt {
			writeSpec(&out, spec)
		}
	}
	Expect(os.WriteFile(path, out.Bytes(), 0o600)).To(Succeed())
})

func writeSpec(out *bytes.Buffer, spec SpecReport) {
	fmt.Fprintf(out, "\n## %s\n\n%s, %v\n\n", spec.FullText(), spec.State, spec.RunTime.Round(time.Second))
	for _, entry := range spec.ReportEntries {
		text := entry.StringRepresentation()
		if strings.Contains(text, "\n") {
			text = "\n  ```\n  " + strings.TrimSpace(text) + "\n  ```"
		}
		fmt.Fprintf(out, "- %s: %s\n", entry.Name, text)
	}
}

func outcome(suite Report) string {
	if !suite.SuiteSucceeded {
		return "FAILED"
	}
	specs := suite.SpecReports.WithLeafNodeType(types.NodeTypeIt)
	return fmt.Sprintf("%d of %d passed", specs.CountWithState(types.SpecStatePassed), len(specs))
}

func commit() string {
	head, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(head))
}

func serverVersion() string {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return "unknown"
	}
	return version.GitVersion
}
