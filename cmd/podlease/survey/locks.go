package survey

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
)

// Lock is what the nodes say of one lock.
type Lock struct {
	Lock string `json:"lock"`
	// Holder is the identity of whoever has the lock at a quorum of nodes, or empty.
	Holder string `json:"holder"`
	// NeverExpires reports that a quorum of nodes has a key that never expires, which is
	// nobody's lease, and keeps everybody from one.
	NeverExpires bool `json:"neverExpires"`
	// HolderKnown reports whether the answers show who holds the lock, or that nobody
	// does: nodes that do not answer may hold it for somebody.
	HolderKnown bool `json:"holderKnown"`
	// FencingToken is the greatest number that a quorum of the counters has reached, or 0:
	// the tokens of later terms are greater. A single counter may be ahead of it, by a
	// proposal that came to nothing.
	FencingToken uint64 `json:"fencingToken"`
	// TermToken is the present term's token, or 0 where the counters do not show it.
	TermToken uint64 `json:"termToken"`
	Quorum    Quorum `json:"quorum"`
	Nodes     []Vote `json:"nodes"`
}

// Quorum tells at how many nodes the holder, or else the foremost candidate, has the lock.
type Quorum struct {
	Size     int `json:"size"`
	Needed   int `json:"needed"`
	Answered int `json:"answered"`
	Held     int `json:"held"`
}

// Vote is what one node says of one lock.
type Vote struct {
	Node string `json:"node"`
	// HeldBy is the identity of whoever has the lock at this node, or empty.
	HeldBy string `json:"heldBy"`
	// ExpiresInMs is how long until it runs out; -1 when it never does.
	ExpiresInMs  int64   `json:"expiresInMs"`
	LatencyMs    float64 `json:"latencyMs"`
	FencingToken uint64  `json:"fencingToken"`
	// Error says why there is no answer.
	Error string `json:"error,omitempty"`

	owner string
}

// Lock asks all nodes about one lock, without changing anything.
func (n *Nodes) Lock(ctx context.Context, names Names, lock string) Lock {
	l := Lock{Lock: lock, Nodes: make([]Vote, len(n.nodes))}
	n.each(func(i int, node *redisnode.Node) {
		l.Nodes[i] = vote(ctx, node, names.keys(lock))
	})
	l.count()
	return l
}

func vote(ctx context.Context, node *redisnode.Node, keys redlock.Keys) Vote {
	v := Vote{Node: node.Name()}
	r, err := ask(ctx, node, redlock.Request{Op: redlock.OpProbe, Keys: keys})
	if err != nil {
		v.Error = err.Error()
		return v
	}
	v.LatencyMs = float64(r.took().Microseconds()) / 1000
	v.FencingToken = r.Fence
	if r.Outcome == redlock.Held {
		v.owner, v.HeldBy, v.ExpiresInMs = r.Owner, ownerName(r.Owner), max(r.PTTL.Milliseconds(), 0)
		if r.PTTL == redlock.NoExpiry {
			v.ExpiresInMs = -1
		}
	}
	return v
}

func ownerName(owner string) string {
	if info, ok := redlock.ParseToken(owner); ok {
		return info.Identity
	}
	return "another Redlock client"
}

// count finds the holder, the one token that has the lock at a quorum, and what is known
// of fencing tokens.
func (l *Lock) count() {
	l.Quorum = Quorum{Size: len(l.Nodes), Needed: redlock.Quorum(len(l.Nodes))}
	held, endless := map[string]int{}, map[string]bool{}
	var counters []uint64
	owner := "" // at a quorum
	for _, v := range l.Nodes {
		if v.Error != "" {
			continue
		}
		l.Quorum.Answered++
		counters = append(counters, v.FencingToken)
		if v.owner == "" {
			continue
		}
		held[v.owner]++
		endless[v.owner] = endless[v.owner] || v.ExpiresInMs < 0
		l.Quorum.Held = max(l.Quorum.Held, held[v.owner])
		if held[v.owner] == l.Quorum.Needed {
			owner, l.Holder, l.TermToken = v.owner, v.HeldBy, l.agreed(v.owner)
		}
	}
	silent := l.Quorum.Size - l.Quorum.Answered
	enough := l.Quorum.Answered >= l.Quorum.Needed
	l.HolderKnown = owner != "" || enough && l.Quorum.Held+silent < l.Quorum.Needed
	if endless[owner] {
		l.Holder, l.TermToken, l.NeverExpires = "", 0, true
	}
	if enough {
		slices.Sort(counters)
		l.FencingToken = counters[len(counters)-l.Quorum.Needed]
	}
}

// agreed is the number that a quorum of the owner's nodes has counted to exactly, which is
// how a term's token becomes final, or 0.
func (l *Lock) agreed(owner string) uint64 {
	alike := map[uint64]int{}
	for _, v := range l.Nodes {
		if v.owner != owner {
			continue
		}
		if alike[v.FencingToken]++; alike[v.FencingToken] == l.Quorum.Needed {
			return v.FencingToken
		}
	}
	return 0
}

// scanBatch is how many keys a node looks at in one go, so that it is not held up.
const scanBatch = 1000

// Locks finds the names of all locks that any node has a key of. It needs the right to
// SCAN, which candidates do not have.
func (n *Nodes) Locks(ctx context.Context, names Names) ([]string, error) {
	found := map[string]bool{}
	var failed error
	for _, cfg := range n.configs {
		keys, err := scan(ctx, cfg, names.KeyPrefix)
		if err != nil {
			failed = fmt.Errorf("list the locks at node %s: %w", cfg.Name, err)
			continue
		}
		for _, key := range keys {
			found[strings.TrimSuffix(strings.TrimPrefix(key, names.KeyPrefix), ":fence")] = true
		}
	}
	if len(found) == 0 && failed != nil {
		return nil, failed
	}
	locks := make([]string, 0, len(found))
	for lock := range found {
		locks = append(locks, lock)
	}
	slices.Sort(locks)
	return locks, nil
}

func scan(ctx context.Context, cfg redisnode.Config, prefix string) ([]string, error) {
	client, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var keys []string
	each := client.Scan(ctx, 0, literal(prefix)+"*", scanBatch).Iterator()
	for each.Next(ctx) {
		keys = append(keys, each.Val())
	}
	return keys, each.Err()
}

// literal is a pattern that matches nothing but the text.
func literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// clientTimeout bounds one command on a connection that is not the lock's.
const clientTimeout = 2 * time.Second

// connect makes a client for what is no business of a lock.
func connect(ctx context.Context, cfg redisnode.Config) (*redis.Client, error) {
	address, err := redisnode.ParseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(quiet{}) // errors are returned, and told once
	options := &redis.Options{
		Network: address.Network, Addr: address.Endpoint, DB: address.DB, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: clientTimeout, DialerRetries: 1, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if options.Username, options.Password, err = cfg.Credentials(ctx); err != nil {
		return nil, err
	}
	if address.TLS {
		if options.TLSConfig, err = cfg.TLS(); err != nil {
			return nil, err
		}
	}
	return redis.NewClient(options), nil
}

// quiet is a logger of go-redis that says nothing.
type quiet struct{}

// Printf implements go-redis's logger.
func (quiet) Printf(context.Context, string, ...any) {}
