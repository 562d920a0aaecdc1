package redisnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

// read hears the server's answers until the connection ends, and tells the worker.
func (n *Node) read(s *session) {
	defer close(s.ended)
	r := bufio.NewReaderSize(patient{n, s}, 4096)
	err := n.hearAll(s, r)
	n.mu.Lock()
	n.session = nil
	if s.broken != nil {
		err = s.broken
	}
	if n.ctx.Err() != nil {
		err = ErrClosed
	}
	unanswered := slices.Concat(s.again, s.unread)
	s.again, s.unread = nil, nil
	n.mu.Unlock()
	s.close()
	for i := range unanswered {
		_ = n.reply(&unanswered[i], nil, err)
	}
	n.lost <- lostSession{s, err}
}

// patient reads on for as long as there is time for the answer, also in its middle.
type patient struct {
	n *Node
	s *session
}

func (p patient) Read(b []byte) (int, error) {
	for {
		n, err := p.s.upper.Read(b)
		if n > 0 || err == nil || !timedOut(err) || !p.n.waitOn(p.s) {
			return n, err
		}
	}
}

type lostSession struct {
	*session
	reason error
}

func (n *Node) hearAll(s *session, r *bufio.Reader) error {
	for {
		v, err := readReply(r)
		if err != nil && !isReply(err) {
			return err
		}
		if err := n.heard(s, v, err); err != nil {
			return err
		}
	}
}

// waitOn reports whether there is time left for the answer.
func (n *Node) waitOn(s *session) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(s.unread) == 0 {
		s.wakeAt(time.Time{})
		return true
	}
	s.wakeAt(s.patience(n.cfg.NodeTimeout))
	if !time.Now().Before(s.alarm) {
		s.fail(context.DeadlineExceeded)
		return false
	}
	return true
}

// heard takes an answer to whom it is for, and sends what had to wait. It returns why
// the connection is of no more use.
func (n *Node) heard(s *session, v any, said error) error {
	n.mu.Lock()
	if len(s.unread) == 0 {
		s.fail(errUnasked)
		n.mu.Unlock()
		return errUnasked
	}
	m := s.answered()
	s.heardOf = true
	kept, refused := s.forgotten(m, said)
	n.mu.Unlock()

	for i := range refused {
		_ = n.reply(&refused[i], nil, notDoneError{errRemoved}) // says nothing of the connection
	}
	var verdict error
	if !kept {
		verdict = n.reply(&m, v, said)
	}

	n.mu.Lock()
	if verdict != nil {
		s.fail(verdict)
	}
	never := n.flush()
	n.mu.Unlock()
	n.answer(never)
	return verdict
}

// reply tells a message's sender what became of it, and returns why the connection is
// of no more use.
func (n *Node) reply(m *message, v any, err error) error {
	if m.heard != nil {
		m.heard(v, err)
		return nil
	}
	var reply redlock.Reply
	if err == nil {
		reply, err = decode(v)
	}
	if err == nil && reply.RunID == "" {
		reply.RunID, reply.Young = m.runID, m.young
	}
	if err != nil {
		failed := n.failed(err)
		m.call.done(redlock.Reply{}, failed)
		return n.refusal(failed, err)
	}
	if reply.Outcome == redlock.Released || reply.Outcome == redlock.Gone {
		n.unheard(reply.Owner)
		reply.Owner = ""
	}
	m.call.done(reply, nil)
	n.granted(&m.call, reply)
	return nil
}

// unheard logs once that notices may not be published: nobody would miss them, but each
// hand-over would wait until the next holder looks by itself.
func (n *Node) unheard(reason string) {
	if reason == "" || n.mute {
		return
	}
	n.mute = true
	_, hint := replyKind(reason)
	n.cfg.Log.Info("release notices may not be published: hand-overs will be slow", "node", n.Name(), "reason", reason, "hint", hint)
}

// refusal logs once why the node does not vote although it answers. It returns an error
// when a new connection may help: the server became another, the name is another
// server's now, or the credentials are read anew.
func (n *Node) refusal(failed *redlock.NodeError, err error) error {
	if !isReply(err) && !refused(err) && !errors.Is(err, errAnswer) {
		return nil // the connection broke
	}
	if failed.Kind != n.refused {
		n.refused = failed.Kind
		n.cfg.Log.Info("node refuses what it is asked", "node", n.Name(), "reason", failed.Err.Error(), "hint", failed.Hint)
	}
	if failed.Kind == redlock.KindReadOnly || failed.Kind == redlock.KindUnfit || failed.Kind == redlock.KindAuth || errors.Is(err, errAnswer) {
		return fmt.Errorf("%w, because an earlier request was answered with: %s", errGivenUp, err.Error())
	}
	return nil
}

// granted logs when the node votes again. A node that refuses to set a key may still
// read or delete it, so only a take shows that it does.
func (n *Node) granted(c *call, reply redlock.Reply) {
	switch {
	case reply.Outcome == redlock.Held && reply.PTTL == redlock.NoExpiry:
		if n.refused != neverExpires {
			n.refused = neverExpires
			n.cfg.Log.Info("key on node never expires", "node", n.Name(), "key", c.req.Keys.Lock,
				"hint", "no Redlock client leaves such a key: look what wrote it, and delete it if nothing holds the lock")
		}
	case n.refused != "" && c.req.Op == redlock.OpTake:
		n.refused = ""
		n.cfg.Log.Info("node does what it is asked again", "node", n.Name())
	}
}

// neverExpires stands in Node.refused for a key that blocks the lock.
const neverExpires redlock.ErrorKind = "never-expires"
