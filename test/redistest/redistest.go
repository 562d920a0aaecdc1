// Package redistest starts real Redis servers for tests.
//
// Every server listens on loopback or a Unix socket, is ready when Start returns,
// and is gone when the test ends, also when the test's process is killed.
package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// TB is the part of testing.TB that a server needs. *testing.T, *testing.B and
// Ginkgo's GinkgoTB() satisfy it.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

var _ TB = (testing.TB)(nil)

// startTimeout bounds how long a server may take to answer its first PING. It is
// long because a machine that runs tests may be overloaded; a server that ended is
// noticed at once.
const startTimeout = 20 * time.Second

// Backend is what runs a server: a process of this machine, or a container. Each
// call blocks until what it asked for is true.
type Backend interface {
	// Start starts the server, again on the same address if it ran before.
	Start() error
	// Alive reports why the server cannot become ready any more, nil if it still can.
	Alive() error
	// Kill ends the server as a crash does.
	Kill() error
	// Freeze stops it from running, and Thaw lets it run on.
	Freeze() error
	Thaw() error
	// Forget removes what the server has on disk. It is called while it does not run.
	Forget() error
	// Owns reports whether the server that answers is this one, so that another
	// process on the same port is not taken for it.
	Owns(processID int) bool
}

// Server is a Redis server under a test's control.
type Server struct {
	tb      TB
	backend Backend
	cfg     Config
	client  *redis.Client
}

// Start starts a Redis process on a free loopback port and ends it with the test.
// It persists nothing unless told to.
func Start(tb TB, options ...Option) *Server {
	tb.Helper()
	cfg := NewConfig(options...)
	p, err := newProcess(&cfg)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(p.remove)
	return Run(tb, cfg, p)
}

// Cluster starts n independent Redis processes with the same options: the nodes of
// one lock, not a Redis Cluster.
func Cluster(tb TB, n int, options ...Option) []*Server {
	tb.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = Start(tb, options...)
	}
	return servers
}

// Run starts a server by its backend and waits until it answers.
func Run(tb TB, cfg Config, backend Backend) *Server {
	tb.Helper()
	s := &Server{tb: tb, backend: backend, cfg: cfg}
	s.client = redis.NewClient(s.AdminOptions())
	tb.Cleanup(func() { _ = s.client.Close() })
	tb.Cleanup(s.Kill)
	s.start()
	return s
}

// Addr is host:port, or the path of the socket.
func (s *Server) Addr() string { return s.cfg.Addr }

// URL is the address as podlease's --redis takes it, without credentials.
func (s *Server) URL() string {
	switch {
	case s.cfg.Unix:
		return "unix://" + s.cfg.Addr
	case s.cfg.CA != nil:
		return "rediss://" + s.cfg.Addr
	}
	return s.cfg.Addr
}

// URLs are the addresses of all servers.
func URLs(servers []*Server) []string {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.URL()
	}
	return urls
}

// Client is a client with all rights. It is closed with the test.
func (s *Server) Client() *redis.Client { return s.client }

// AdminOptions are options for a client with all rights; they may be changed.
func (s *Server) AdminOptions() *redis.Options {
	opt := &redis.Options{
		Network: "tcp", Addr: s.cfg.Addr, Password: s.cfg.Password,
		DialTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.cfg.Unix {
		opt.Network = "unix"
	}
	if s.cfg.CA != nil {
		opt.TLSConfig = s.cfg.CA.ClientConfig()
	}
	return opt
}

// Kill ends the server as a crash does: SIGKILL, nothing is saved. It does nothing
// to a server that does not run.
func (s *Server) Kill() { s.must("kill", s.backend.Kill()) }

// Stop ends the server in order; what it has is on disk for a Restart.
func (s *Server) Stop() {
	s.tb.Helper()
	s.save()
	s.Kill()
}

// Restart starts the server again on the same address, after ending it if it runs.
// An empty one has lost all keys; else it has those it had, with their expiry (of a
// server that was killed before: those of the last Stop or Restart).
func (s *Server) Restart(empty bool) {
	s.tb.Helper()
	if s.backend.Alive() == nil && !empty {
		s.save()
	}
	s.Kill()
	if empty {
		s.must("forget", s.backend.Forget())
	}
	s.start()
}

// Freeze stops the server from running, as SIGSTOP does: connections stay open and
// are accepted by the kernel, and nothing answers.
func (s *Server) Freeze() { s.must("freeze", s.backend.Freeze()) }

// Thaw lets a frozen server run on. It does nothing to one that is not frozen.
func (s *Server) Thaw() { s.must("thaw", s.backend.Thaw()) }

// save writes everything to disk. SAVE and not a signal, so that it also works for
// a server configured to persist nothing.
func (s *Server) save() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.must("save", s.client.Save(ctx).Err())
}

func (s *Server) start() {
	s.tb.Helper()
	s.must("start", s.backend.Start())
	if s.cfg.NotReady {
		return
	}
	s.must("wait for", s.waitReady())
}

// Ready waits until the server answers PING.
func (s *Server) Ready() {
	s.tb.Helper()
	s.must("wait for", s.waitReady())
}

func (s *Server) waitReady() error {
	// A client of its own: the pool of the other one may hold connections to the
	// server's former self.
	client := redis.NewClient(s.AdminOptions())
	defer client.Close()
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.ping(client)
		if err == nil {
			return nil
		}
		if gone := s.backend.Alive(); gone != nil {
			return gone
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s did not answer within %v: %w", s.cfg.Addr, startTimeout, err)
		}
		time.Sleep(2 * time.Millisecond) // between two questions, not instead of one
	}
}

func (s *Server) ping(client *redis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	if err != nil {
		return fmt.Errorf("read process_id: %w", err)
	}
	if !s.backend.Owns(pid) {
		return fmt.Errorf("%s is served by another process (%d)", s.cfg.Addr, pid)
	}
	return nil
}

func (s *Server) must(what string, err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("redistest: %s redis at %s: %v", what, s.cfg.Addr, err)
	}
}
