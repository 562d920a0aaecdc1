package sim

import (
	"sync/atomic"
	"time"

	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

// Scenes are faults that come together in the one order in which they could do harm. What
// is random in them is when.
func scenes() []fault {
	return []fault{
		{name: "pauses in mid-round, then is cut off", weight: 2, do: cutAfterPause},
		{name: "slow election, then cut off", weight: 2, do: slowElection},
		{name: "holder is cut off, then a majority restarts", weight: 2, do: cutThenRestart},
		{name: "node freed twice", weight: 1, do: freedTwice},
		{name: "answer that went stale", weight: 1, do: staleAnswer},
		{name: "one server under all names", weight: 1, do: allAstray},
	}
}

// within is a random time below d.
func (w *world) within(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// holder is a process that is active, or nil.
func (w *world) holder() *life {
	for _, l := range w.lives() {
		if l.Leadership().Active() {
			return l
		}
	}
	return nil
}

// others are the processes but one.
func (w *world) others(l *life) []*life {
	var out []*life
	for _, o := range w.lives() {
		if o != l {
			out = append(out, o)
		}
	}
	return out
}

func (l *life) cut(cut bool) {
	for _, k := range l.links {
		k.Cut(cut)
	}
}

// alone keeps other faults away from a scene, where scenes are what a run is about.
func (w *world) alone(lasting time.Duration) {
	if w.set.Favour != "" {
		w.quiet = time.Now().Add(lasting)
	}
}

// later does something when the scene has come that far.
func (w *world) later(in time.Duration, what string, do func()) {
	time.AfterFunc(in, func() {
		w.log.add("--   %s", what)
		do()
		w.check.exclusive(w)
	})
}

// cutAfterPause makes a holder hear late of a round, and nothing after it.
func cutAfterPause(w *world) func() {
	l := w.holder()
	if l == nil {
		return nil
	}
	l.proc.pauseAt(1 + w.rng.IntN(2*w.size))
	w.later(w.ttl/5+w.within(w.ttl), l.name+" goes on, cut off", func() {
		l.proc.resume()
		l.cut(true)
	})
	return func() {
		l.proc.resume()
		w.later(w.ttl, l.name+" is back", func() { l.cut(false) })
	}
}

// slowElection lets one node answer much sooner than the rest, and cuts the winner off.
func slowElection(w *world) func() {
	if l := w.holder(); l != nil {
		_ = l.StepDown(w.ttl)
	}
	var winner atomic.Pointer[life]
	w.hook(func(l *life) {
		winner.Store(l)
		l.cut(true)
	})
	first := w.server()
	for _, s := range w.servers[:w.size] {
		if s != first {
			s.Freeze()
		}
	}
	w.later(w.within(w.ttl*3/50), "nodes thaw", func() { thaw(w.servers[:w.size]) })
	return func() {
		w.hook(nil)
		w.later(w.ttl, "the winner is back", func() {
			if l := winner.Load(); l != nil {
				l.cut(false)
			}
		})
	}
}

func thaw(servers []*redlocktest.Server) {
	for _, s := range servers {
		s.Thaw()
	}
}

// cutThenRestart makes nodes forget a holder that cannot remind them.
func cutThenRestart(w *world) func() {
	l := w.holder()
	if l == nil {
		return nil
	}
	l.cut(true)
	w.later(w.within(w.ttl/4)+1, "a majority restarts empty", func() {
		for _, s := range w.servers[w.size-(w.size/2+1) : w.size] {
			s.Restart()
		}
	})
	return func() { l.cut(false) }
}

// freedTwice lets a node grant a contender what the holder has lost there, forget that,
// and meet the holder again, while the contender waits for a node that the holder cannot
// renew any more. The contender has just started, and so asks at once.
func freedTwice(w *world) func() {
	l := w.holder()
	p := w.proc()
	if l == nil || p == l.proc || w.size != 3 || len(l.links) != 3 || len(p.list) != 3 {
		return nil
	}
	order := w.rng.Perm(3)
	lost, contested, kept := order[0], order[1], order[2]
	w.alone(w.ttl * 7 / 2)
	p.kill()
	l.links[lost].Cut(true)
	for _, o := range w.others(l) {
		o.links[contested].Cut(true)
	}
	early := w.ttl*3/100 + w.within(w.ttl/100)
	w.later(w.ttl*6/5, "the holder is left with one node", func() {
		l.links[contested].Cut(true)
		free := max(w.ttl-time.Since(l.links[contested].lastSent()), early+1)
		w.later(free-early, "a contender starts, and meets one node", func() { p.restartCut(contested, kept) })
		w.later(free-early+w.ttl/100, "the node restarts and meets the holder again", func() {
			w.servers[lost].Restart()
			l.links[lost].Cut(false)
		})
		w.later(free, "the contender meets a second node", func() {
			if c := p.current(); c != nil {
				c.links[contested].Cut(false)
			}
		})
	})
	w.later(w.ttl*3, "all meet again", func() {
		for _, o := range w.lives() {
			o.cut(false)
		}
	})
	return p.start
}

// staleAnswer stops a contender after its first node's answer, lets others have the lock
// meanwhile, and brings the contender back to a node that they have not seen.
func staleAnswer(w *world) func() {
	h := w.holder()
	if h == nil || w.size != 3 {
		return nil
	}
	rivals := w.others(h)
	if len(rivals) == 0 {
		return nil
	}
	w.alone(w.ttl * 4)
	late := rivals[w.rng.IntN(len(rivals))]
	order := w.rng.Perm(3)
	unseen, first := order[0], order[1]
	for _, o := range w.others(late) {
		o.links[unseen].Cut(true)
	}
	late.proc.pauseAt(2 + w.rng.IntN(2))
	_ = h.StepDown(w.ttl / 2)
	end := w.ttl*3/2 + w.within(w.ttl)
	w.later(end, "the lock is free again", func() {
		late.links[first].Cut(true)
		for _, o := range w.others(late) {
			_ = o.StepDown(w.ttl)
			_ = o.Pause()
		}
	})
	w.later(end+w.opt.StopBudget+w.within(w.ttl/20), late.name+" goes on", late.proc.resume)
	w.later(end+w.ttl, "all meet again", func() {
		for _, o := range w.lives() {
			o.cut(false)
			_ = o.Resume()
		}
	})
	return func() {}
}

// allAstray starts a process for which all names lead to one server, while that has no
// key of the holder.
func allAstray(w *world) func() {
	l := w.holder()
	if l == nil {
		return nil
	}
	for _, o := range w.lives() {
		o.links[0].Cut(true)
	}
	p := w.proc()
	w.later(w.ttl*6/5, "a process is restarted, astray", func() {
		if p != w.procs[0] && p != l.proc {
			p.kill()
			p.goAstray()
			p.start()
		}
	})
	w.later(w.ttl*2, "the node is back", func() {
		for _, o := range w.lives() {
			o.links[0].Cut(false)
		}
	})
	return func() {}
}
