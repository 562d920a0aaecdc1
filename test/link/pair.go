package link

import (
	"io"
	"net"
	"sync"
)

// pair is a connection of a client and the one to the server that stands for it.
type pair struct {
	client, server net.Conn

	mu        sync.Mutex
	abandoned bool // the client is not told of the server's end
}

func (p *pair) close() { _, _ = p.client.Close(), p.server.Close() }

// over ends both sides as soon as one has ended.
func (p *pair) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.abandoned {
		p.close()
	}
}

// reset ends both sides with a reset instead of an orderly end.
func (p *pair) reset() {
	for _, c := range []net.Conn{p.client, p.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	p.close()
}

func (p *pair) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned = true
	_ = p.server.Close()
}

// swallow reads, of an abandoned client, what nobody hears, until it gives up.
func (p *pair) swallow() { _, _ = io.Copy(io.Discard, p.client) }
