package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// script is the path of test/cluster/cluster when it made the cluster, else empty.
type script string

// cluster is where the tests run.
var cluster = script(os.Getenv("PODLEASE_E2E_CLUSTER"))

// ours reports whether the cluster's parts can be cut off, frozen and stopped.
func (s script) ours() bool { return s != "" }

// do runs one verb of the script and returns what it prints.
func (s script) do(ctx context.Context, verb ...string) string {
	GinkgoHelper()
	return command(ctx, string(s), verb...)
}

// network is the network namespace of a node; empty when nodes are not ours.
func (s script) network(node string) string {
	if !s.ours() {
		return ""
	}
	return "/var/run/netns/podlease-" + node
}

// needed leaves the spec out where the cluster is not ours.
func (s script) needed() {
	if !s.ours() {
		Skip("left out: needs a cluster whose nodes can be cut off and frozen, so not one given by KUBECONFIG")
	}
}

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return command(ctx, "kubectl", args...)
}

func command(ctx context.Context, name string, args ...string) string {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = &stdout, &stderr
	Expect(c.Run()).To(Succeed(), "%s %s: %s", name, strings.Join(args, " "), &stderr)
	return strings.TrimSpace(stdout.String())
}

// report adds a figure to the spec's report.
func report(what, format string, args ...any) {
	AddReportEntry(what, fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}
