package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

// Node is one client's connection to a server: a redlock.Node.
type Node struct {
	server *Server

	mu          sync.Mutex
	delay       func() time.Duration
	cut         bool
	dropReplies bool
	lastRequest time.Time
	lastReply   time.Time
}

// Connect returns a client's connection to the server. Messages take no time.
func (s *Server) Connect() *Node { return &Node{server: s} }

// Nodes returns a connection to each server.
func Nodes(servers ...*Server) []redlock.Node {
	out := make([]redlock.Node, len(servers))
	for i, s := range servers {
		out[i] = s.Connect()
	}
	return out
}

// Delay sets how long each message takes, each way; f may be nil. Messages of one
// connection do not overtake each other.
func (n *Node) Delay(f func() time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = f
}

// Cut breaks the link: requests are lost, and no notices come.
func (n *Node) Cut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// DropReplies loses replies after their requests took effect.
func (n *Node) DropReplies(drop bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropReplies = drop
}

// Reconnect breaks the connection and makes another one: what is sent from now on may
// overtake what is still under way.
func (n *Node) Reconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastRequest, n.lastReply = time.Time{}, time.Time{}
}

// Name returns the server's name.
func (n *Node) Name() string { return n.server.name }

var errTimeout = errors.New("no answer in time")

// Send implements redlock.Node.
func (n *Node) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	var once sync.Once
	finish := func(r redlock.Reply, err error) { once.Do(func() { done(r, err) }) }
	if at, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, at)
		reply := finish
		finish = func(r redlock.Reply, err error) { cancel(); reply(r, err) }
	}
	stop := context.AfterFunc(ctx, func() {
		finish(redlock.Reply{}, &redlock.NodeError{Node: n.Name(), Kind: redlock.KindTimeout, Err: fmt.Errorf("%s: %w", req.Op, errTimeout)})
	})
	n.after(&n.lastRequest, func() {
		if n.isCut() {
			return
		}
		n.server.run(func() {
			reply, err := n.server.execute(req)
			if n.loses() {
				return
			}
			n.after(&n.lastReply, func() {
				stop()
				finish(reply, err)
			})
		})
	})
}

// after runs f when a message that is sent now arrives, and not before one that was
// sent earlier.
func (n *Node) after(last *time.Time, f func()) {
	n.mu.Lock()
	if n.delay == nil {
		n.mu.Unlock()
		f()
		return
	}
	at := time.Now().Add(n.delay())
	if !at.After(*last) {
		at = last.Add(time.Nanosecond)
	}
	*last = at
	n.mu.Unlock()
	time.AfterFunc(time.Until(at), f)
}

func (n *Node) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

func (n *Node) loses() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut || n.dropReplies
}

// travel takes as long as a message does.
func (n *Node) travel() {
	n.mu.Lock()
	delay := n.delay
	n.mu.Unlock()
	if delay != nil {
		time.Sleep(delay())
	}
}

type subscription struct {
	channel string
	node    *Node
	deliver func(redlock.Notice)
	broken  chan struct{}
}

// send needs the server's mutex; it delivers without it.
func (s *subscription) send(n redlock.Notice) {
	if s.node.isCut() {
		return
	}
	s.node.after(&s.node.lastReply, func() { go s.deliver(n) })
}

func (s *subscription) lost() {
	select {
	case s.broken <- struct{}{}:
	default:
	}
}

// Subscribe implements redlock.Node.
func (n *Node) Subscribe(ctx context.Context, channel string, deliver func(redlock.Notice)) {
	sub := &subscription{channel: channel, node: n, deliver: deliver, broken: make(chan struct{}, 1)}
	n.travel()
	n.server.mu.Lock()
	n.server.subs[sub] = true
	n.server.mu.Unlock()
	defer func() {
		n.server.mu.Lock()
		delete(n.server.subs, sub)
		n.server.mu.Unlock()
	}()
	for {
		if n.travel(); !n.isCut() && ctx.Err() == nil {
			deliver(redlock.Notice{Kind: redlock.NoticeSubscribed})
		}
		select {
		case <-ctx.Done():
			return
		case <-sub.broken:
			deliver(redlock.Notice{Kind: redlock.NoticeLost})
		}
	}
}
