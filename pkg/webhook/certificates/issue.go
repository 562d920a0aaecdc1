package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// backdate allows for API servers whose clocks are behind.
const backdate = time.Hour

// authority can sign certificates.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem, keyPEM []byte
}

func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "podlease webhook authority"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return readAuthority(encodeCertificate(der), keyPEM)
}

func readAuthority(certificate, key []byte) (*authority, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("read the authority: it cannot sign certificates")
	}
	return &authority{certificate: pair.Leaf, key: signer, pem: certificate, keyPEM: key}, nil
}

// issue makes a server certificate.
func (a *authority) issue(now time.Time, lifetime time.Duration, names []string) (certificate, keyPEM []byte, err error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issue a certificate: %w", err)
	}
	keyPEM, err = encodeKey(key)
	return encodeCertificate(der), keyPEM, err
}

func newKey() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	return key, serial, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// readBundle reads all certificates of a PEM text, without doubles; what cannot be read
// is left out.
func readBundle(text []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil && block.Type == "CERTIFICATE" && !contains(out, c) {
			out = append(out, c)
		}
	}
}

func contains(bundle []*x509.Certificate, c *x509.Certificate) bool {
	for _, b := range bundle {
		if b.Equal(c) {
			return true
		}
	}
	return false
}

func writeBundle(bundle []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range bundle {
		out.Write(encodeCertificate(c.Raw))
	}
	return out.Bytes()
}
