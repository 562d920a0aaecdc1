// Package link is a way to a server that a test can cut: between one client and one
// server, while others still reach it.
package link

import (
	"context"
	"net"
	"sync"
)

// TB is the part of testing.TB that a link needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Link forwards connections to a server.
type Link struct {
	listener net.Listener
	target   string
	ctx      context.Context // ends with the link
	running  sync.WaitGroup

	mu    sync.Mutex
	whole chan struct{} // closed while the link is not cut
}

// Start opens a link to target on a free loopback port; it is closed with the test.
func Start(tb TB, target string) *Link {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("link to %s: %v", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{listener: listener, target: target, ctx: ctx, whole: make(chan struct{})}
	close(l.whole)
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
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
		l.whole = make(chan struct{})
	default: // cut already
	}
}

// Mend lets everything through again, first what was held back: TCP sends again
// what did not arrive.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
	default:
		close(l.whole)
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
	if !l.pass() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(l.ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var back sync.WaitGroup
	back.Go(func() { l.forward(client, server) })
	l.forward(server, client)
	back.Wait()
}

// forward copies until one side ends, and then ends both.
func (l *Link) forward(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass() {
			return
		}
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// pass waits until the link is whole; false when it was closed.
func (l *Link) pass() bool {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-l.ctx.Done():
		return false
	}
}
