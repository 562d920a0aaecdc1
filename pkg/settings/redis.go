package settings

import (
	"context"
	"crypto/tls"
	"fmt"
	"strconv"
	"strings"

	"github.com/podlease/podlease/pkg/redlock/redisnode"
)

// Redis is how the nodes are reached.
type Redis struct {
	// Nodes are the parsed nodes, after Complete.
	Nodes []Node
	// AllowUnfit counts nodes that would be refused.
	AllowUnfit bool

	Credentials Credentials
	TLS         TLS

	addresses []string
}

// Node is one node as given with --redis.
type Node struct {
	redisnode.Address
	// Name tells the node in messages and metrics, and is what lists of nodes are
	// compared by: the address in one spelling, without scheme and user, with the
	// number of the database unless that is 0.
	Name string

	given string
}

// AddFlags adds the flags about the nodes to f.
func (r *Redis) AddFlags(f *Flags) {
	f.List(&r.addresses, Flag{Name: "redis", Usage: "the nodes, comma separated or repeated; 1, 3 or 5 is usual", Default: "none, it is required", Allowed: redisAllowed})
	f.Bool(&r.AllowUnfit, false, Flag{Name: "allow-unfit-nodes", Usage: "count nodes that would be refused: replicas, cluster members, promoted replicas, nodes that may evict the lock"})
	r.Credentials.addFlags(f)
	r.TLS.addFlags(f)
}

const redisAllowed = "host:port, redis://[user@]host:port[/db], rediss://[user@]host:port[/db] or unix:///path, each once, " +
	"separated by commas; a password goes into --password-file"

// Complete parses the nodes and checks everything, the files' contents included. The
// strings it returns are warnings for people.
func (r *Redis) Complete(f *Flags) (warnings []string, err error) {
	if len(r.addresses) == 0 {
		return nil, f.Require("redis")
	}
	seen := map[string]bool{}
	r.Nodes = nil
	for _, given := range r.addresses {
		node, err := parseNode(given)
		if err != nil {
			return nil, f.Reject("redis", redacted(given), redisAllowed)
		}
		if seen[node.Name] {
			return nil, f.Reject("redis", redacted(given), "each node once: "+node.Name+" is listed twice, and has one vote")
		}
		seen[node.Name] = true
		r.Nodes = append(r.Nodes, node)
	}
	if err := r.Credentials.check(f); err != nil {
		return nil, err
	}
	return r.warnings(), r.TLS.check(f, r.Nodes)
}

func (r *Redis) warnings() []string {
	n := len(r.Nodes)
	switch {
	case n == 1:
		return []string{"one node: the lock is as available as that node, and good for efficiency only"}
	case n%2 == 0:
		return []string{fmt.Sprintf("an even number of nodes: of %d nodes %d may fail, as of %d; of %d it is %d", n, (n-1)/2, n-1, n+1, n/2)}
	}
	return nil
}

func parseNode(given string) (Node, error) {
	address, err := redisnode.ParseAddress(given)
	if err != nil {
		return Node{}, err
	}
	name := strings.ToLower(address.Endpoint)
	if address.Network == "unix" {
		name = "unix://" + address.Endpoint
	}
	if address.DB != 0 {
		name += "/" + strconv.Itoa(address.DB)
	}
	return Node{Address: address, Name: name, given: given}, nil
}

// redacted hides what may be a password.
func redacted(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	start := strings.Index(address, "://")
	if start < 0 {
		return "…" + address[at:]
	}
	return address[:start+3] + "…" + address[at:]
}

// Configs describes each node to redisnode.New. Files are read at each connection.
func (r *Redis) Configs(lease Lease) []redisnode.Config {
	configs := make([]redisnode.Config, 0, len(r.Nodes))
	for _, node := range r.Nodes {
		configs = append(configs, redisnode.Config{
			Address:     node.given,
			Name:        node.Name,
			NodeTimeout: lease.NodeTimeout,
			Credentials: func(context.Context) (user, password string, err error) { return r.Credentials.Read(node) },
			TLS:         func() (*tls.Config, error) { return r.TLS.Config(node) },
			AllowUnfit:  r.AllowUnfit,
		})
	}
	return configs
}
