package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// jitter forwards connections to a server and delays what goes there by a random
// time, each connection by itself: what is sent on one stays in order, what is sent
// on two may overtake.
func jitter(r *rig, target string, limit time.Duration) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatalf("listen for %s: %w", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.Cleanup(func() { cancel(); _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go delayed(ctx, client, target, limit)
		}
	}()
	return listener.Addr().String()
}

func delayed(ctx context.Context, client net.Conn, target string, limit time.Duration) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	buf := make([]byte, 16<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		sleep(ctx, rand.N(limit))
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
