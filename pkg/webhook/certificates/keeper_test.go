package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const host = "podlease-webhook.podlease-system.svc"

var secretName = types.NamespacedName{Namespace: "podlease-system", Name: "podlease-webhook"}

// world is a cluster with two replicas and a clock.
type world struct {
	*testing.T
	client   client.Client
	now      time.Time
	replicas []*Keeper
}

func newWorld(t *testing.T, external bool) *world {
	w := &world{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	meta := metav1.ObjectMeta{Name: "podlease"}
	w.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "inject.podlease.io"}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "check.podlease.io"}}},
	).Build()
	for range 2 {
		w.replicas = append(w.replicas, &Keeper{
			Client: w.client, Secret: secretName, External: external, Names: []string{host}, Configuration: "podlease",
			Lifetimes: DefaultLifetimes, Log: logr.Discard(), Now: func() time.Time { return w.now },
		})
	}
	return w
}

// bundle is what the API server trusts; both configurations must agree.
func (w *world) bundle() []*x509.Certificate {
	w.Helper()
	m, v := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	for _, o := range []client.Object{m, v} {
		if err := w.client.Get(w.Context(), types.NamespacedName{Name: "podlease"}, o); err != nil {
			w.Fatal(err)
		}
	}
	return readBundle(m.Webhooks[0].ClientConfig.CABundle)
}

// check is what the API server does at each call.
func (w *world) check() {
	w.Helper()
	roots := x509.NewCertPool()
	for _, c := range w.bundle() {
		roots.AddCert(c)
	}
	for n, k := range w.replicas {
		served, err := k.GetCertificate(nil)
		if err != nil {
			w.Fatalf("replica %d at %v: %v", n, w.now, err)
		}
		if _, err := served.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: w.now}); err != nil {
			w.Fatalf("replica %d at %v: %v", n, w.now, err)
		}
	}
}

func (w *world) look() {
	w.Helper()
	for _, k := range w.replicas {
		// The first replica's write makes the second's a conflict at worst.
		for range 3 {
			if err := k.look(w.Context()); err == nil {
				break
			}
		}
		w.checkAll()
	}
}

func (w *world) checkAll() {
	w.Helper()
	for _, k := range w.replicas {
		if k.served.Load() == nil {
			return // not ready, so not asked
		}
	}
	w.check()
}

func (w *world) secret() *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{}
	if err := w.client.Get(w.Context(), secretName, s); err != nil {
		w.Fatal(err)
	}
	return s
}

// Over three years, through every renewal of certificate and authority, the API server
// trusts what each replica serves.
func TestYearsOfRenewals(t *testing.T) {
	w := newWorld(t, false)
	authorities, certificates, most := map[string]bool{}, map[string]bool{}, 0
	var step time.Duration
	for end := w.now.Add(3 * 365 * 24 * time.Hour); w.now.Before(end); w.now = w.now.Add(step) {
		// Looking at each step of years would take long: only near changes.
		step = 24 * time.Hour
		switch s := w.replicas[0].served.Load(); {
		case s == nil || len(w.bundle()) > 1:
			step = 3 * time.Minute
		case due(s.Leaf, w.now.Add(step), DefaultLifetimes.Certificate):
			step = time.Hour
		}
		w.look()
		data := w.secret().Data
		authorities[string(data[authorityKey])], certificates[string(data[certificateKey])] = true, true
		most = max(most, len(w.bundle()))
	}
	if len(authorities) < 4 || len(certificates) < 18 || most != 2 {
		t.Errorf("%d authorities, %d certificates, at most %d trusted at once", len(authorities), len(certificates), most)
	}
}

func TestReplicasShareOneCertificate(t *testing.T) {
	w := newWorld(t, false)
	w.look()
	a, b := w.replicas[0].served.Load(), w.replicas[1].served.Load()
	if a == nil || b == nil || !a.Leaf.Equal(b.Leaf) {
		t.Error("the replicas serve different certificates")
	}
}

// Somebody else changes certificate and authority at the same instant.
func TestExternalAuthorityChanges(t *testing.T) {
	w := newWorld(t, true)
	put := func() {
		ca, err := newAuthority(w.now, time.Hour*1000)
		if err != nil {
			t.Fatal(err)
		}
		certificate, key, err := ca.issue(w.now, time.Hour*900, []string{host})
		if err != nil {
			t.Fatal(err)
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretName.Namespace, Name: secretName.Name}}
		_ = w.client.Delete(t.Context(), s)
		s.ResourceVersion = ""
		s.Data = map[string][]byte{certificateKey: certificate, privateKey: key, authorityKey: ca.pem}
		if err := w.client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	put()
	w.look()
	before := w.replicas[0].served.Load()
	for range 3 {
		put()
		for range 4 {
			w.look()
			w.now = w.now.Add(10 * time.Second)
		}
	}
	if w.replicas[0].served.Load().Leaf.Equal(before.Leaf) {
		t.Error("the new certificate is not served")
	}
	w.now = w.now.Add(DefaultLifetimes.Overlap)
	w.look()
	w.look()
	if n := len(w.bundle()); n != 1 {
		t.Errorf("%d authorities trusted after the overlap, want 1", n)
	}
}

func TestNotReadyWithoutCertificate(t *testing.T) {
	w := newWorld(t, true)
	if err := w.replicas[0].look(t.Context()); err == nil {
		t.Error("no error although the Secret is missing")
	}
	if w.replicas[0].Ready(nil) == nil {
		t.Error("ready without a certificate")
	}
}

func TestCorruptSecretStartsAnew(t *testing.T) {
	w := newWorld(t, false)
	w.look()
	s := w.secret()
	s.Data[signingKey] = []byte("x")
	if err := w.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.look()
		w.now = w.now.Add(10 * time.Second)
	}
	if _, err := readAuthority(w.secret().Data[authorityKey], w.secret().Data[signingKey]); err != nil {
		t.Error(err)
	}
}

func TestOtherNamesNeedAnotherCertificate(t *testing.T) {
	w := newWorld(t, false)
	w.look()
	for _, k := range w.replicas {
		k.Names = []string{host, "localhost"}
	}
	for range 3 {
		w.look()
		w.now = w.now.Add(10 * time.Second)
	}
	if err := w.replicas[1].served.Load().Leaf.VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
}
