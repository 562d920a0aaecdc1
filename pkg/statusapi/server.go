package statusapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// headerTimeout bounds how long the headers of a request may take.
	headerTimeout = 5 * time.Second
	idleTimeout   = 90 * time.Second
	// shutdownTimeout bounds how long open requests may take at the end.
	shutdownTimeout = time.Second
	maxHeaderBytes  = 16 << 10
)

// Serve answers requests on ln until ctx ends. Then streams and waiting requests are
// ended, answers under way are finished within a second, and it returns nil.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler) error {
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP on %v: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	endRequests()
	return shutdown(server)
}

func shutdown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}
