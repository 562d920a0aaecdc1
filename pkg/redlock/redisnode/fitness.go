package redisnode

import (
	"strings"

	"github.com/podlease/podlease/pkg/redlock"
)

// fitness is what the server said about itself.
type fitness struct {
	known  bool   // it said something
	reason string // why it is unfit, or empty
	hint   string
}

// Fitness tells why the server may not be counted as an independent node, or an
// empty reason. known is false until it was asked, and where it may not be asked:
// such a node is counted.
//
// Unfit are a replica and a server promoted from one (it may lack keys that the
// old master had), members of a cluster, Sentinels, multi-master sets, and a
// server that may evict the lock. An eviction policy without maxmemory evicts
// nothing, so it does not matter until somebody sets a limit; that is noticed
// at the next check.
func (n *Node) Fitness() (reason string, known bool) {
	f := n.fitness.Load()
	return f.reason, f.known
}

// judge reads the sections server, replication and memory of INFO; each may be
// empty.
func judge(server, replication, memory string) fitness {
	f := fitness{known: server != "" || replication != "" || memory != ""}
	switch mode := infoField(server, "redis_mode"); mode {
	case "cluster":
		return f.unfit("is a member of a Redis Cluster", "use an independent server with cluster-enabled no")
	case "sentinel":
		return f.unfit("is a Sentinel", "give the address of an independent server")
	}
	switch role := infoField(replication, "role"); {
	case role == "slave" || role == "replica":
		return f.unfit("is a replica of "+infoField(replication, "master_host")+":"+infoField(replication, "master_port"),
			"locks may be lost in replication; use independent masters")
	case role != "" && role != "master":
		return f.unfit("has the role "+role, "multi-master sets do not exclude; use independent masters")
	}
	if off := infoField(replication, "second_repl_offset"); off != "" && !strings.HasPrefix(off, "-") {
		return f.unfit("was promoted from a replica not long ago, or restarted from a data file with replication data",
			"it may lack locks its master had; use servers without replicas. It is counted again when it has had no replica for repl-backlog-ttl")
	}
	policy := infoField(memory, "maxmemory_policy")
	if limit := infoField(memory, "maxmemory"); limit != "" && limit != "0" && policy != "" && policy != "noeviction" {
		return f.unfit("may evict locks: maxmemory "+limit+" with maxmemory-policy "+policy,
			"set maxmemory-policy noeviction")
	}
	return f
}

func (f fitness) unfit(reason, hint string) fitness {
	f.reason, f.hint = reason, hint
	return f
}

// infoField is the value of a line of INFO, or empty.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// judged takes over a verdict and tells the log about a new one.
func (n *Node) judged(f fitness) {
	old := n.fitness.Swap(&f)
	if f.reason == old.reason {
		return
	}
	switch {
	case f.reason == "":
		n.cfg.Log.Info("node is fit again", "node", n.Name())
	case n.cfg.AllowUnfit:
		n.cfg.Log.Info("unfit node is counted all the same", "node", n.Name(), "reason", f.reason)
	default:
		n.cfg.Log.Info("node is unfit", "node", n.Name(), "reason", f.reason, "hint", f.hint)
	}
}

// refuseUnfit is the answer to a request that an unfit node must not get, or nil.
// A release is always sent: what was taken before has to go.
func (n *Node) refuseUnfit(op redlock.Op) error {
	f := n.fitness.Load()
	if f.reason == "" || n.cfg.AllowUnfit || op == redlock.OpRelease {
		return nil
	}
	return n.fault(redlock.KindUnfit, f.hint, notDoneError{unfitError(f.reason)})
}

type unfitError string

func (e unfitError) Error() string { return "not fit to hold locks: " + string(e) }
