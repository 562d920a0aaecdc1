package apiserver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/transport"
)

// Where the kubelet puts a Pod's own credentials; both files change while the Pod runs.
const (
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path, not a credential
	caFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// InCluster makes a client with the Pod's own ServiceAccount.
func InCluster() (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("not in a Pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; give a kubeconfig")
	}
	if _, err := os.Stat(tokenFile); err != nil {
		return nil, fmt.Errorf("the Pod's ServiceAccount token: %w; set automountServiceAccountToken: true", err)
	}
	return New("https://"+net.JoinHostPort(host, port), &transport.Config{
		BearerTokenFile: tokenFile,
		TLS:             transport.TLSConfig{CAFile: caFile},
	})
}

// FromKubeconfig makes a client from a kubeconfig file's current context. Tokens,
// token files, passwords and client certificates are understood; exec plugins are
// not, since a sidecar's image has nothing to run.
func FromKubeconfig(path string) (*Client, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(raw, &k); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	host, cfg, err := k.current(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return New(host, cfg)
}

// kubeconfig is as much of the file as is used here.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster cluster
	}
	Users []struct {
		Name string
		User user
	}
}

type cluster struct {
	Server     string
	CAFile     string  `yaml:"certificate-authority"`
	CAData     encoded `yaml:"certificate-authority-data"`
	Insecure   bool    `yaml:"insecure-skip-tls-verify"`
	ServerName string  `yaml:"tls-server-name"`
	ProxyURL   string  `yaml:"proxy-url"`
}

type user struct {
	Token              string
	TokenFile          string  `yaml:"tokenFile"`
	CertFile           string  `yaml:"client-certificate"`
	CertData           encoded `yaml:"client-certificate-data"`
	KeyFile            string  `yaml:"client-key"`
	KeyData            encoded `yaml:"client-key-data"`
	Username, Password string
	As                 string
	AsGroups           []string  `yaml:"as-groups"`
	Exec               yaml.Node `yaml:"exec"`
	AuthProvider       yaml.Node `yaml:"auth-provider"`
}

// encoded is a base64 field.
type encoded []byte

// UnmarshalYAML decodes the field.
func (e *encoded) UnmarshalYAML(n *yaml.Node) error {
	b, err := base64.StdEncoding.DecodeString(n.Value)
	*e = b
	return err
}

func (k *kubeconfig) current(dir string) (string, *transport.Config, error) {
	c, u, err := k.find()
	if err != nil {
		return "", nil, err
	}
	if !u.Exec.IsZero() || !u.AuthProvider.IsZero() {
		return "", nil, fmt.Errorf("the user of context %q gets its credentials from a plugin, which is not run here: use a token, tokenFile or client certificate", k.CurrentContext)
	}
	cfg := &transport.Config{
		BearerToken: u.Token, BearerTokenFile: under(dir, u.TokenFile),
		Username: u.Username, Password: u.Password,
		Impersonate: transport.ImpersonationConfig{UserName: u.As, Groups: u.AsGroups},
		TLS: transport.TLSConfig{
			CAFile: under(dir, c.CAFile), CAData: c.CAData,
			CertFile: under(dir, u.CertFile), CertData: u.CertData,
			KeyFile: under(dir, u.KeyFile), KeyData: u.KeyData,
			Insecure: c.Insecure, ServerName: c.ServerName,
		},
	}
	if c.ProxyURL != "" {
		proxy, err := url.Parse(c.ProxyURL)
		if err != nil {
			return "", nil, fmt.Errorf("proxy-url: %w", err)
		}
		cfg.Proxy = http.ProxyURL(proxy)
	}
	return c.Server, cfg, nil
}

func (k *kubeconfig) find() (c *cluster, u *user, err error) {
	for _, x := range k.Contexts {
		if x.Name == k.CurrentContext {
			return k.named(x.Context.Cluster, x.Context.User)
		}
	}
	return nil, nil, fmt.Errorf("current-context %q is not among the contexts", k.CurrentContext)
}

func (k *kubeconfig) named(clusterName, userName string) (c *cluster, u *user, err error) {
	for i := range k.Clusters {
		if k.Clusters[i].Name == clusterName {
			c = &k.Clusters[i].Cluster
		}
	}
	for i := range k.Users {
		if k.Users[i].Name == userName {
			u = &k.Users[i].User
		}
	}
	if c == nil || u == nil {
		return nil, nil, fmt.Errorf("context %q: cluster %q or user %q is missing", k.CurrentContext, clusterName, userName)
	}
	return c, u, nil
}

// under resolves a path as kubectl does: relative to the kubeconfig's folder.
func under(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
