// Package link is a way to a server that a test can make bad: between one client and
// one server, while others still reach it well.
package link

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// TB is the part of testing.TB that a link needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Way is one direction of a link.
type Way int

// The ways of a link: to the server, and back from it.
const (
	Requests Way = iota
	Replies
)

// Link forwards connections to a server.
type Link struct {
	listener net.Listener
	target   string
	ctx      context.Context // ends with the link
	running  sync.WaitGroup

	mu            sync.Mutex
	whole         [2]chan struct{} // of each way, closed while it is not cut
	delay, jitter time.Duration
	trap          func()
	pairs         map[*pair]struct{}
}

// Start opens a link to target on a free loopback port; it is closed with the test.
func Start(tb TB, target string) *Link {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("link to %s: %v", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{listener: listener, target: target, ctx: ctx, pairs: map[*pair]struct{}{}}
	for way := range l.whole {
		l.whole[way] = make(chan struct{})
		close(l.whole[way])
	}
	l.running.Go(l.accept)
	tb.Cleanup(func() {
		cancel()
		_ = listener.Close()
		l.running.Wait()
	})
	return l
}

// Addr is where the client finds the server.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut holds everything back, as a network does that drops packets: connections stay
// open and nothing arrives.
func (l *Link) Cut() {
	l.CutWay(Requests)
	l.CutWay(Replies)
}

// CutWay is Cut for one direction.
func (l *Link) CutWay(way Way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole[way]:
		l.whole[way] = make(chan struct{})
	default: // cut already
	}
}

// Slow delays whatever passes from now on by delay and up to jitter more, in each
// direction.
func (l *Link) Slow(delay, jitter time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.jitter = delay, jitter
}

// Mend lets everything through again, at once, and first what was held back: TCP
// sends again what did not arrive.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.jitter = 0, 0
	for way := range l.whole {
		select {
		case <-l.whole[way]:
		default:
			close(l.whole[way])
		}
	}
}

// Break resets all connections. What was held back never arrives.
func (l *Link) Break() { l.each((*pair).reset) }

// Abandon makes all connections half-open: the server's ends are closed, and the client
// hears nothing of it, nor anything else. New connections are good.
func (l *Link) Abandon() { l.each((*pair).abandon) }

// Trap calls f once, when the next request has come and before it is passed on.
func (l *Link) Trap(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trap = f
}

func (l *Link) each(do func(*pair)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		do(p)
	}
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.serve(client) })
	}
}

func (l *Link) serve(client net.Conn) {
	defer client.Close()
	if !l.pass(Requests) {
		return
	}
	server, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		return
	}
	p := &pair{client: client, server: server}
	l.keep(p, true)
	defer l.keep(p, false)
	stop := context.AfterFunc(l.ctx, p.close)
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		l.forward(Replies, client, server)
		p.over()
	})
	l.forward(Requests, server, client)
	p.over()
	p.swallow()
	back.Wait()
	p.close()
}

func (l *Link) keep(p *pair, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there {
		l.pairs[p] = struct{}{}
	} else {
		delete(l.pairs, p)
	}
}

// forward copies until one side ends.
func (l *Link) forward(way Way, to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if way == Requests && n > 0 {
			l.spring()
		}
		if !l.pass(way) || !l.dawdle() {
			return
		}
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// spring springs the trap, if one is set.
func (l *Link) spring() {
	l.mu.Lock()
	trap := l.trap
	l.trap = nil
	l.mu.Unlock()
	if trap != nil {
		trap()
	}
}

// pass waits until a way is whole; false when the link was closed.
func (l *Link) pass(way Way) bool {
	l.mu.Lock()
	whole := l.whole[way]
	l.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// dawdle waits as long as a slow link takes; false when the link was closed.
func (l *Link) dawdle() bool {
	l.mu.Lock()
	d := l.delay
	if l.jitter > 0 {
		d += rand.N(l.jitter)
	}
	l.mu.Unlock()
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}
