// Package redisnode is a lock server on Redis, spoken to by go-redis.
//
// A Node has one connection for commands and one for each subscription. Who
// sends a request writes it to the first at once, behind what was sent before,
// so that requests stay in order and nobody waits for a pool; one goroutine
// hears the answers. Another one connects in the background: what a connection
// costs is never paid by a command that could have known.
package redisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/redlock"
)

// What a Config that says nothing means.
const (
	DefaultNodeTimeout = 200 * time.Millisecond
	DefaultDialTimeout = 2 * time.Second
	DefaultRecheck     = time.Minute
)

// maxQueue bounds what waits for a node that does not answer.
const maxQueue = 4096

// Config describes a node.
type Config struct {
	// Address is where the server is, as [ParseAddress] reads it: host:port,
	// redis://[user@]host:port[/db], rediss://… or unix:///path.
	Address string
	// Name is what the node is called; empty means the address without its user.
	Name string
	// NodeTimeout bounds one command, and a Send whose context has no deadline.
	// 0 means DefaultNodeTimeout.
	NodeTimeout time.Duration
	// DialTimeout bounds connecting, TLS and the handshake together. 0 means
	// DefaultDialTimeout.
	DialTimeout time.Duration
	// Username is the user unless the address names one or Credentials does.
	Username string
	// Credentials returns user and password. It is asked at each connection, so
	// that a rotated password is used from the next one on. It must return when its
	// context ends. An empty user means Username. Nil means no password.
	Credentials func(ctx context.Context) (user, password string, err error)
	// TLS returns the settings for an address with rediss://, asked at each
	// connection. Nil means the certificates the system trusts. An empty
	// ServerName means the host of the address.
	TLS func() (*tls.Config, error)
	// AllowUnfit counts a node that would be refused, see [Node.Fitness].
	AllowUnfit bool
	// Recheck is how often an idle connection is asked whether the server is still
	// fit; 0 means DefaultRecheck.
	Recheck time.Duration
	// ClientName is what CLIENT LIST shows; empty sets none.
	ClientName string
	// Dial replaces net.Dialer, for tests. It must return when its context ends, and
	// the connection must take 64 KB without the other side reading, as a socket does.
	Dial func(ctx context.Context, network, endpoint string) (net.Conn, error)
	// Log gets changes of state. The zero value discards them.
	Log logr.Logger
}

// Node is one Redis server. It implements [redlock.Node].
type Node struct {
	cfg     Config
	addr    Address
	ctx     context.Context // lives as long as the node
	cancel  context.CancelFunc
	fitness atomic.Pointer[fitness]
	wake    chan struct{}
	lost    chan lostSession
	stopped chan struct{}

	// Who reads the answers owns these.
	refused redlock.ErrorKind // the refusal that was logged
	mute    bool              // it was logged that notices are forbidden

	mu      sync.Mutex
	session *session  // nil while there is no connection
	queue   []message // what could not be written at once
	closed  bool
	subs    sync.WaitGroup
}

var _ redlock.Node = (*Node)(nil)

// ErrClosed is wrapped by the answer to a request that meets a closed node.
var ErrClosed = errors.New("node is closed")

// call is a request on its way.
type call struct {
	req      redlock.Request
	ctx      context.Context // the caller's, for this one request
	deadline time.Time
	done     func(redlock.Reply, error)
}

// New checks the configuration and starts to connect. It does not wait for the
// server. Close ends what it started.
func New(cfg Config) (*Node, error) {
	addr, err := ParseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	if err := cfg.complete(addr); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, addr: addr,
		wake: make(chan struct{}, 1), lost: make(chan lostSession, 1), stopped: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.fitness.Store(&fitness{})
	go newWorker(n).run()
	return n, nil
}

func (c *Config) complete(addr Address) error {
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"NodeTimeout", &c.NodeTimeout, DefaultNodeTimeout},
		{"DialTimeout", &c.DialTimeout, DefaultDialTimeout},
		{"Recheck", &c.Recheck, DefaultRecheck},
	} {
		if *d.value < 0 {
			return fmt.Errorf("redis node %s: %s is %v: must be positive, or 0 for %v", addr, d.name, *d.value, d.usual)
		}
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
	if c.Name == "" {
		c.Name = addr.String()
	}
	if addr.User != "" {
		c.Username = addr.User
	}
	if c.Dial == nil {
		// Names are resolved here, at each connection, and a peer that vanished is
		// noticed without a command.
		c.Dial = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
		}}).DialContext
	}
	return nil
}

// Name implements [redlock.Node].
func (n *Node) Name() string { return n.cfg.Name }

// Send implements [redlock.Node]. The request waits for the first connection,
// and for the first attempt to replace a lost one, until the deadline of ctx;
// while later attempts fail it is refused at once with their reason. done is
// called by the node's goroutines, or before Send returns, and must not block, nor
// close the node.
func (n *Node) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(n.cfg.NodeTimeout)
	}
	if err := n.post(call{req: req, ctx: ctx, deadline: deadline, done: done}, now); err != nil {
		done(redlock.Reply{}, err)
	}
}

// post writes a call, or puts it into the queue.
func (n *Node) post(c call, now time.Time) error {
	if err := check(c.req); err != nil {
		return n.fault(redlock.KindOther, "", notDoneError{err})
	}
	m := message{call: c}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.fault(redlock.KindOther, "", notDoneError{ErrClosed})
	}
	if n.session != nil && len(n.queue) == 0 && n.session.mayWrite() {
		if err := n.unfitFor(&m, now); err != nil {
			return err
		}
		if n.session.write(m, now, n.cfg.NodeTimeout) {
			return nil
		}
	}
	if len(n.queue) >= maxQueue {
		return n.fault(redlock.KindTimeout, "the server does not answer as fast as it is asked",
			notDoneError{fmt.Errorf("%d requests wait already", maxQueue)})
	}
	n.queue = append(n.queue, m)
	signal(n.wake)
	return nil
}

// unfitFor is the answer to a message that must not be sent, or nil.
func (n *Node) unfitFor(m *message, now time.Time) error {
	if m.heard != nil {
		return nil
	}
	if err := m.ended(now); err != nil {
		return n.tooLate("the request was not sent in time", err)
	}
	return n.refuseUnfit(m.call.req.Op)
}

func (n *Node) tooLate(what string, err error) *redlock.NodeError {
	return n.fault(redlock.KindTimeout, "", notDoneError{lateError{err, what}})
}

// unsent is a message that will not be sent, and why.
type unsent struct {
	message
	err error
}

// flush writes what is queued as far as it can, and returns what must not be sent. It
// needs n.mu.
func (n *Node) flush() (never []unsent) {
	s := n.session
	if s == nil {
		return nil
	}
	if again := s.repeat(); again != nil {
		n.queue = append(again, n.queue...)
	}
	now, done := time.Now(), 0
	for ; done < len(n.queue) && s.mayWrite(); done++ {
		m := n.queue[done]
		if err := n.unfitFor(&m, now); err != nil {
			never = append(never, unsent{m, err})
			continue
		}
		if !s.write(m, now, n.cfg.NodeTimeout) {
			break
		}
	}
	n.queue = slices.Delete(n.queue, 0, done)
	return never
}

// answer tells the senders of messages that were not sent.
func (n *Node) answer(never []unsent) {
	for i := range never {
		if m := &never[i]; m.heard != nil {
			m.heard(nil, m.err)
		} else {
			m.call.done(redlock.Reply{}, m.err)
		}
	}
}

// Close ends the connections and answers what waits. It returns when nothing of
// the node runs any more; a Subscribe returns as well.
func (n *Node) Close() error {
	n.cancel() // first: it ends a write that holds the mutex
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	<-n.stopped
	n.subs.Wait()
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
