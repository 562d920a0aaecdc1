// Package controlplane runs a real kube-apiserver with its etcd for tests: stopped,
// frozen and started again at will, and never outliving the test's process. There are
// no nodes and no controllers.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/podlease/podlease/test/child"
)

// version is that of the binaries test/cluster/cluster builds.
const version = "v1.37.2"

// startWithin bounds the start of each of the two programs on a busy machine.
const startWithin = 2 * time.Minute

const (
	adminToken = "admin-of-a-test"
	issuer     = "https://kubernetes.default.svc"
)

// Server is a kube-apiserver with its etcd.
type Server struct {
	dir, bin   string
	port       int
	etcdClient int
	etcdPeer   int
	etcd       *child.Process
	apiserver  *child.Process
}

// Binaries finds the folder of kube-apiserver and etcd: $KUBEBUILDER_ASSETS, as
// setup-envtest prints it, else where test/cluster/cluster keeps what it builds.
func Binaries() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "podlease-cluster", "bin-"+version)
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		dir = assets
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%w: run hack/envtest-assets, or set KUBEBUILDER_ASSETS", err)
		}
	}
	return dir, nil
}

// Start starts both programs and waits until the API server is ready.
func Start(ctx context.Context) (*Server, error) {
	bin, err := Binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "controlplane-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin}
	if err := errors.Join(s.ports(), s.keys()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.startEtcd(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.StartAPI(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends both programs and removes their files.
func (s *Server) Close() error {
	var errs []error
	for _, p := range []*child.Process{s.apiserver, s.etcd} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Addr is the API server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// CAFile is the certificate that clients check the API server's against.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "serving.crt") }

// Admin is a client with every right. Code under test must not have it.
func (s *Server) Admin() (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(s.AdminConfig())
}

// AdminConfig is what Admin is made of.
func (s *Server) AdminConfig() *rest.Config {
	return &rest.Config{
		Host:            "https://" + s.Addr(),
		BearerToken:     adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.CAFile()},
		QPS:             -1,
	}
}

// StopAPI ends the API server by SIGKILL; etcd keeps its data.
func (s *Server) StopAPI() error { return s.apiserver.Kill() }

// FreezeAPI stops the API server's clock by SIGSTOP: it accepts and never answers.
func (s *Server) FreezeAPI() error { return s.apiserver.Freeze() }

// ThawAPI lets a frozen API server run on.
func (s *Server) ThawAPI() error { return s.apiserver.Thaw() }

// StartAPI starts the API server, again on the same port, and waits until it is ready.
func (s *Server) StartAPI(ctx context.Context) error {
	p, err := child.Start(exec.Command(filepath.Join(s.bin, "kube-apiserver"), s.flags()...))
	if err != nil {
		return err
	}
	s.apiserver = p
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	return wait(ctx, p, func(ctx context.Context) error {
		return admin.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (s *Server) flags() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:" + strconv.Itoa(s.etcdClient),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.port),
		"--tls-cert-file=" + s.CAFile(), "--tls-private-key-file=" + filepath.Join(s.dir, "serving.key"),
		"--token-auth-file=" + filepath.Join(s.dir, "tokens.csv"),
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + filepath.Join(s.dir, "accounts.pub"),
		"--service-account-signing-key-file=" + filepath.Join(s.dir, "accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC",
		// Pods are made without the controller that would make ServiceAccounts for them.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
	}
}

func (s *Server) startEtcd() error {
	client, peer := "http://127.0.0.1:"+strconv.Itoa(s.etcdClient), "http://127.0.0.1:"+strconv.Itoa(s.etcdPeer)
	p, err := child.Start(exec.Command(filepath.Join(s.bin, "etcd"),
		"--data-dir="+filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer))
	s.etcd = p
	return err
}

func (s *Server) ports() (err error) {
	for _, p := range []*int{&s.port, &s.etcdClient, &s.etcdPeer} {
		if *p, err = child.FreePort(); err != nil {
			return err
		}
	}
	return nil
}

// keys makes the serving certificate, the key that signs ServiceAccount tokens, and
// the administrator's token.
func (s *Server) keys() error {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	signing, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	return errors.Join(
		s.write("serving.crt", crt), s.write("serving.key", key),
		s.write("accounts.key", signing), s.write("accounts.pub", signing),
		s.write("tokens.csv", []byte(adminToken+`,admin,admin,"system:masters"`+"\n")),
	)
}

func (s *Server) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(s.dir, name), content, 0o600)
}

// wait asks until ready says yes, the program has ended, or patience has.
func wait(ctx context.Context, p *child.Process, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("the API server ended: %s", p.Output())
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w: %s", err, p.Output())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
