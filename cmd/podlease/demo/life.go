package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/pkg/statusapi"
)

// life is one process of a member, from its start to its end or crash.
type life struct {
	locker    *redlock.Locker
	candidate *election.Candidate
	handler   http.Handler
	nodes     []*redisnode.Node
	crash     chan struct{} // closed by the crash
	stop      context.CancelFunc
	stopped   chan struct{} // closed when the candidate has ended
}

// newLife makes a process that has a connection to every node.
func newLife(name string, s *stage) (*life, error) {
	l := &life{crash: make(chan struct{}), stopped: make(chan struct{})}
	links, err := l.connect(s.addresses())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.locker, err = redlock.New(links, redlock.Options{TTL: s.opt.TTL, KeyPrefix: "podlease:", Identity: name})
	if err != nil {
		return nil, err
	}
	l.candidate, err = election.New(l.locker, election.Config{
		Lock:     lock,
		Identity: name,
		// Nothing works under this lease, so its end needs to wait for nobody.
		NativeSidecar: true,
		Log:           logr.Discard(),
	})
	if err != nil {
		return nil, err
	}
	l.handler = newHandler(l.candidate)
	return l, nil
}

// newHandler answers on one address what a sidecar answers on two: everything here
// listens on loopback.
func newHandler(c *election.Candidate) http.Handler {
	asked, told := statusapi.NewHandler(c, nil), statusapi.NewControlHandler(c, c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			told.ServeHTTP(w, r)
			return
		}
		asked.ServeHTTP(w, r)
	})
}

func (l *life) connect(addresses []string) ([]redlock.Node, error) {
	var links []redlock.Node
	for _, addr := range addresses {
		node, err := redisnode.New(redisnode.Config{Address: addr})
		if err != nil {
			return nil, err
		}
		l.nodes = append(l.nodes, node)
		links = append(links, &link{Node: node, crash: l.crash})
	}
	return links, nil
}

// run takes part in the election until ctx ends, and then clears up.
func (l *life) run(ctx context.Context) {
	defer close(l.stopped)
	_ = l.candidate.Run(ctx) // an end in order; the nodes here are fit
	l.locker.Close()
	for _, n := range l.nodes {
		_ = n.Close()
	}
}

// report sends what the candidate says whenever that changes.
func (l *life) report(ctx context.Context, m *member, sightings chan<- sighting) {
	for {
		changed := l.candidate.Changed()
		select {
		case sightings <- sighting{by: m, life: l, leadership: l.candidate.Leadership()}:
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// die is what SIGKILL does to a process.
func (l *life) die() {
	close(l.crash)
	l.stop() // it still says goodbye, but nobody hears it
}

func (l *life) crashed() bool {
	select {
	case <-l.crash:
		return true
	default:
		return false
	}
}

// link is the connection of one process to one node. After a crash nothing gets
// through any more, not even the release that a candidate sends when it ends.
type link struct {
	redlock.Node
	crash <-chan struct{}
}

var errCrashed = errors.New("the process has crashed")

// Send starts a request, unless the process has crashed.
func (n *link) Send(ctx context.Context, req redlock.Request, done func(redlock.Reply, error)) {
	select {
	case <-n.crash:
		err := fmt.Errorf("%w: %w", redlock.ErrNotSent, errCrashed)
		done(redlock.Reply{}, &redlock.NodeError{Node: n.Name(), Kind: redlock.KindConnection, Err: err})
	default:
		n.Node.Send(ctx, req, done)
	}
}
