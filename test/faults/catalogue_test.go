package faults_test

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/podlease/podlease/test/link"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
)

// faults are those that happen within the assumptions of the lock.
func faults() []fault {
	return slices.Concat(nodeFaults(), adminFaults(), networkFaults(), processFaults())
}

// each does something to nodes, and something else at the end.
func each(nodes []*redistest.Server, begin, end func(*redistest.Server)) func() {
	for _, n := range nodes {
		begin(n)
	}
	return func() {
		for _, n := range nodes {
			end(n)
		}
	}
}

func nodeFaults() []fault {
	thaw := (*redistest.Server).Thaw
	restart := func(n *redistest.Server) { n.Restart(true) }
	return []fault{
		{"a node freezes", 6, func(w *world, a aim) func() { return each(w.some(1, a.node), freeze, thaw) }},
		{"a majority freezes", 2, func(w *world, a aim) func() { return each(w.some(w.quorum(), a.node), freeze, thaw) }},
		{"a node is killed, and starts empty", 6, func(w *world, a aim) func() {
			return each(w.some(1, a.node), (*redistest.Server).Kill, revive)
		}},
		{"a majority is killed, and starts empty", 2, func(w *world, a aim) func() {
			return each(w.some(w.quorum(), a.node), (*redistest.Server).Kill, revive)
		}},
		{"a majority restarts empty at once", 4, func(w *world, a aim) func() {
			each(w.some(w.quorum(), a.node), restart, nil)
			return nil
		}},
		{"a node restarts with its data", 2, func(w *world, a aim) func() {
			n := w.Nodes[a.node]
			n.Thaw()
			n.Restart(!up(n))
			return nil
		}},
	}
}

// restoreUser gives the sidecars' user its rights back.
const restoreUser = "ACL SETUSER " + user + " reset on >" + password + " " + redistest.MinimalRights

// outOfMemory makes a node refuse whatever needs memory.
const outOfMemory = "CONFIG SET maxmemory 1"

// dismiss cuts the connections of the sidecars' user.
const dismiss = "CLIENT KILL USER " + user

func adminFaults() []fault {
	// ordered is a fault that an administrator makes on one node, and mends.
	ordered := func(name string, weight int, begin, end []string) fault {
		return fault{name, weight, func(w *world, a aim) func() {
			order := func(commands []string) func(*redistest.Server) {
				return func(n *redistest.Server) {
					if len(commands) > 0 {
						w.order(n, commands...)
					}
				}
			}
			return each(w.some(1, a.node), order(begin), order(end))
		}}
	}
	return []fault{
		ordered("a node is out of memory", 4, []string{outOfMemory}, []string{"CONFIG SET maxmemory 0"}),
		ordered("a node may evict", 2,
			[]string{"CONFIG SET maxmemory-policy allkeys-lru maxmemory 1gb", dismiss},
			[]string{"CONFIG SET maxmemory-policy noeviction maxmemory 0", dismiss}),
		ordered("scripts are flushed", 3, []string{"SCRIPT FLUSH"}, []string{"SCRIPT FLUSH"}),
		ordered("clients are killed", 4, []string{dismiss}, nil),
		ordered("the user is turned off", 2, []string{"ACL SETUSER " + user + " off", dismiss}, []string{restoreUser}),
		ordered("the user loses its rights", 2, []string{"ACL SETUSER " + user + " -@all"}, []string{restoreUser}),
		{"a node becomes a replica, and is promoted", 2, func(w *world, a aim) func() {
			n := w.Nodes[a.node]
			w.order(n, w.replicaOf())
			return func() { w.promote(n) }
		}},
	}
}

// replicaOf is the command that makes a node a replica of a server without keys.
func (w *world) replicaOf() string {
	if w.primary == nil {
		w.primary = redistest.Start(GinkgoTB(), redistest.WithConfig("repl-diskless-sync-delay 0"))
	}
	host, port, _ := strings.Cut(w.primary.Addr(), ":")
	return "REPLICAOF " + host + " " + port
}

// promote makes a replica a master, and cuts connections as fail-over does; who connects
// again sees what it was. It is of no use again until it has restarted.
func (w *world) promote(n *redistest.Server) {
	w.orderAtOnce(n, dismiss, "REPLICAOF NO ONE")
	w.later(w.TTL, "promoted replica", func() { n.Restart(true) })
}

func networkFaults() []fault {
	// linked is a fault of the link of one candidate to one node.
	linked := func(name string, weight int, begin func(w *world, a aim, l *link.Link), end func(*link.Link)) fault {
		return fault{name, weight, func(w *world, a aim) func() {
			links := w.links(w.at(a))
			if links == nil {
				return nil
			}
			l := links[a.node]
			begin(w, a, l)
			return func() { end(l) }
		}}
	}
	mend := (*link.Link).Mend
	breaks := func(l *link.Link) {
		l.Break()
		l.Mend()
	}
	return []fault{
		linked("a link is cut", 3, func(_ *world, _ aim, l *link.Link) { l.Cut() }, mend),
		linked("a link is slow", 5, func(w *world, a aim, l *link.Link) {
			d := time.Duration(a.part * float64(w.TTL/4))
			l.Slow(d, d/2)
		}, mend),
		linked("requests do not arrive", 4, func(_ *world, _ aim, l *link.Link) { l.CutWay(link.Requests) }, mend),
		linked("replies come late", 4, func(_ *world, _ aim, l *link.Link) { l.CutWay(link.Replies) }, mend),
		linked("replies are lost", 4, func(_ *world, _ aim, l *link.Link) { l.CutWay(link.Replies) }, breaks),
		linked("connections are half-open", 3, func(_ *world, _ aim, l *link.Link) { l.Abandon() }, mend),
		linked("connections break", 3, func(_ *world, _ aim, l *link.Link) { l.Break() }, mend),
		{"a candidate is cut off", 7, func(w *world, a aim) func() { return all(w.links(w.at(a)), (*link.Link).Cut, mend) }},
		{"a candidate hears nothing", 7, func(w *world, a aim) func() {
			return all(w.links(w.at(a)), func(l *link.Link) { l.CutWay(link.Replies) }, breaks)
		}},
		{"a node is cut off", 2, func(w *world, a aim) func() {
			var links []*link.Link
			for _, p := range w.places {
				if own := w.links(p); own != nil {
					links = append(links, own[a.node])
				}
			}
			return all(links, (*link.Link).Cut, mend)
		}},
	}
}

// all does something to links, and something else at the end.
func all(links []*link.Link, begin, end func(*link.Link)) func() {
	for _, l := range links {
		begin(l)
	}
	return func() {
		for _, l := range links {
			end(l)
		}
	}
}

func processFaults() []fault {
	return []fault{
		{"a candidate freezes", 6, func(w *world, a aim) func() {
			s := w.at(a).current()
			if s == nil {
				return nil
			}
			_ = s.Freeze() // an error says that it has ended
			return func() { _ = s.Thaw() }
		}},
		{"a candidate freezes for more than a TTL", 7, func(w *world, a aim) func() {
			s := w.at(a).current()
			if s == nil {
				return nil
			}
			_ = s.Freeze()
			return func() { w.later(w.TTL, "freeze", func() { _ = s.Thaw() }) }
		}},
		{"a candidate freezes in the middle of a round", 8, func(w *world, a aim) func() {
			p := w.at(a)
			s, links := p.current(), w.links(p)
			if s == nil {
				return nil
			}
			links[a.node].Trap(func() { _ = s.Freeze() })
			return func() {
				links[a.node].Trap(nil)
				_ = s.Thaw()
			}
		}},
		{"a candidate is killed", 8, func(w *world, a aim) func() {
			p := w.at(a)
			w.crash(p)
			return func() { w.boot(p) }
		}},
		{"a candidate is told to end", 4, func(w *world, a aim) func() {
			p := w.at(a)
			s := p.current()
			if s == nil {
				return nil
			}
			p.put(nil)
			_ = s.Signal(syscall.SIGTERM) // an error says that it has ended
			return func() {
				w.bury(s)
				w.boot(p)
			}
		}},
	}
}
