package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret. The first three are what cert-manager writes as well.
const (
	certificateKey = corev1.TLSCertKey
	privateKey     = corev1.TLSPrivateKeyKey
	authorityKey   = "ca.crt"
	signingKey     = "ca.key"
	nextKey        = "next-ca.crt"
	nextSigningKey = "next-ca.key"
)

// Lifetimes of what podlease makes itself. All is renewed when two thirds are over.
type Lifetimes struct {
	Authority   time.Duration
	Certificate time.Duration
	// Overlap is how long a new authority is trusted before it signs, and an old one
	// after it has stopped to.
	Overlap time.Duration
}

// DefaultLifetimes are those of an installation that does not say.
var DefaultLifetimes = Lifetimes{Authority: 365 * 24 * time.Hour, Certificate: 90 * 24 * time.Hour, Overlap: 10 * time.Minute}

// material is the content of the Secret.
type material map[string][]byte

// renewed returns what the Secret should have now, and whether that is new.
func (m material) renewed(now time.Time, life Lifetimes, names []string) (material, bool, error) {
	next := maps.Clone(m)
	if next == nil {
		next = material{}
	}
	ca, err := next.signer(now, life)
	if err != nil {
		return nil, false, err
	}
	if !next.servesWith(ca, now, life, names) {
		certificate, key, err := ca.issue(now, life.Certificate, names)
		if err != nil {
			return nil, false, err
		}
		next[certificateKey], next[privateKey] = certificate, key
	}
	return next, !maps.EqualFunc(m, next, bytes.Equal), nil
}

// signer returns the authority that signs now, after having moved the succession on. A
// Secret that cannot be read starts anew.
func (m material) signer(now time.Time, life Lifetimes) (*authority, error) {
	ca, err := readAuthority(m[authorityKey], m[signingKey])
	if err != nil || !now.Before(ca.certificate.NotAfter) {
		if ca, err = newAuthority(now, life.Authority); err != nil {
			return nil, err
		}
		m.enthrone(ca)
		return ca, nil
	}
	next, err := readAuthority(m[nextKey], m[nextSigningKey])
	switch {
	case err == nil && !now.Before(madeAt(next.certificate).Add(life.Overlap)):
		m.enthrone(next)
		return next, nil
	case err != nil && due(ca.certificate, now, life.Authority):
		if next, err = newAuthority(now, life.Authority); err != nil {
			return nil, err
		}
		m[nextKey], m[nextSigningKey] = next.pem, next.keyPEM
	}
	return ca, nil
}

func (m material) enthrone(ca *authority) {
	m[authorityKey], m[signingKey] = ca.pem, ca.keyPEM
	delete(m, nextKey)
	delete(m, nextSigningKey)
}

func madeAt(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdate) }

// due says that two thirds of a lifetime are over.
func due(c *x509.Certificate, now time.Time, lifetime time.Duration) bool {
	return !now.Before(c.NotAfter.Add(-lifetime / 3))
}

func (m material) servesWith(ca *authority, now time.Time, life Lifetimes, names []string) bool {
	pair, err := m.pair()
	return err == nil && slices.Equal(pair.Leaf.DNSNames, names) &&
		pair.Leaf.CheckSignatureFrom(ca.certificate) == nil && !due(pair.Leaf, now, life.Certificate)
}

// pair is the server's certificate with its key.
func (m material) pair() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(m[certificateKey], m[privateKey])
	if err != nil {
		return nil, fmt.Errorf("read %s and %s: %w", certificateKey, privateKey, err)
	}
	return &pair, nil
}

// trusted are the authorities that the API server must know before the certificate is
// served.
func (m material) trusted() []*x509.Certificate {
	return readBundle(slices.Concat(m[authorityKey], []byte("\n"), m[nextKey]))
}
