// Package admission_test runs podlease-controller, with the rights and the webhook
// configurations that are shipped and no others, against a real API server.
package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/podlease/podlease/test/child"
	"github.com/podlease/podlease/test/controlplane"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// patience bounds what takes no time on an idle machine.
const patience = 60 * time.Second

const system = "podlease-system"

var (
	server *controlplane.Server
	// admin arranges what the kubelet, other controllers and people do.
	admin *kubernetes.Clientset
	any_  client.Client // the same, for objects of any kind
	// hooks is what the API server calls; behind it are the replicas.
	hooks    *balancer
	replicas []*replica
	program  string
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission by a real API server")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	var err error
	server, err = controlplane.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(server.Close)
	admin, err = server.Admin()
	Expect(err).NotTo(HaveOccurred())
	any_, err = client.New(server.AdminConfig(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	hooks = newBalancer()
	program = build(ctx)
	install(ctx)
	for range 2 {
		startReplica(ctx)
	}
})

// A replica outlives the spec that started it.
var _ = AfterSuite(func() {
	for _, r := range replicas {
		_ = r.process.Kill()
	}
})

var _ = ReportAfterEach(func(r SpecReport) {
	if !r.Failed() {
		return
	}
	for n, replica := range replicas {
		GinkgoWriter.Printf("controller %d:\n%s\n", n, replica.process.Output())
	}
})

// build builds the controller as it is shipped, unless $PODLEASE_CONTROLLER names one.
func build(ctx context.Context) string {
	GinkgoHelper()
	if path := os.Getenv("PODLEASE_CONTROLLER"); path != "" {
		return path
	}
	out := filepath.Join(GinkgoT().TempDir(), "podlease-controller")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, "../../cmd/podlease-controller")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(text))
	return out
}

// install applies config/, but for what needs a kubelet, with webhooks that the API
// server reaches without a network.
func install(ctx context.Context) {
	GinkgoHelper()
	newNamespace(ctx, system, nil)
	for _, dir := range []string{"rbac", "policy", "webhook"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "config", dir, "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			if filepath.Base(file) != "kustomization.yaml" {
				apply(ctx, file)
			}
		}
	}
}

func apply(ctx context.Context, file string) {
	GinkgoHelper()
	raw, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	o := &unstructured.Unstructured{}
	// The tests have one quorum more than config/, as the chart would render it.
	raw = bytes.ReplaceAll(raw, []byte(`["podlease-default"]`), []byte(`["podlease-default","podlease-own"]`))
	Expect(yaml.Unmarshal(raw, &o.Object)).To(Succeed(), file)
	hooks.redirect(o)
	Expect(any_.Create(ctx, o)).To(Succeed(), file)
}

// balancer passes connections to one of the replicas, as a Service does.
type balancer struct {
	listener net.Listener
	next     atomic.Uint64

	mu     sync.Mutex
	behind []*replica
}

func newBalancer() *balancer {
	GinkgoHelper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	b := &balancer{listener: l}
	go b.serve()
	DeferCleanup(l.Close)
	return b
}

func (b *balancer) serve() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.pass(c)
	}
}

func (b *balancer) pass(c net.Conn) {
	defer c.Close()
	up := b.dial()
	if up == nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}

// add puts a replica behind the balancer.
func (b *balancer) add(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind = append(b.behind, r)
}

func (b *balancer) all() []*replica {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.behind)
}

// dial connects to the next replica that is part of the Service; nil when none is.
func (b *balancer) dial() net.Conn {
	n, behind := int(b.next.Add(1)), b.all()
	for i := range behind {
		r := behind[(n+i)%len(behind)]
		if !r.endpoint.Load() {
			continue
		}
		if up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(r.hook)); err == nil {
			return up
		}
	}
	return nil
}

// redirect puts the balancer in the place of the Service.
func (b *balancer) redirect(o *unstructured.Unstructured) {
	list, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, w := range list {
		cc := w.(map[string]any)["clientConfig"].(map[string]any)
		path := cc["service"].(map[string]any)["path"].(string)
		delete(cc, "service")
		cc["url"] = fmt.Sprintf("https://localhost:%d%s", b.listener.Addr().(*net.TCPAddr).Port, path)
	}
	if list != nil {
		Expect(unstructured.SetNestedSlice(o.Object, list, "webhooks")).To(Succeed())
	}
}

// replica is one running controller.
type replica struct {
	process               *child.Process
	hook, health, metrics int
	endpoint              atomic.Bool // part of the Service
}

// startReplica starts a controller with its own ServiceAccount's token.
func startReplica(ctx context.Context, flags ...string) *replica {
	GinkgoHelper()
	r := &replica{}
	for _, p := range []*int{&r.hook, &r.health, &r.metrics} {
		var err error
		*p, err = child.FreePort()
		Expect(err).NotTo(HaveOccurred())
	}
	args := append([]string{
		"--config=" + controllerConfig(), "--namespace=" + system, "--kubeconfig=" + kubeconfig(ctx),
		"--webhook-listen=127.0.0.1:" + strconv.Itoa(r.hook),
		"--health-listen=127.0.0.1:" + strconv.Itoa(r.health),
		"--metrics-listen=127.0.0.1:" + strconv.Itoa(r.metrics),
		"--certificate-interval=200ms", "--drain=1s",
	}, flags...)
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Env = []string{"GOMEMLIMIT=50MiB"}
	var err error
	r.process, err = child.Start(cmd)
	Expect(err).NotTo(HaveOccurred())
	replicas = append(replicas, r)
	hooks.add(r)
	Eventually(r.ready).WithContext(ctx).Should(Succeed(), r.process.Output)
	r.endpoint.Store(true)
	return r
}

func (r *replica) ready(ctx context.Context) error {
	if s := r.process.Ended(); s != nil {
		return StopTrying("the controller ended: " + r.process.Output())
	}
	_, err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz?verbose", r.health))
	return err
}

// stop ends a replica as Kubernetes does: the endpoint goes, then SIGTERM.
func (r *replica) stop() {
	GinkgoHelper()
	r.endpoint.Store(false)
	Expect(r.process.Signal(syscall.SIGTERM)).To(Succeed())
	Eventually(r.process.Done()).Should(BeClosed())
	Expect(r.process.Ended().ExitCode()).To(BeZero(), r.process.Output())
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// controllerConfig is the shipped configuration, for a server that is called localhost,
// with texts replaced in pairs.
func controllerConfig(replace ...string) string {
	GinkgoHelper()
	raw, err := os.ReadFile("../../config/controller/controller_config_map.yaml")
	Expect(err).NotTo(HaveOccurred())
	var m corev1.ConfigMap
	Expect(yaml.Unmarshal(raw, &m)).To(Succeed())
	text := strings.ReplaceAll(m.Data["config.yaml"], "podlease-webhook.podlease-system.svc", "localhost")
	text = strings.Replace(text, "quorums:\n", "quorums:\n  open: {nodes: [\"redis:6379\"], copySecret: true}\n  own: {nodes: [\"redis:6379\"], copySecret: false}\n", 1)
	text = strings.NewReplacer(replace...).Replace(text)
	path := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	return path
}

func kubeconfig(ctx context.Context) string {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + server.Addr(), CertificateAuthority: server.CAFile()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token(ctx, system, "podlease-controller", nil)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// token is a ServiceAccount's, bound to a Pod where one is given.
func token(ctx context.Context, namespace, account string, pod *corev1.Pod) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	answer, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return answer.Status.Token
}

// as is a client with somebody's token.
func as(ctx context.Context, namespace, account string, pod *corev1.Pod) *kubernetes.Clientset {
	GinkgoHelper()
	config := rest.AnonymousClientConfig(server.AdminConfig())
	config.BearerToken = token(ctx, namespace, account, pod)
	c, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var namespaces atomic.Int64

// namespace makes a new one with a default ServiceAccount, as a controller would.
func namespace(ctx context.Context, labels ...string) string {
	GinkgoHelper()
	name := fmt.Sprintf("shop-%d", namespaces.Add(1))
	set := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		set[labels[i]] = labels[i+1]
	}
	newNamespace(ctx, name, set)
	return name
}

func newNamespace(ctx context.Context, name string, labels map[string]string) {
	GinkgoHelper()
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = admin.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// warnings collects what the API server says beside its answers.
type warnings struct{ bytes.Buffer }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.WriteString(text + "\n") }

func withWarnings() (*kubernetes.Clientset, *warnings) {
	GinkgoHelper()
	w := &warnings{}
	config := server.AdminConfig()
	config.WarningHandler = w
	c, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return c, w
}

func webhookConfiguration(ctx context.Context) *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	c, err := admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "podlease", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return c
}
