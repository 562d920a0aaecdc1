package redisnode

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// link is one connection under a go-redis client that cannot make another one:
// when to connect again is decided here, not in a command's time.
type link struct {
	raw    net.Conn // below TLS
	upper  net.Conn // what is spoken goes here
	heard  *listener
	client *redis.Client
}

func (l *link) close() {
	_ = l.raw.Close()
	_ = l.client.Close()
}

// listener remembers the first bytes that came, because go-redis does not show
// what a server says that refuses a connection.
type listener struct {
	net.Conn
	first []byte
	heard atomic.Bool
}

func (c *listener) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Load() {
		c.first = append([]byte(nil), p[:min(n, 200)]...)
		c.heard.Store(true)
	}
	return n, err
}

// early tells more about an error of the handshake.
func (l *link) early(err error) error {
	var secrets *credentialsError
	if isReply(err) || errors.As(err, &secrets) {
		return err
	}
	e := &earlyError{err: err}
	if l.heard.heard.Load() {
		e.first = l.heard.first
	}
	return e
}

// plainTimeout bounds the question whether a server that does not answer TLS
// answers plain text.
const plainTimeout = 500 * time.Millisecond

var errSpent = errors.New("the connection is lost")

// dial connects within ctx, TLS included.
func (n *Node) dial(ctx context.Context) (*link, error) {
	conn, err := n.cfg.Dial(ctx, n.addr.Network, n.addr.Endpoint)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true)
	}
	upper, err := n.secure(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	heard := &listener{Conn: upper}
	return &link{raw: conn, upper: upper, heard: heard, client: n.client(heard)}, nil
}

func (n *Node) secure(ctx context.Context, raw net.Conn) (net.Conn, error) {
	if !n.addr.TLS {
		return raw, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if n.cfg.TLS != nil {
		given, err := n.cfg.TLS()
		if err != nil {
			return nil, &tlsMaterialError{err}
		}
		if given != nil {
			cfg = given.Clone()
		}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = n.addr.host()
	}
	conn := tls.Client(raw, cfg)
	err := conn.HandshakeContext(ctx)
	switch {
	case err == nil:
		return conn, nil
	case timedOut(err) && n.speaksPlainly():
		return nil, errPlain
	}
	return nil, err
}

var errPlain = errors.New("the server does not answer TLS, but plain text")

// speaksPlainly asks in plain text. Redis waits for ever for the end of what it
// takes for a line when it gets a TLS greeting, so that alone cannot be told from
// a server that is stuck.
func (n *Node) speaksPlainly() bool {
	ctx, cancel := context.WithTimeout(n.ctx, min(n.cfg.DialTimeout, plainTimeout))
	defer cancel()
	conn, err := n.cfg.Dial(ctx, n.addr.Network, n.addr.Endpoint)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var first [1]byte
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = conn.Read(first[:])
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// client wraps a connection. RESP2 is spoken because every server does, and
// because with it go-redis need not look for push messages at each command.
func (n *Node) client(conn net.Conn) *redis.Client {
	var used atomic.Bool
	return redis.NewClient(&redis.Options{
		Network: n.addr.Network,
		Addr:    n.addr.Endpoint,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errSpent
			}
			return conn, nil
		},
		CredentialsProviderContext: n.credentials,
		DB:                         n.addr.DB,
		Protocol:                   2,
		DisableIdentity:            true,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ContextTimeoutEnabled:      true,
		MaxRetries:                 -1,
		DialerRetries:              1,
		DialTimeout:                n.cfg.DialTimeout,
		ReadTimeout:                max(n.cfg.DialTimeout, n.cfg.NodeTimeout),
		WriteTimeout:               max(n.cfg.DialTimeout, n.cfg.NodeTimeout),
		PoolSize:                   1,
		PipelinePoolSize:           -1,
		ConnMaxIdleTime:            -1,
		ConnMaxLifetime:            -1,
		ReadBufferSize:             4096,
		WriteBufferSize:            4096,
	})
}

func (n *Node) credentials(ctx context.Context) (user, password string, err error) {
	if n.cfg.Credentials == nil {
		return n.cfg.Username, "", nil
	}
	user, password, err = n.cfg.Credentials(ctx)
	if err != nil {
		return "", "", &credentialsError{err}
	}
	if user == "" {
		user = n.cfg.Username
	}
	return user, password, nil
}

// session is the connection for commands, after its handshake.
type session struct {
	*link
	conn     *redis.Conn // makes the handshake
	id       string      // stands for the server's run_id where INFO is refused
	asksInfo bool
	fitness  fitness

	sys     syscall.RawConn // nil where the connection cannot be looked at
	born    time.Time
	release func() bool   // of what closes the connection with the node
	ended   chan struct{} // closed when nobody reads any more

	// Guarded by the node's mutex.

	hash      string    // of the script that only this server has
	claimHash string    // of the one for a first take, empty where it does not work
	runID     string    // of the server, empty where its script has to ask
	unread    []message // sent and not yet answered, in order
	inFlight  int       // bytes of them
	alarm     time.Time // the read deadline that is set, or zero
	again     []message // met a server that had forgotten the script
	bare      bool      // the next request brings the script along
	heardOf   bool      // the server answered a request
	broken    error     // why the connection is of no use
	buffer    []byte
}

// connect makes a session within DialTimeout. It ends early, with an error, when
// the node is closed.
func (n *Node) connect() (*session, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.DialTimeout)
	defer cancel()
	l, err := n.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{link: l, conn: l.client.Conn(), id: "connection-" + rand.Text(), ended: make(chan struct{})}
	// go-redis heeds a context's deadline but not its end.
	s.release = context.AfterFunc(n.ctx, func() { _ = l.raw.Close() })
	if err := n.greet(ctx, s); err != nil {
		s.close()
		return nil, l.early(err)
	}
	if err := l.upper.SetDeadline(time.Time{}); err != nil { // go-redis has left its own
		s.close()
		return nil, err
	}
	s.sys = syscallConn(l.raw)
	s.born = time.Now()
	return s, nil
}

func (s *session) close() {
	s.release()
	_ = s.conn.Close()
	s.link.close()
}

// greet loads the script and asks the server about itself, in one round trip
// after go-redis's own handshake. What a user may not ask is gone without; what
// says that the server cannot serve now is an error.
func (n *Node) greet(ctx context.Context, s *session) error {
	pipe := s.conn.Pipeline()
	if n.cfg.ClientName != "" {
		pipe.ClientSetName(ctx, n.cfg.ClientName)
	}
	load := pipe.ScriptLoad(ctx, lockSource)
	asked := askFitness(ctx, pipe)
	if _, err := pipe.Exec(ctx); unusable(err) {
		return err
	}
	if err := load.Err(); err != nil && !mayGoWithout(err) {
		return err
	}
	s.fitness, s.asksInfo = asked.verdict()
	return s.nameServer(ctx, asked.server.Val())
}

// nameServer gives the server the scripts that say its run_id, and asks once more who got
// them: behind a proxy that may be another.
func (s *session) nameServer(ctx context.Context, server string) error {
	runID := infoField(server, "run_id")
	if !plainName(runID) {
		return nil
	}
	pipe := s.conn.Pipeline()
	load, claim := pipe.ScriptLoad(ctx, forServer(lockTemplate, runID)), pipe.ScriptLoad(ctx, forServer(claimTemplate, runID))
	who := pipe.Info(ctx, "server")
	if _, err := pipe.Exec(ctx); unusable(err) {
		return err
	}
	if load.Err() == nil && infoField(who.Val(), "run_id") == runID {
		s.hash, s.runID = load.Val(), runID
		if claim.Err() == nil && setsAndGets(infoField(server, "redis_version")) {
			s.claimHash = claim.Val()
		}
	}
	return nil
}

// setsAndGets tells whether SET has the option GET: since Redis 6.2.
func setsAndGets(version string) bool {
	var major, minor int
	n, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && n == 2 && (major > 6 || major == 6 && minor >= 2)
}

// plainName tells whether a run_id can stand in a script as it is.
func plainName(runID string) bool {
	return runID != "" && !strings.ContainsFunc(runID, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// mayGoWithout tells whether EVAL may still work where SCRIPT LOAD did not.
func mayGoWithout(err error) bool {
	return !refused(err) || redis.IsPermissionError(err)
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

type questions struct{ server, replication, memory *redis.StringCmd }

func askFitness(ctx context.Context, pipe redis.Pipeliner) questions {
	return questions{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication"), pipe.Info(ctx, "memory")}
}

// verdict is what the answers say, and whether a run_id can be asked for.
func (q questions) verdict() (fitness, bool) {
	server := q.server.Val()
	return judge(server, q.replication.Val(), q.memory.Val()), infoField(server, "run_id") != ""
}
