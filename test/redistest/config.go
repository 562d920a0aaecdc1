package redistest

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Config is what a server is started with; made from Options.
type Config struct {
	// Addr is where clients reach it: host:port, or the path of a socket.
	Addr string
	// Unix says that it listens on a socket instead of a port.
	Unix bool
	// Password is what the default user needs, or empty.
	Password string
	// CA made the server's certificate; nil without TLS.
	CA *CA
	// Lines are further lines of the configuration file.
	Lines []string
	// NotReady starts the server without waiting until it answers.
	NotReady bool
	// Binary is the server's program.
	Binary string
}

// Option changes how a server is started.
type Option func(*Config)

// NewConfig applies options to the defaults.
func NewConfig(options ...Option) Config {
	cfg := Config{Binary: "redis-server"}
	for _, o := range options {
		o(&cfg)
	}
	return cfg
}

// WithConfig adds lines to the server's configuration file, such as
// "maxmemory-policy allkeys-lru".
func WithConfig(lines ...string) Option {
	return func(c *Config) { c.Lines = append(c.Lines, lines...) }
}

// WithUnixSocket makes it listen on a Unix socket only.
func WithUnixSocket() Option { return func(c *Config) { c.Unix = true } }

// WithPassword is what the default user, and with it Client, has to give.
func WithPassword(password string) Option {
	return func(c *Config) { c.Password = password }
}

// MinimalRights are the ACL rules that the documentation tells people to give to the user
// of a sidecar with the default key prefix.
const MinimalRights = "-@all +evalsha +eval +script|load +get +set +pexpire +pttl +del +publish +subscribe +ping +hello +time +info +client|id +client|setname ~podlease:* &podlease:*"

// WithUser adds an ACL user with a password and rules such as "~podlease:* +@all".
func WithUser(name, password, rules string) Option {
	return WithConfig(fmt.Sprintf("user %s on >%s %s", name, password, rules))
}

// WithTLS makes it speak TLS only, with a certificate of ca for 127.0.0.1 and
// localhost. Client certificates are asked for only if the configuration says
// "tls-auth-clients yes".
func WithTLS(ca *CA) Option { return func(c *Config) { c.CA = ca } }

// WithReplicaOf makes it a replica of another server.
func WithReplicaOf(primary *Server) Option {
	return func(c *Config) {
		host, port, _ := strings.Cut(primary.Addr(), ":")
		c.Lines = append(c.Lines, "replicaof "+host+" "+port)
	}
}

// WithoutWait makes Start return when the process runs, though it may still load
// its data; Ready waits.
func WithoutWait() Option { return func(c *Config) { c.NotReady = true } }

// File is the server's configuration file: listening on bind and port, with its data
// and, with TLS, a new certificate in dir. Nothing is persisted unless Lines say so.
func (c *Config) File(bind string, port int, dir string) (string, error) {
	lines := []string{"bind " + bind, "protected-mode no", `save ""`, "appendonly no", "daemonize no", "dir " + dir}
	switch {
	case c.Unix:
		lines = append(lines, "port 0", "unixsocket "+c.Addr)
	case c.CA != nil:
		cert, key, err := c.CA.issue(dir, "server")
		if err != nil {
			return "", err
		}
		lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", port), "tls-cert-file "+cert, "tls-key-file "+key,
			"tls-ca-cert-file "+filepath.Join(dir, "ca.crt"), "tls-auth-clients optional")
	default:
		lines = append(lines, fmt.Sprintf("port %d", port))
	}
	if c.Password != "" {
		lines = append(lines, "requirepass "+c.Password, "masterauth "+c.Password)
	}
	return strings.Join(append(lines, c.Lines...), "\n") + "\n", nil
}
