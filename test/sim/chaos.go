package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

// fault is something that goes wrong, or that somebody asks for, with how often it is
// drawn. do returns what ends it, or nil.
type fault struct {
	name   string
	weight int
	wild   bool // breaks an assumption
	do     func(w *world) (heal func())
}

var errUnfit = errors.New("is a replica")

func faults() []fault {
	return slices.Concat(nodeFaults(), networkFaults(), processFaults(), controls(), scenes(), wildFaults())
}

func nodeFaults() []fault {
	return []fault{
		{name: "node restarts empty", weight: 6, do: func(w *world) func() { w.server().Restart(); return nil }},
		{name: "majority restarts empty", weight: 1, do: func(w *world) func() {
			for _, s := range w.servers[:redlock.Quorum(w.size)] {
				s.Restart()
			}
			return nil
		}},
		{name: "node restarts with its data", weight: 2, do: func(w *world) func() { w.server().RestartWithData(); return nil }},
		{name: "node freezes", weight: 4, do: func(w *world) func() { s := w.server(); s.Freeze(); return s.Thaw }},
		{name: "node is out of memory", weight: 2, do: func(w *world) func() {
			s := w.server()
			s.Full(true)
			return func() { s.Full(false) }
		}},
		{name: "node becomes a replica", weight: 1, do: func(w *world) func() {
			s := w.server()
			s.Fail(func(redlock.Request) error {
				return &redlock.NodeError{Node: "it", Kind: redlock.KindUnfit, Err: errUnfit}
			})
			return func() { s.Fail(nil) }
		}},
	}
}

func networkFaults() []fault {
	each := func(w *world, do, undo func(k *link)) func() {
		l := w.someLife()
		if l == nil {
			return nil
		}
		k := l.links[w.rng.IntN(len(l.links))]
		do(k)
		return func() { undo(k) }
	}
	return []fault{
		{name: "link is cut", weight: 5, do: func(w *world) func() {
			return each(w, func(k *link) { k.Cut(true) }, func(k *link) { k.Cut(false) })
		}},
		{name: "replies are lost", weight: 5, do: func(w *world) func() {
			return each(w, func(k *link) { k.DropReplies(true) }, func(k *link) { k.DropReplies(false) })
		}},
		{name: "link is slow", weight: 5, do: func(w *world) func() {
			lag := time.Duration(w.rng.Int64N(int64(w.ttl)))/2 + usualLag
			return each(w, func(k *link) { k.slow(lag) }, func(k *link) { k.slow(usualLag) })
		}},
		{name: "connection breaks", weight: 5, do: func(w *world) func() {
			return each(w, func(k *link) { k.Reconnect() }, func(k *link) { k.Reconnect() })
		}},
		{name: "process is cut off", weight: 3, do: func(w *world) func() {
			l := w.someLife()
			if l == nil {
				return nil
			}
			for _, k := range l.links {
				k.Cut(true)
			}
			return func() {
				for _, k := range l.links {
					k.Cut(false)
				}
			}
		}},
	}
}

func processFaults() []fault {
	return []fault{
		{name: "process pauses", weight: 6, do: func(w *world) func() { p := w.proc(); p.pause(); return p.resume }},
		{name: "process pauses as it asks", weight: 4, do: func(w *world) func() {
			p := w.proc()
			p.pauseAt(1 + w.rng.IntN(2*w.size))
			return p.resume
		}},
		{name: "process is killed", weight: 4, do: func(w *world) func() { p := w.proc(); p.kill(); return p.start }},
		{name: "process ends", weight: 3, do: func(w *world) func() { p := w.proc(); p.end(); return p.start }},
		{name: "holder is killed", weight: 3, do: func(w *world) func() {
			for _, l := range w.lives() {
				if l.Leadership().Active() {
					l.proc.kill()
					return l.proc.start
				}
			}
			return nil
		}},
	}
}

func controls() []fault {
	verb := func(f func(l *life)) func(w *world) func() {
		return func(w *world) func() {
			l := w.someLife()
			if l == nil {
				return nil
			}
			f(l)
			return func() { _ = l.Resume() }
		}
	}
	return []fault{
		{name: "step-down", weight: 3, do: func(w *world) func() {
			pause := time.Duration(w.rng.Int64N(int64(w.ttl)))
			return verb(func(l *life) { _ = l.StepDown(pause) })(w)
		}},
		{name: "pause", weight: 1, do: verb(func(l *life) { _ = l.Pause() })},
		{name: "drain", weight: 2, do: verb(func(l *life) { _ = l.Drain() })},
		{name: "stopped", weight: 1, do: verb(func(l *life) {
			if l.Stopped() == nil {
				l.proc.w.check.believed(l)
			}
		})},
		{name: "priority", weight: 1, do: func(w *world) func() {
			p := w.rng.IntN(201) - 100
			return verb(func(l *life) { l.SetPriority(p) })(w)
		}},
	}
}

// wildFaults break what the lock assumes.
func wildFaults() []fault {
	return []fault{
		{name: "node clock steps", weight: 8, wild: true, do: func(w *world) func() {
			w.server().Step(time.Duration(w.rng.Int64N(int64(4*w.ttl))) - 2*w.ttl)
			return nil
		}},
		{name: "node clock runs off", weight: 4, wild: true, do: func(w *world) func() {
			s := w.server()
			s.Rate((w.rng.Float64()*2 - 1) * 0.3)
			return func() { s.Rate(0) }
		}},
		{name: "key is evicted", weight: 8, wild: true, do: func(w *world) func() { w.server().Delete("podlease:orders"); return nil }},
	}
}

// start boots a process where none runs.
func (p *proc) start() {
	if p.current() == nil {
		p.boot()
	}
}

// buryEnded makes room for another process where one has ended by itself, as it does when
// all its nodes are unfit when it starts.
func (p *proc) buryEnded() {
	if l := p.current(); l != nil {
		select {
		case <-l.done:
			p.kill()
		default:
		}
	}
}

// restartCut boots a process anew that loses some of its nodes when it first tries to take
// the lock.
func (p *proc) restartCut(links ...int) {
	p.kill()
	p.mu.Lock()
	p.cutAtTake = links
	p.mu.Unlock()
	p.boot()
}

func (w *world) server() *redlocktest.Server { return w.servers[w.rng.IntN(w.size)] }

func (w *world) proc() *proc { return w.procs[w.rng.IntN(len(w.procs))] }

func (w *world) someLife() *life {
	lives := w.lives()
	if len(lives) == 0 {
		return nil
	}
	return lives[w.rng.IntN(len(lives))]
}

// strike draws a fault, lets it happen, and sees to its end.
func (w *world) strike() {
	if time.Now().Before(w.quiet) {
		return
	}
	f := w.draw()
	w.log.add("-- %s", f.name)
	heal := f.do(w)
	w.check.exclusive(w)
	if heal == nil {
		return
	}
	time.AfterFunc(time.Duration(w.rng.Int64N(int64(2*w.ttl)))+time.Millisecond, func() {
		w.log.add("-- end of: %s", f.name)
		heal()
		w.check.exclusive(w)
	})
}

func (w *world) draw() fault {
	all, total := faults(), 0
	if w.set.Favour != "" && w.rng.IntN(2) == 0 {
		return all[slices.IndexFunc(all, func(f fault) bool { return f.name == w.set.Favour })]
	}
	for _, f := range all {
		if !f.wild || w.set.Wild {
			total += f.weight
		}
	}
	n := w.rng.IntN(total)
	for _, f := range all {
		if f.wild && !w.set.Wild {
			continue
		}
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("no fault drawn")
}
