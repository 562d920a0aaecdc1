package redisnode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
)

var (
	errStuck   = errors.New("too many requests wait for a connection")
	errRemoved = errors.New("the server forgot the script in between, and a later request for the same lock ran already")
)

// exchange sends the batch and answers each call.
func (w *worker) exchange(batch []call) {
	now := time.Now()
	batch = w.fitting(w.living(batch))
	if len(batch) == 0 {
		return
	}
	if err := w.s.gone(); err != nil {
		w.lost(err) // and nothing was sent: it can wait for the next connection
		w.waiting = append(w.waiting, batch...)
		return
	}
	w.answer(batch, now)
}

// fitting answers what an unfit node must not get, and returns the rest.
func (w *worker) fitting(batch []call) []call {
	if w.n.fitness.Load().reason == "" {
		return batch
	}
	fit := batch[:0]
	for _, c := range batch {
		if err := w.n.refuseUnfit(c.req.Op); err != nil {
			c.done(redlock.Reply{}, err)
			continue
		}
		fit = append(fit, c)
	}
	return fit
}

func (w *worker) answer(batch []call, now time.Time) {
	ctx := within(latest(batch, now.Add(w.n.cfg.NodeTimeout)))
	cmds := w.s.send(ctx, batch)
	w.s.resend(ctx, batch, cmds)

	broken := brokenBy(cmds)
	if broken == nil {
		w.tries = 0
	}
	for i := range batch {
		reply, err := w.n.finish(&batch[i], cmds[i])
		if broken == nil {
			w.hear(&batch[i], reply, err)
		}
		if err != nil && broken == nil && (err.Kind == redlock.KindReadOnly || err.Kind == redlock.KindUnfit) {
			broken = err // the server became another, or the name is another server's now
		}
	}
	if broken != nil {
		w.lost(broken)
	}
}

// latest is the last moment at which an answer is of use to one of the calls.
func latest(batch []call, limit time.Time) time.Time {
	last := batch[0].deadline
	for _, c := range batch[1:] {
		if c.deadline.After(last) {
			last = c.deadline
		}
	}
	if last.After(limit) {
		return limit
	}
	return last
}

// send asks everything at once, in order, and waits for the answers.
func (s *session) send(ctx context.Context, batch []call) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(batch))
	for i := range batch {
		cmds[i] = redis.NewCmd(ctx, s.command(&batch[i].req, "evalsha", s.hash)...)
	}
	s.process(ctx, cmds)
	return cmds
}

// process leaves its errors in the commands.
func (s *session) process(ctx context.Context, cmds []*redis.Cmd) {
	if len(cmds) == 1 {
		_ = s.conn.Process(ctx, cmds[0])
		return
	}
	pipe := s.conn.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
}

// resend gives the script to a server that does not have it. A request must not
// run after a later one for the same lock, so if that one found the script, put
// there by somebody else in between, the earlier one is refused.
func (s *session) resend(ctx context.Context, batch []call, cmds []*redis.Cmd) {
	var again []int
	ran := map[string]bool{}
	for i, cmd := range slices.Backward(cmds) {
		lock := batch[i].req.Keys.Lock
		switch {
		case !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT"):
			ran[lock] = true
		case ran[lock]:
			cmd.SetErr(notDoneError{errRemoved})
		default:
			again = append(again, i)
		}
	}
	if len(again) == 0 || brokenBy(cmds) != nil {
		return
	}
	s.hash = lockScript.Hash() // the one that asks who answers, since that may be another now
	evals := make([]*redis.Cmd, 0, len(again))
	for _, i := range slices.Backward(again) {
		cmds[i] = redis.NewCmd(ctx, s.command(&batch[i].req, "eval", lockSource)...)
		evals = append(evals, cmds[i])
	}
	s.process(ctx, evals)
}

// brokenBy is the error after which the connection cannot be used, or nil.
func brokenBy(cmds []*redis.Cmd) error {
	for _, cmd := range cmds {
		err := cmd.Err()
		if unusable(err) && !errors.Is(err, errRemoved) {
			return err
		}
	}
	return nil
}

// finish answers a call, and returns what it answered.
func (n *Node) finish(c *call, cmd *redis.Cmd) (redlock.Reply, *redlock.NodeError) {
	v, err := cmd.Result()
	var reply redlock.Reply
	if err == nil {
		reply, err = decode(v)
	}
	if err != nil {
		failed := n.failed(err)
		c.done(redlock.Reply{}, failed)
		return redlock.Reply{}, failed
	}
	c.done(reply, nil)
	return reply, nil
}

// hear logs once why the node does not vote although it answers, and when it does
// again. A node that refuses to set a key may still read or delete it, so only a take
// shows that it does.
func (w *worker) hear(c *call, reply redlock.Reply, err *redlock.NodeError) {
	switch {
	case err != nil && err.Kind != w.refused:
		w.refused = err.Kind
		w.n.cfg.Log.Info("node refuses what it is asked", "node", w.n.Name(), "reason", err.Err.Error(), "hint", err.Hint)
	case err != nil:
	case reply.Outcome == redlock.Held && reply.PTTL == redlock.NoExpiry:
		if w.refused != neverExpires {
			w.refused = neverExpires
			w.n.cfg.Log.Info("key on node never expires", "node", w.n.Name(), "key", c.req.Keys.Lock,
				"hint", "no Redlock client leaves such a key: look what wrote it, and delete it if nothing holds the lock")
		}
	case w.refused != "" && c.req.Op == redlock.OpTake:
		w.refused = ""
		w.n.cfg.Log.Info("node does what it is asked again", "node", w.n.Name())
	}
}

// neverExpires stands in worker.refused for a key that blocks the lock.
const neverExpires redlock.ErrorKind = "never-expires"
