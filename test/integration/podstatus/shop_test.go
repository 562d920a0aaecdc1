package podstatus_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/podstatus"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const account = "orders" // of config/samples/rolebinding.yaml

// shop is a namespace with the ServiceAccount, Role and RoleBinding of the samples.
type shop struct{ name string }

func newShop(ctx context.Context) *shop {
	GinkgoHelper()
	ns, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	s := &shop{name: ns.Name}
	_, err = admin.CoreV1().ServiceAccounts(s.name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	var role rbacv1.Role
	shipped(&role, "config", "samples", "role.yaml")
	_, err = admin.RbacV1().Roles(s.name).Create(ctx, &role, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	s.bind(ctx)
	return s
}

// bind gives the shipped rights, and waits until the API server knows.
func (s *shop) bind(ctx context.Context) {
	GinkgoHelper()
	var binding rbacv1.RoleBinding
	shipped(&binding, "config", "samples", "rolebinding.yaml")
	_, err := admin.RbacV1().RoleBindings(s.name).Create(ctx, &binding, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(s.mayPublish).WithArguments(ctx).Should(BeTrue())
}

func (s *shop) unbind(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.RbacV1().RoleBindings(s.name).Delete(ctx, "podlease-sidecar", metav1.DeleteOptions{})).To(Succeed())
	Eventually(s.mayPublish).WithArguments(ctx).Should(BeFalse())
}

func (s *shop) mayPublish(ctx context.Context) (bool, error) {
	return s.may(ctx, &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Subresource: "status"})
}

// bindLeases gives the rights that fencing tokens from a Lease need.
func (s *shop) bindLeases(ctx context.Context) {
	GinkgoHelper()
	var binding rbacv1.RoleBinding
	shipped(&binding, "config", "samples", "rolebinding.yaml")
	binding.Name, binding.RoleRef.Kind, binding.RoleRef.Name = "podlease-sidecar-leases", "ClusterRole", "podlease-sidecar-leases"
	_, err := admin.RbacV1().RoleBindings(s.name).Create(ctx, &binding, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(s.may).WithArguments(ctx, &authorizationv1.ResourceAttributes{Group: "coordination.k8s.io", Verb: "update", Resource: "leases"}).Should(BeTrue())
}

// may tells whether the sidecars of the namespace have a right.
func (s *shop) may(ctx context.Context, right *authorizationv1.ResourceAttributes) (bool, error) {
	right.Namespace = s.name
	review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + s.name + ":" + account,
			ResourceAttributes: right,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// replace deletes a Pod at once and creates another of its name.
func (s *shop) replace(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	s.remove(ctx, pod)
	return s.pod(ctx, pod.Name)
}

func (s *shop) remove(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	Expect(admin.CoreV1().Pods(s.name).Delete(ctx, pod.Name, now)).To(Succeed())
}

// expiredToken is a token that was good two minutes ago; the API server is a minute
// lenient.
func (s *shop) expiredToken(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	a, err := admin.CoreV1().ServiceAccounts(s.name).Get(ctx, account, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := server.Token(pod, string(a.UID), time.Now().Add(-2*time.Minute))
	Expect(err).NotTo(HaveOccurred())
	return token
}

// pod creates a Pod and reports its condition as a kubelet does.
func (s *shop) pod(ctx context.Context, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "orders"}, Annotations: map[string]string{"example.com/note": "kept"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			ReadinessGates:     []corev1.PodReadinessGate{{ConditionType: "podlease.io/active"}},
			Containers:         []corev1.Container{{Name: "app", Image: "example.com/app:1"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	pod, err := admin.CoreV1().Pods(s.name).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady"},
	}
	pod, err = admin.CoreV1().Pods(s.name).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// get reads a Pod, with the rights of a person.
func (s *shop) get(ctx context.Context, name string) *corev1.Pod {
	GinkgoHelper()
	pod, err := admin.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// role is a Pod's role label; empty while the API server is away.
func (s *shop) role(ctx context.Context, name string) string {
	pod, err := admin.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return pod.Labels[podstatus.DefaultRoleLabel]
}

// relabel does what no sidecar may: it changes the label of a Pod by hand.
func (s *shop) relabel(ctx context.Context, name, role string) {
	GinkgoHelper()
	pod := s.get(ctx, name)
	pod.Labels[podstatus.DefaultRoleLabel] = role
	_, err := admin.CoreV1().Pods(s.name).Update(ctx, pod, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// token issues a token as the kubelet mounts it: of the Pod's ServiceAccount, bound to the Pod.
func (s *shop) token(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	t, err := admin.CoreV1().ServiceAccounts(s.name).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return t.Status.Token
}

// tokenFile mounts a token.
func tokenFile(token string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "token")
	Expect(os.WriteFile(path, []byte(token), 0o600)).To(Succeed())
	return path
}

// connect makes the client a sidecar has, to the API server or a proxy before it.
func connect(host, ca, tokenFile string) *apiserver.Client {
	GinkgoHelper()
	client, err := apiserver.New(host, &transport.Config{BearerTokenFile: tokenFile, TLS: transport.TLSConfig{CAFile: ca}})
	Expect(err).NotTo(HaveOccurred())
	return client
}

func direct(tokenFile string) *apiserver.Client {
	GinkgoHelper()
	return connect("https://"+server.Addr(), server.CAFile(), tokenFile)
}

func named(pod *corev1.Pod) podstatus.Pod {
	return podstatus.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

// publish publishes what a commanded candidate is, until the spec ends.
func publish(api *apiserver.Client, pod podstatus.Pod) (*podstatus.Publisher, *candidate) {
	GinkgoHelper()
	pub, err := podstatus.New(podstatus.Config{API: api, Pod: pod, ReadinessGate: true, Log: logr.Discard()})
	Expect(err).NotTo(HaveOccurred())
	c := newCandidate()
	background(func(ctx context.Context) { pub.Run(ctx, c) })
	return pub, c
}

// background runs f until the spec ends.
func background(f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	DeferCleanup(func() {
		cancel()
		<-done
	})
}

// candidate is what a spec says it is.
type candidate struct {
	mu      sync.Mutex
	lead    election.Leadership
	changed chan struct{}
}

func newCandidate() *candidate {
	return &candidate{lead: election.Leadership{Role: election.Standby, Since: time.Now()}, changed: make(chan struct{})}
}

func (c *candidate) Leadership() election.Leadership {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lead
}

func (c *candidate) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *candidate) elect(token uint64) {
	c.set(election.Leadership{Role: election.Active, FencingToken: token, ValidFor: time.Hour})
}

func (c *candidate) lose() { c.set(election.Leadership{Role: election.Standby}) }

func (c *candidate) set(l election.Leadership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.Since = time.Now()
	c.lead = l
	close(c.changed)
	c.changed = make(chan struct{})
}

// proxy stands before the API server and answers in its place while it has a fault.
type proxy struct {
	url, ca string

	mu    sync.Mutex
	fault http.HandlerFunc
	asked int
}

func newProxy() *proxy {
	GinkgoHelper()
	ca, err := os.ReadFile(server.CAFile())
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(ca)).To(BeTrue())
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: server.Addr()})
	behind.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	p := &proxy{}
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := p.next(); fault != nil {
			fault(w, r)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	DeferCleanup(front.Close)
	p.url, p.ca = front.URL, filepath.Join(GinkgoT().TempDir(), "ca.crt")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	Expect(os.WriteFile(p.ca, cert, 0o600)).To(Succeed())
	return p
}

func (p *proxy) next() http.HandlerFunc {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return p.fault
}

func (p *proxy) fail(fault http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.asked = fault, 0
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// hang reads the request and never answers.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then does the server see the client leave
	<-r.Context().Done()
}

// answering answers with a status and nothing of Kubernetes.
func answering(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(code)
	}
}
