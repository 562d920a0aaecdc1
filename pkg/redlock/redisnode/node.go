// Package redisnode is a lock server on Redis, spoken to by go-redis.
//
// A Node has one connection for commands and one for each subscription. One
// goroutine owns the first and sends whatever is queued as one pipeline, so
// that requests stay in order and nobody waits for a pool. A second one
// connects in the background: what a connection costs is never paid by a
// command that could have known.
package redisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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
	// Address is where the server is, see [ParseAddress].
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
	// Dial replaces net.Dialer, for tests. It must return when its context ends.
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
	doubt   chan struct{} // another connection to the server broke
	stopped chan struct{}

	mu     sync.Mutex
	queue  []call
	closed bool
	subs   sync.WaitGroup
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
		wake: make(chan struct{}, 1), doubt: make(chan struct{}, 1), stopped: make(chan struct{}),
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
// called by the node's own goroutine and must not block, nor close the node.
func (n *Node) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(n.cfg.NodeTimeout)
	}
	if err := n.enqueue(call{req: req, ctx: ctx, deadline: deadline, done: done}); err != nil {
		done(redlock.Reply{}, err)
	}
}

func (n *Node) enqueue(c call) error {
	if err := check(c.req); err != nil {
		return n.fault(redlock.KindOther, "", notDoneError{err})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.fault(redlock.KindOther, "", notDoneError{ErrClosed})
	}
	if len(n.queue) >= maxQueue {
		return n.fault(redlock.KindTimeout, "the server does not answer as fast as it is asked",
			notDoneError{fmt.Errorf("%d requests wait already", maxQueue)})
	}
	n.queue = append(n.queue, c)
	signal(n.wake)
	return nil
}

// take empties the queue into the caller's slice, which becomes the queue.
func (n *Node) take(empty []call) []call {
	n.mu.Lock()
	defer n.mu.Unlock()
	batch := n.queue
	n.queue = empty[:0]
	return batch
}

// Close ends the connections and answers what waits. It returns when nothing of
// the node runs any more; a Subscribe returns as well.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
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
