package sim

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Result is what a run showed.
type Result struct {
	Seed       uint64
	Violations []string
	Timeline   string
	// History is a hash of the timeline: two runs of a seed have the same.
	History uint64
	Virtual time.Duration
	Terms   int
	Refused int // writes that storage refused because of their token
}

// Run runs one seed. It must be called inside a testing/synctest bubble, and leaves no
// goroutine behind.
func Run(set Setting) Result {
	w := newWorld(set)
	w.check.wild = set.Wild
	w.log.add("seed %d: %d nodes, %d candidates, ttl %v, stop budget %v, quarantine %v",
		set.Seed, w.size, len(w.procs), w.opt.TTL, w.opt.StopBudget, w.opt.Quarantine)
	for _, p := range w.procs {
		p.boot()
		time.Sleep(time.Duration(w.rng.Int64N(int64(10 * time.Millisecond)))) // loops that beat at other instants
	}
	w.storm()
	w.calm()
	w.steady()
	w.finish()
	return w.result()
}

// storm lets faults happen.
func (w *world) storm() {
	sample := w.ttl / 40
	next := time.Now().Add(w.pause())
	for time.Since(w.start) < w.set.Length && !w.check.failed() {
		time.Sleep(min(sample, max(time.Until(next), time.Nanosecond)))
		if !time.Now().Before(next) {
			w.strike()
			next = time.Now().Add(w.pause())
		}
		w.sample()
	}
}

// pause is how long until the next fault.
func (w *world) pause() time.Duration {
	return time.Duration(w.rng.Int64N(int64(w.ttl))) + time.Millisecond
}

// sample looks at the candidates, and lets those that are active write: most at once,
// some long after they asked whether they may.
func (w *world) sample() {
	w.check.exclusive(w)
	for _, l := range w.lives() {
		s := l.Leadership()
		if !s.Active() {
			continue
		}
		late := time.Duration(0)
		if w.rng.IntN(10) == 0 {
			late = time.Duration(w.rng.Int64N(int64(3 * w.ttl)))
		}
		name, term, token := l.name, s.Term, s.FencingToken
		time.AfterFunc(late+time.Nanosecond, func() { w.check.write(name, term, token) })
	}
}

// calm heals everything and waits for somebody to be active.
func (w *world) calm() {
	w.log.add("-- everything heals")
	for _, s := range w.servers {
		s.Thaw()
		s.Full(false)
		s.Fail(nil)
	}
	for _, p := range w.procs {
		p.resume()
		p.buryEnded()
		p.start()
	}
	w.hook(nil)
	time.Sleep(4*w.ttl + 2*time.Millisecond) // the ends of the last faults and scenes
	for _, p := range w.procs {
		p.resume()
	}
	for _, l := range w.lives() {
		_ = l.Resume()
		for _, k := range l.links {
			k.Cut(false)
			k.DropReplies(false)
			k.slow(usualLag)
		}
	}
	if !w.check.failed() && !w.electsWithin(w.opt.Quarantine+5*w.ttl) {
		w.check.fail("nobody became active although all nodes were healthy for a quarantine and five TTLs")
		for _, l := range w.lives() {
			w.log.add("%s: %s", l.name, l.Leadership().Reason)
		}
	}
}

// steady loses all replies for less than a lease lasts: a reply that is missing is
// neither yes nor no, so the holder must stay.
func (w *world) steady() {
	holder := w.holder()
	if holder == nil || w.check.failed() || w.set.Wild {
		return
	}
	time.Sleep(holder.proc.ttl)
	before := holder.Leadership()
	if !before.Active() {
		return // the end of a fault fell into this time
	}
	for _, k := range holder.links {
		k.DropReplies(true)
	}
	time.Sleep(holder.proc.ttl / 4)
	for _, k := range holder.links {
		k.DropReplies(false)
	}
	time.Sleep(holder.proc.ttl)
	if after := holder.Leadership(); after.Term != before.Term {
		w.check.fail("%s lost its lease although replies were missing for a quarter of it only", holder.name)
	}
}

func (w *world) electsWithin(limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(w.ttl / 10) {
		w.check.exclusive(w)
		for _, l := range w.lives() {
			if l.Leadership().Active() {
				return true
			}
		}
	}
	return false
}

// finish stops everybody, and looks for keys left behind.
func (w *world) finish() {
	for _, p := range w.procs {
		p.end()
	}
	w.running.Wait()
	time.Sleep(4 * w.ttl) // writes that are late, releases that are repeated, keys that run out
	for _, s := range w.servers {
		if v := s.Value("podlease:orders"); v != "" {
			w.check.fail("%s still has the key of %s", s.Name(), v)
		}
	}
}

func (w *world) result() Result {
	w.check.mu.Lock()
	defer w.check.mu.Unlock()
	text := w.log.String()
	h := fnv.New64a()
	fmt.Fprint(h, text)
	return Result{
		Seed: w.set.Seed, Violations: w.check.violations, Timeline: text, History: h.Sum64(),
		Virtual: time.Since(w.start), Terms: w.check.terms, Refused: w.check.refused,
	}
}
