// Command app is what the sample manifest and the end-to-end tests lease for: a small
// HTTP server that answers with its name and the fencing token it sees, and says
// whether it may act at all. It knows nothing of podlease but PODLEASE_URL.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	listen = ":8080"
	// askTimeout bounds the question to the sidecar, which is on loopback.
	askTimeout = time.Second
	// endTimeout bounds how long requests in flight may take at the end.
	endTimeout = 5 * time.Second
)

// reply is what a client gets: the part of the leadership document that matters to
// it, and who says so.
type reply struct {
	Name         string `json:"name"`
	Active       bool   `json:"active"`
	FencingToken uint64 `json:"fencingToken"`
	Reason       string `json:"reason,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("PODLEASE_URL")); err != nil {
		slog.Error("ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sidecar string) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("own name: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		answer := ask(r.Context(), sidecar)
		answer.Name = name
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the client went away: nobody left to tell
	})
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", listen, err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return server.Shutdown(end)
}

// ask asks the sidecar. No answer means not active: an app that cannot be told does
// not act.
func ask(ctx context.Context, sidecar string) reply {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, sidecar+"/v1/leadership", nil)
	if err != nil {
		return reply{Reason: err.Error()}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{Reason: err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	var answer reply
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return reply{Reason: fmt.Sprintf("the sidecar's answer: %v", err)}
	}
	return answer
}
