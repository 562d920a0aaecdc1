// Package e2e_test checks on a real cluster of three nodes what config/samples and the
// chart promise: a Service that reaches exactly the Pod that holds the lease. Run it with
// `make e2e` or `make e2e-full`.
package e2e_test

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	namespace = "podlease-sample"
	sample    = "../../config/samples"
	// ttl and drift are those of the sample: the sidecar's default and a hundredth.
	ttl   = 10 * time.Second
	drift = ttl / 100
	// patience ends a wait for what has no bound of its own.
	patience = 2 * time.Minute
)

// Labels choose what runs.
var (
	// smoke is the short selection.
	smoke = Label("smoke")
	// ownCluster marks what needs to cut off, freeze or stop parts of the cluster.
	ownCluster = Label("own-cluster")
)

var (
	// client is an administrator's. What is tested never uses it.
	client kubernetes.Interface
	// admin is how client reaches the API server.
	admin *rest.Config
)

func TestEndToEnd(t *testing.T) {
	if os.Getenv("PODLEASE_E2E") == "" {
		t.Skip("needs a cluster: run it with make e2e")
	}
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = 40 * time.Minute
	RunSpecs(t, "end to end", suite, reporter)
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	admin, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	admin.QPS, admin.Burst = -1, 0
	client, err = kubernetes.NewForConfig(admin)
	Expect(err).NotTo(HaveOccurred())
	kubectl(ctx, "apply", "-k", sample)
	DeferCleanup(func(ctx context.Context) {
		if !cluster.ours() {
			kubectl(ctx, "delete", "-k", sample, "--wait=false")
		}
	})
}, NodeTimeout(patience))
