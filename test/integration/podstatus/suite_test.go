// Package podstatus_test publishes to a real API server, with the rights that are
// shipped and no others.
package podstatus_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/podlease/podlease/test/controlplane"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// patience bounds what takes a moment on an idle machine; it is long because a machine
// that runs tests may be overloaded.
const patience = 3 * time.Minute

var (
	server  *controlplane.Server
	program sidecartest.Program
	// admin arranges what the kubelet, controllers and people do. No code under test has it.
	admin *kubernetes.Clientset
)

func TestPodStatus(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Publishing to the API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	program = sidecartest.Build(GinkgoTB())
	var err error
	server, err = controlplane.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	admin, err = server.Admin()
	Expect(err).NotTo(HaveOccurred())
	for _, file := range []string{"sidecar_role.yaml", "sidecar_leases_role.yaml"} {
		var role rbacv1.ClusterRole
		shipped(&role, "config", "rbac", file)
		_, err = admin.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
})

// shipped reads a manifest of the repository.
func shipped(into any, path ...string) {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(raw, into)).To(Succeed())
}
