package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// lookEvery is how often the Secret and the configurations are read.
	lookEvery = 10 * time.Second
	// retryEvery is how often what went wrong is tried again.
	retryEvery = time.Second
	// settle is how long an API server gets to see a changed configuration before a
	// certificate that needs it is served.
	settle     = 5 * time.Second
	lookBudget = 5 * time.Second
)

// Keeper keeps one server's certificate up to date.
type Keeper struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Secret holds the certificate.
	Secret types.NamespacedName
	// External says that somebody else fills the Secret.
	External bool
	// Labels are put on a Secret that podlease makes.
	Labels map[string]string
	// Names are the DNS names of the server.
	Names []string
	// Configuration is the name of both webhook configurations; empty leaves them alone.
	Configuration string
	Lifetimes     Lifetimes
	Log           logr.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// LookEvery overrides how often all is looked at; zero means every 10 s.
	LookEvery time.Duration

	served       atomic.Pointer[tls.Certificate]
	pending      []byte // the certificate that waits to be served
	pendingSince time.Time
	expiry       atomic.Int64
}

// NeedLeaderElection says that every replica keeps its own server's certificate.
func (*Keeper) NeedLeaderElection() bool { return false }

// Register adds the metric of the certificate's end.
func (k *Keeper) Register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "podlease_certificate_expiry_timestamp_seconds",
		Help: "When the webhook server's certificate ends, in seconds since 1970.",
	}, func() float64 { return float64(k.expiry.Load()) }))
}

// GetCertificate is for the server's TLS configuration: each handshake gets the newest.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.served.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no certificate yet")
}

// Ready is a health check: not before there is a certificate that the API server trusts.
func (k *Keeper) Ready(*http.Request) error {
	_, err := k.GetCertificate(nil)
	return err
}

// Start looks after the certificate until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := k.LookEvery
		if wait == 0 {
			wait = lookEvery
		}
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica was faster
				k.Log.Error(err, "webhook certificate not up to date")
			}
			wait = retryEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (k *Keeper) now() time.Time {
	if k.Now == nil {
		return time.Now()
	}
	return k.Now()
}

// look does one round: Secret, then trust, then serving.
func (k *Keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookBudget)
	defer cancel()
	m, err := k.material(ctx)
	if err != nil {
		return err
	}
	pair, err := m.pair()
	if err != nil {
		return fmt.Errorf("use Secret %s: %w", k.Secret, err)
	}
	if err := k.trustAll(ctx, m); err != nil {
		return err
	}
	k.serve(pair, m[certificateKey])
	return nil
}

// material reads the Secret, and renews it where that is our part.
func (k *Keeper) material(ctx context.Context) (material, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name, Labels: k.Labels}}
	err := k.Client.Get(ctx, k.Secret, secret)
	found := err == nil
	if err != nil && (k.External || !apierrors.IsNotFound(err)) {
		return nil, fmt.Errorf("read Secret %s: %w", k.Secret, err)
	}
	if k.External {
		return secret.Data, nil
	}
	next, changed, err := material(secret.Data).renewed(k.now(), k.Lifetimes, k.Names)
	if err != nil || !changed {
		return next, err
	}
	return next, k.write(ctx, secret, found, next)
}

// write is a compare-and-swap: of several replicas one wins, and the others read what
// it wrote.
func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, found bool, m material) error {
	secret.Data = m
	var err error
	if found {
		err = k.Client.Update(ctx, secret)
	} else {
		secret.Type = corev1.SecretTypeTLS
		err = k.Client.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", k.Secret, err)
	}
	k.Log.Info("webhook certificate renewed", "secret", k.Secret)
	return nil
}

func (k *Keeper) trustAll(ctx context.Context, m material) error {
	wanted := m.trusted()
	if k.Configuration == "" || len(wanted) == 0 {
		return nil
	}
	meta := metav1.ObjectMeta{Name: k.Configuration}
	for _, object := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta},
	} {
		if err := k.trust(ctx, object, wanted); err != nil {
			return err
		}
	}
	return nil
}

// serve takes a new certificate into use, at once when there was none, else when the API
// servers have had time to see whom to trust.
func (k *Keeper) serve(pair *tls.Certificate, text []byte) {
	served := k.served.Load()
	if served != nil && bytes.Equal(served.Certificate[0], pair.Certificate[0]) {
		k.pending = nil
		return
	}
	if served != nil && !bytes.Equal(k.pending, text) {
		k.pending, k.pendingSince = text, k.now()
	}
	if served != nil && k.now().Sub(k.pendingSince) < settle {
		return
	}
	k.served.Store(pair)
	k.expiry.Store(pair.Leaf.NotAfter.Unix())
	k.pending = nil
	k.Log.Info("webhook certificate in use", "until", pair.Leaf.NotAfter)
}
