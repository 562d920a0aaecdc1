package settings_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/settings"
)

// completed parses the flags about the nodes.
func completed(t *testing.T, args ...string) *settings.Redis {
	t.Helper()
	r, f := &settings.Redis{}, settings.NewFlags("test")
	r.AddFlags(f)
	if err := f.Parse(args, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Complete(f); err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNamesOfNodes(t *testing.T) {
	tests := map[string]string{
		"redis-0:6379":             "redis-0:6379",
		"Redis-0.Example.org:6379": "redis-0.example.org:6379",
		"redis://me@a:1/0":         "a:1",
		"rediss://a:1":             "a:1", // so that TLS can be rolled out Pod by Pod
		"redis://a:1/7":            "a:1/7",
		"[::1]:6379":               "[::1]:6379",
		"unix:///run/Redis.sock":   "unix:///run/Redis.sock",
	}
	for given, want := range tests {
		if got := completed(t, "--redis", given).Nodes[0].Name; got != want {
			t.Errorf("%s: name %q, want %q", given, got, want)
		}
	}
}

func TestCredentialsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	user, password := filepath.Join(dir, "user"), filepath.Join(dir, "password")
	write(t, user, "one\n")
	write(t, password, " first \n")
	r := completed(t, "--redis=a:1,redis://own@b:1", "--username-file="+user, "--password-file="+password)
	check := func(node int, wantUser, wantPassword string) {
		t.Helper()
		u, p, err := r.Credentials.Read(r.Nodes[node])
		if err != nil || u != wantUser || p != wantPassword {
			t.Errorf("got %q %q %v, want %q %q", u, p, err, wantUser, wantPassword)
		}
	}
	check(0, "one", " first ")
	check(1, "own", " first ")
	write(t, user, "two")
	write(t, password, "second\n\n")
	check(0, "two", "second\n") // one newline is an editor's, another is the password's

	if err := os.Remove(password); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Credentials.Read(r.Nodes[0]); err == nil || !strings.Contains(err.Error(), password) || !strings.Contains(err.Error(), "a:1") {
		t.Errorf("error %v does not name the file and the node", err)
	}
}

func TestNoCredentials(t *testing.T) {
	r := completed(t, "--redis=a:1")
	if u, p, err := r.Credentials.Read(r.Nodes[0]); u != "" || p != "" || err != nil {
		t.Errorf("got %q %q %v", u, p, err)
	}
	r = completed(t, "--redis=a:1", "--username=me")
	if u, _, _ := r.Credentials.Read(r.Nodes[0]); u != "me" {
		t.Errorf("user %q", u)
	}
}

// certificate makes a certificate that vouches for itself.
func certificate(t *testing.T, host string) (certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", keyDER)
}

// shake shakes hands between a client with cfg and a server with the certificate.
func shake(t *testing.T, cfg *tls.Config, certPEM, keyPEM string) error {
	t.Helper()
	cert, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	server := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	go func() {
		_ = server.HandshakeContext(t.Context()) // the client says how it went
		_, _ = server.Read(make([]byte, 1))
		theirs.Close()
	}()
	defer ours.Close()
	return tls.Client(ours, cfg).HandshakeContext(t.Context())
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	oldCert, oldKey := certificate(t, "redis.example.org")
	newCert, newKey := certificate(t, "redis.example.org")
	write(t, ca, oldCert)
	write(t, cert, oldCert)
	write(t, key, oldKey)
	r := completed(t, "--redis=rediss://redis.example.org:1,b:1", "--tls-ca-file="+ca, "--tls-cert-file="+cert, "--tls-key-file="+key)
	config := func() *tls.Config {
		t.Helper()
		cfg, err := r.TLS.Config(r.Nodes[0])
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	before := config()
	if err := shake(t, before, oldCert, oldKey); err != nil {
		t.Errorf("the node's certificate was refused: %v", err)
	}
	if err := shake(t, before, newCert, newKey); err == nil {
		t.Error("a certificate of an unknown authority was taken")
	}
	write(t, ca, newCert)
	write(t, cert, newCert)
	write(t, key, newKey)
	after := config()
	if err := shake(t, after, newCert, newKey); err != nil {
		t.Errorf("the changed authority was not read: %v", err)
	}
	if bytes.Equal(after.Certificates[0].Certificate[0], before.Certificates[0].Certificate[0]) {
		t.Error("the changed own certificate was not read")
	}
	if cfg, err := r.TLS.Config(r.Nodes[1]); cfg != nil || err != nil {
		t.Errorf("a node without TLS got %v, %v", cfg, err)
	}
	write(t, ca, "nonsense")
	if _, err := r.TLS.Config(r.Nodes[0]); err == nil || !strings.Contains(err.Error(), ca) {
		t.Errorf("error %v does not name the file", err)
	}
}

func TestServerNameMayDiffer(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	cert, key := certificate(t, "redis.internal")
	write(t, ca, cert)
	r := completed(t, "--redis=rediss://10.0.0.1:1", "--tls-ca-file="+ca, "--tls-server-name=redis.internal")
	cfg, err := r.TLS.Config(r.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := shake(t, cfg, cert, key); err != nil {
		t.Error(err)
	}
}

func TestConfigsCarryEverySetting(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	write(t, password, "secret")
	r := completed(t, "--redis=a:1,rediss://me@b:2", "--password-file="+password, "--allow-unfit-nodes")
	configs := r.Configs(settings.Lease{NodeTimeout: 123 * time.Millisecond})
	if len(configs) != 2 {
		t.Fatalf("%d nodes", len(configs))
	}
	second := configs[1]
	if second.Address != "rediss://me@b:2" || second.Name != "b:2" || second.NodeTimeout != 123*time.Millisecond || !second.AllowUnfit {
		t.Errorf("got %+v", second)
	}
	if u, p, err := second.Credentials(t.Context()); u != "me" || p != "secret" || err != nil {
		t.Errorf("credentials %q %q %v", u, p, err)
	}
	if cfg, err := second.TLS(); cfg == nil || cfg.ServerName != "b" || err != nil {
		t.Errorf("TLS %v %v", cfg, err)
	}
}
