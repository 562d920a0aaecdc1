package redisnode

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

const (
	firstWait   = 20 * time.Millisecond
	longestWait = time.Second
)

// worker sees to it that a node has a connection for commands.
type worker struct {
	n *Node

	s       *session // nil while there is none
	dialed  chan dialResult
	dialing bool
	reason  error // of the last attempt to connect, until one succeeds
	trouble error // the last with the connection, until there is one again
	tries   int   // attempts since the last answer to a request

	expiry  *time.Timer
	redial  *time.Timer
	recheck *time.Timer

	told redlock.ErrorKind // the trouble with connecting that was logged
}

type dialResult struct {
	s   *session
	err error
}

func newWorker(n *Node) *worker {
	return &worker{
		n: n, dialed: make(chan dialResult, 1),
		expiry: stoppedTimer(), redial: stoppedTimer(), recheck: stoppedTimer(),
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (w *worker) run() {
	defer close(w.n.stopped)
	defer w.stop()
	w.connect()
	for {
		select {
		case <-w.n.ctx.Done():
			return
		case <-w.n.wake:
		case r := <-w.dialed:
			w.connected(r)
		case <-w.redial.C:
			w.connect()
		case <-w.expiry.C:
		case l := <-w.n.lost:
			w.lost(l)
		case <-w.recheck.C:
			w.ask()
		}
		w.serve()
	}
}

// stop answers what waits and leaves nothing running.
func (w *worker) stop() {
	for _, t := range []*time.Timer{w.expiry, w.redial, w.recheck} {
		t.Stop()
	}
	if w.dialing {
		if r := <-w.dialed; r.s != nil {
			r.s.close()
		}
	}
	if w.s != nil {
		<-w.s.ended // its connection was closed with the node's context
	}
	w.refuse(w.n.unreachable(ErrClosed))
}

// connect starts the only attempt at a time.
func (w *worker) connect() {
	w.dialing = true
	go func() {
		s, err := w.n.connect()
		w.dialed <- dialResult{s, err}
	}()
}

func (w *worker) connected(r dialResult) {
	w.dialing = false
	w.tries++
	if r.err != nil {
		w.reason, w.trouble = r.err, r.err
		w.redial.Reset(backoff(w.tries))
		w.tell(r.err)
		return
	}
	w.s, w.reason, w.trouble = r.s, nil, nil
	w.n.judged(r.s.fitness)
	w.n.mu.Lock()
	w.n.session = r.s
	w.n.mu.Unlock()
	go w.n.read(r.s)
	w.recheck.Reset(spread(w.n.cfg.Recheck))
	if w.told != "" {
		w.told = ""
		w.n.cfg.Log.Info("node can be reached again", "node", w.n.Name())
		return
	}
	w.n.cfg.Log.V(1).Info("node connected", "node", w.n.Name())
}

// lost replaces the connection. The first attempt is made at once, unless the last one
// brought no answer either.
func (w *worker) lost(l lostSession) {
	if l.heardOf || time.Since(l.born) > longestWait {
		w.tries = 0
	}
	w.s, w.trouble = nil, l.reason
	w.recheck.Stop()
	w.n.cfg.Log.V(1).Info("connection to node lost", "node", w.n.Name(), "reason", l.reason.Error())
	if w.tries == 0 {
		w.connect()
		return
	}
	w.reason = l.reason
	w.redial.Reset(backoff(w.tries))
}

// tell logs a kind of trouble once.
func (w *worker) tell(err error) {
	kind, hint := w.n.classify(err)
	if kind == w.told {
		return
	}
	w.told = kind
	w.n.cfg.Log.Info("node cannot be reached", "node", w.n.Name(), "reason", err.Error(), "hint", hint)
}

// backoff is how long to wait after so many failed attempts.
func backoff(tries int) time.Duration {
	return spread(min(firstWait<<min(tries-1, 10), longestWait))
}

// spread takes off up to half, so that many clients do not act as one.
func spread(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}

// serve sends what is queued, or lets it wait for the attempt to connect that is under
// way, or answers it.
func (w *worker) serve() {
	switch {
	case w.s != nil:
		w.n.mu.Lock()
		never := w.n.flush()
		w.n.mu.Unlock()
		w.n.answer(never)
	case w.reason != nil:
		w.refuse(w.n.unreachable(w.reason))
	default:
		w.wait()
	}
}

// refuse answers all that is queued.
func (w *worker) refuse(reason error) {
	n := w.n
	n.mu.Lock()
	queue := n.queue
	n.queue = nil
	n.mu.Unlock()
	never := make([]unsent, len(queue))
	for i, m := range queue {
		never[i] = unsent{m, reason}
	}
	n.answer(never)
}

// wait answers what is queued and whose time is over, and comes back when that of the
// next is.
func (w *worker) wait() {
	n, now := w.n, time.Now()
	n.mu.Lock()
	var over []unsent
	var next time.Time
	n.queue = slices.DeleteFunc(n.queue, func(m message) bool {
		if err := m.ended(now); err != nil {
			over = append(over, unsent{m, w.unconnected(err)})
			return true
		}
		if m.heard == nil && (next.IsZero() || m.call.deadline.Before(next)) {
			next = m.call.deadline
		}
		return false
	})
	n.mu.Unlock()
	n.answer(over)
	if !next.IsZero() {
		w.expiry.Reset(time.Until(next))
	}
}

// unconnected is the answer to a request that waited for a connection until its time was
// over: what is wrong, as far as that is known.
func (w *worker) unconnected(err error) *redlock.NodeError {
	if w.trouble != nil {
		return w.n.unreachable(w.trouble)
	}
	return w.n.tooLate("no connection yet", err)
}

// ask reads again whether the server is fit.
func (w *worker) ask() {
	sections := []string{"server", "replication", "memory"}
	told, whole := make([]string, 0, len(sections)), true
	hear := func(v any, err error) {
		text, _ := v.(string)
		told, whole = append(told, text), whole && !unusable(err)
		if len(told) == len(sections) && whole {
			w.n.judged(judge(told[0], told[1], told[2]))
		}
	}
	w.n.mu.Lock()
	for _, section := range sections {
		w.n.queue = append(w.n.queue, message{words: []string{"info", section}, heard: hear})
	}
	w.n.mu.Unlock()
	w.recheck.Reset(spread(w.n.cfg.Recheck))
}

// deadline is a context that only has one: nothing else is heeded by go-redis,
// and a timer costs.
type deadline struct {
	context.Context // it is one
	at              time.Time
}

func within(at time.Time) *deadline { return &deadline{context.Background(), at} }

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }
