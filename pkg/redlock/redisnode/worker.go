package redisnode

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

const (
	firstWait   = 20 * time.Millisecond
	longestWait = time.Second
	// idleCheck is how often an idle connection is looked at, without a command.
	idleCheck = time.Second
)

// worker owns a node's connection for commands.
type worker struct {
	n     *Node
	spare []call // becomes the queue when the queue is taken

	s       *session
	dialed  chan dialResult
	dialing bool
	reason  error // of the last attempt to connect, until one succeeds
	tries   int   // attempts since the last answer to a request

	waiting []call // for the first attempt to connect
	expiry  *time.Timer
	redial  *time.Timer
	look    *time.Ticker
	recheck *time.Timer

	told    redlock.ErrorKind // the trouble with connecting that was logged
	refused redlock.ErrorKind // the refusal that was logged
}

type dialResult struct {
	s   *session
	err error
}

func newWorker(n *Node) *worker {
	return &worker{
		n: n, dialed: make(chan dialResult, 1),
		expiry: stoppedTimer(), redial: stoppedTimer(), recheck: stoppedTimer(),
		look: time.NewTicker(idleCheck),
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
		case <-w.look.C:
			w.inspect()
		case <-w.n.doubt:
			w.inspect()
		case <-w.recheck.C:
			w.ask()
		}
		w.serve()
	}
}

// stop answers what waits and leaves nothing running.
func (w *worker) stop() {
	w.look.Stop()
	for _, t := range []*time.Timer{w.expiry, w.redial, w.recheck} {
		t.Stop()
	}
	if w.dialing {
		if r := <-w.dialed; r.s != nil {
			r.s.close()
		}
	}
	if w.s != nil {
		w.s.close()
	}
	w.refuse(append(w.waiting, w.n.take(nil)...), ErrClosed)
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
		w.reason = r.err
		w.redial.Reset(backoff(w.tries))
		w.tell(r.err)
		return
	}
	w.s, w.reason = r.s, nil
	w.n.judged(r.s.fitness)
	w.recheck.Reset(spread(w.n.cfg.Recheck))
	if w.told != "" {
		w.told = ""
		w.n.cfg.Log.Info("node can be reached again", "node", w.n.Name())
		return
	}
	w.n.cfg.Log.V(1).Info("node connected", "node", w.n.Name())
}

// lost gives the connection up. The first attempt to replace it is made at once,
// unless the last one brought no answer either.
func (w *worker) lost(err error) {
	if time.Since(w.s.born) > longestWait {
		w.tries = 0
	}
	w.s.close()
	w.s = nil
	w.recheck.Stop()
	w.n.cfg.Log.V(1).Info("connection to node lost", "node", w.n.Name(), "reason", err.Error())
	if w.tries == 0 {
		w.connect()
		return
	}
	w.reason = err
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

// serve sends what is queued until nothing is left, or answers it.
func (w *worker) serve() {
	for {
		batch := w.n.take(w.spare)
		if len(w.waiting) > 0 && (w.s != nil || w.reason != nil) {
			batch, w.waiting = append(w.waiting, batch...), nil
		}
		switch {
		case len(batch) == 0 && len(w.waiting) == 0:
			w.spare = batch
			return
		case w.s != nil:
			w.exchange(batch)
		case w.reason != nil:
			w.refuse(batch, w.reason)
		default:
			w.wait(batch)
			return
		}
		clear(batch)
		w.spare = batch
	}
}

// wait keeps the calls for the attempt to connect that is under way, and answers
// those whose time is over.
func (w *worker) wait(batch []call) {
	w.waiting = w.living(append(w.waiting, batch...))
	w.spare = nil
	if excess := len(w.waiting) - maxQueue; excess > 0 {
		w.refuse(w.waiting[:excess], errStuck)
		w.waiting = w.waiting[excess:]
	}
	if len(w.waiting) == 0 {
		return
	}
	next := w.waiting[0].deadline
	for _, c := range w.waiting {
		if c.deadline.Before(next) {
			next = c.deadline
		}
	}
	w.expiry.Reset(time.Until(next))
}

// living answers the calls that ended or that the node must not get, and returns
// the others.
func (w *worker) living(batch []call) []call {
	now := time.Now()
	live := batch[:0]
	for _, c := range batch {
		err := c.ended(now)
		switch {
		case err != nil:
			c.done(redlock.Reply{}, w.n.fault(redlock.KindTimeout, w.waitHint(), notDoneError{err}))
		default:
			live = append(live, c)
		}
	}
	return live
}

func (c *call) ended(now time.Time) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if !now.Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

func (w *worker) waitHint() string {
	if w.s == nil {
		return "no connection yet"
	}
	return "an earlier request took all the time"
}

func (w *worker) refuse(batch []call, reason error) {
	for _, c := range batch {
		c.done(redlock.Reply{}, w.n.unreachable(reason))
	}
}

// inspect looks at an idle connection, so that it is replaced before somebody
// needs it.
func (w *worker) inspect() {
	if w.s == nil {
		return
	}
	if err := w.s.gone(); err != nil {
		w.lost(err)
	}
}

// ask reads again whether the server is fit.
func (w *worker) ask() {
	if w.s == nil {
		return
	}
	ctx := within(time.Now().Add(w.n.cfg.NodeTimeout))
	pipe := w.s.conn.Pipeline()
	asked := askFitness(ctx, pipe)
	if _, err := pipe.Exec(ctx); unusable(err) {
		w.lost(err)
		return
	}
	verdict, _ := asked.verdict()
	w.n.judged(verdict)
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
