// Package survey asks Redis nodes about locks, and about themselves.
package survey

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
)

// Names say how a lock's keys are named.
type Names struct {
	KeyPrefix string
	BareKey   bool
}

// keys are those of one lock.
func (n Names) keys(lock string) redlock.Keys {
	prefixed := n.KeyPrefix + lock
	k := redlock.Keys{Lock: prefixed, Fence: prefixed + ":fence", Channel: prefixed + ":released"}
	if n.BareKey {
		k.Lock = lock
	}
	return k
}

// Nodes are connections to Redis nodes.
type Nodes struct {
	configs []redisnode.Config
	nodes   []*redisnode.Node
}

// Open begins to connect to nodes.
func Open(configs []redisnode.Config) (*Nodes, error) {
	n := &Nodes{configs: configs}
	for _, cfg := range configs {
		node, err := redisnode.New(cfg)
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
		}
		n.nodes = append(n.nodes, node)
	}
	return n, nil
}

// Close ends the connections.
func (n *Nodes) Close() {
	for _, node := range n.nodes {
		_ = node.Close() // nothing is under way any more
	}
}

// each runs f for all nodes at once.
func (n *Nodes) each(f func(i int, node *redisnode.Node)) {
	var asking sync.WaitGroup
	for i, node := range n.nodes {
		asking.Go(func() { f(i, node) })
	}
	asking.Wait()
}

// reply is a node's answer, with how long it took and between which instants it was made.
type reply struct {
	redlock.Reply
	sent, received time.Duration // on boottime's clock
}

func (r reply) took() time.Duration { return r.received - r.sent }

// askTimeout bounds one question, and the connecting before it.
const askTimeout = 5 * time.Second

// ask sends one request and waits for its answer.
func ask(ctx context.Context, node redlock.Node, req redlock.Request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	type answer struct {
		redlock.Reply
		at  time.Duration
		err error
	}
	answered := make(chan answer, 1)
	r := reply{sent: boottime.Now()}
	node.Send(ctx, req, func(reply redlock.Reply, err error) { answered <- answer{reply, boottime.Now(), err} })
	select {
	case a := <-answered:
		r.Reply, r.received = a.Reply, a.at
		return r, a.err
	case <-ctx.Done():
		return r, ctx.Err()
	}
}
