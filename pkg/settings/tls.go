package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
)

// TLS is how rediss:// nodes are reached. Files are read at each Config, so a renewed
// certificate counts from the next connection on.
type TLS struct {
	CAFile     string
	CertFile   string
	KeyFile    string
	ServerName string
}

func (t *TLS) addFlags(f *Flags) {
	f.String(&t.CAFile, "", Flag{Name: "tls-ca-file", Usage: "the authorities to trust for rediss:// nodes; read again when it changes", Default: "the system's", Allowed: "a file that can be read and has certificates in PEM"})
	f.String(&t.CertFile, "", Flag{Name: "tls-cert-file", Usage: "the own certificate for rediss:// nodes; read again when it changes", Allowed: "a file that can be read and has a certificate in PEM, together with --tls-key-file"})
	f.String(&t.KeyFile, "", Flag{Name: "tls-key-file", Usage: "the key of --tls-cert-file; read again when it changes", Allowed: "a file that can be read and has the key of --tls-cert-file in PEM"})
	f.String(&t.ServerName, "", Flag{Name: "tls-server-name", Usage: "the name that certificates of nodes must have", Default: "the node's host", Allowed: "a host name"})
}

func (t *TLS) check(f *Flags, nodes []Node) error {
	values := []struct{ flag, value string }{
		{"tls-ca-file", t.CAFile}, {"tls-cert-file", t.CertFile}, {"tls-key-file", t.KeyFile}, {"tls-server-name", t.ServerName},
	}
	for _, v := range values {
		if f.Given(v.flag) && !anyTLS(nodes) {
			return f.Reject(v.flag, v.value, "a rediss:// node in --redis as well: TLS is used for those only")
		}
		if f.Given(v.flag) && v.value == "" {
			return f.Reject(v.flag, v.value, f.allowed[v.flag])
		}
	}
	if t.ServerName != "" && net.ParseIP(t.ServerName) == nil && !hostName.MatchString(t.ServerName) {
		return f.Reject("tls-server-name", t.ServerName, f.allowed["tls-server-name"])
	}
	return t.checkFiles(f)
}

func (t *TLS) checkFiles(f *Flags) error {
	if _, err := t.authorities(); err != nil {
		return f.Reject("tls-ca-file", t.CAFile, fmt.Sprintf("%s: %v", f.allowed["tls-ca-file"], err))
	}
	if t.CertFile == "" && t.KeyFile != "" {
		return f.Reject("tls-key-file", t.KeyFile, "--tls-cert-file as well")
	}
	if t.CertFile != "" && t.KeyFile == "" {
		return f.Reject("tls-cert-file", t.CertFile, "--tls-key-file as well")
	}
	if _, err := t.certificates(); err != nil {
		return f.Reject("tls-cert-file", t.CertFile, fmt.Sprintf("%s: %v", f.allowed["tls-cert-file"], err))
	}
	return nil
}

func anyTLS(nodes []Node) bool {
	for _, node := range nodes {
		if node.TLS {
			return true
		}
	}
	return false
}

// Config makes the settings for one connection to a node; nil where the node is
// reached without TLS.
func (t *TLS) Config(node Node) (*tls.Config, error) {
	if !node.TLS {
		return nil, nil
	}
	roots, err := t.authorities()
	if err != nil {
		return nil, fmt.Errorf("TLS for node %s: %w", node.Name, err)
	}
	certs, err := t.certificates()
	if err != nil {
		return nil, fmt.Errorf("TLS for node %s: %w", node.Name, err)
	}
	name := t.ServerName
	if name == "" {
		name, _, _ = net.SplitHostPort(node.Endpoint) // parsed before: it has a port
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: certs, ServerName: name}, nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$`)

var errNoCertificate = errors.New("no certificate in PEM in it")

// authorities returns nil, which means the system's, where no file was given.
func (t *TLS) authorities() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: %w", t.CAFile, errNoCertificate)
	}
	return pool, nil
}

func (t *TLS) certificates() ([]tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", t.CertFile, t.KeyFile, err)
	}
	return []tls.Certificate{cert}, nil
}
