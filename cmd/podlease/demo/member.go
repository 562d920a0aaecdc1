package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/statusapi"
)

// member is one candidate's place on the stage. Its name and its address stay;
// the process in it is a new one after each crash.
type member struct {
	name    string
	addr    net.Addr
	life    atomic.Pointer[life]
	silence func() // ends the endpoint
}

func newMember(ctx context.Context, name string) (*member, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on a free port of 127.0.0.1 for %s: %w", name, err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &member{name: name, addr: listener.Addr()}
	served := make(chan struct{})
	m.silence = func() {
		cancel()
		<-served
	}
	go func() {
		defer close(served)
		_ = statusapi.Serve(serving, listener, m) // it ends when the member does
	}()
	return m, nil
}

func (m *member) url() string { return "http://" + m.addr.String() }

// ServeHTTP answers as the member's process would: a crashed one hangs up.
func (m *member) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := m.life.Load()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if l == nil || l.crashed() {
		panic(http.ErrAbortHandler)
	}
	go func() {
		defer cancel()
		select {
		case <-l.crash:
		case <-ctx.Done():
		}
	}()
	l.handler.ServeHTTP(w, r.WithContext(ctx))
	if l.crashed() {
		panic(http.ErrAbortHandler)
	}
}

// start puts a new process into the member's place.
func (m *member) start(ctx context.Context, s *stage) error {
	l, err := newLife(m.name, s)
	if err != nil {
		return err
	}
	ctx, l.stop = context.WithCancel(ctx)
	m.life.Store(l)
	go l.run(ctx)
	go l.report(ctx, m, s.sightings)
	return nil
}

func (m *member) leadership() election.Leadership { return m.life.Load().candidate.Leadership() }

// close ends the member's process in order, and then its endpoint.
func (m *member) close() {
	if l := m.life.Load(); l != nil {
		l.stop()
		if !l.crashed() { // what is left of that one is nobody's concern
			<-l.stopped
		}
	}
	m.silence()
}
