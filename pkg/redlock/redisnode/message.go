package redisnode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
)

// mostInFlight bounds the bytes that are sent before they are answered, but for one
// message, so that no write ever waits for a server that does not read. Sockets take more
// than 64 KB. It is about a hundred requests in each round trip.
const mostInFlight = 32 << 10

var (
	errUnasked = errors.New("the server sent something without having been asked")
	errGivenUp = errors.New("the connection was given up")
	errRemoved = errors.New("the server forgot the script in between, and a later request for the same lock ran already")
)

// message is what is on its way to a server: a call, or a question of the node's own.
type message struct {
	call  call
	again bool   // with the source of the script
	runID string // of the server that it was sent to, where the script does not tell
	young bool   // by what was known of that server

	words []string // of the node's own question
	heard func(v any, err error)

	size  int
	sent  time.Time
	limit time.Time // when its answer is of no more use
}

// ended says why the message need not be sent any more.
func (m *message) ended(now time.Time) error {
	if m.heard != nil {
		return nil
	}
	if err := m.call.ctx.Err(); err != nil {
		return err
	}
	if !now.Before(m.call.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// mayWrite reports whether a message can be written at once. It needs the node's mutex,
// as what follows.
func (s *session) mayWrite() bool {
	return s.broken == nil && len(s.again) == 0 && s.inFlight < mostInFlight
}

// write sends a message, and reports false when it was not sent because the connection
// broke while it was idle.
func (s *session) write(m message, now time.Time, timeout time.Duration) bool {
	if len(s.unread) == 0 {
		if err := s.gone(); err != nil {
			s.fail(err)
			return false
		}
	}
	s.buffer = s.encodeMessage(s.buffer[:0], &m)
	m.runID, m.young = s.runID, !s.mature(&m.call.req)
	m.size, m.sent, m.limit = len(s.buffer), now, now.Add(timeout)
	if m.heard == nil && m.call.deadline.Before(m.limit) {
		m.limit = m.call.deadline
	}
	s.unread = append(s.unread, m)
	s.inFlight += m.size
	if _, err := s.upper.Write(s.buffer); err != nil {
		s.fail(err) // some of it may have been sent, so it counts as sent
	}
	if s.alarm.IsZero() {
		s.wakeAt(m.limit)
	}
	return true
}

// wakeAt sets when the reader looks whether it still has to wait. An alarm is not put
// off by an answer, nor by a later message: that would cost each of them as much as a
// wake-up costs once in a while.
func (s *session) wakeAt(t time.Time) {
	s.alarm = t
	_ = s.upper.SetReadDeadline(t)
}

func (s *session) encodeMessage(b []byte, m *message) []byte {
	if m.heard == nil {
		bare := s.bare
		s.bare = false
		return s.encode(b, &m.call.req, bare)
	}
	b = appendArray(b, len(m.words))
	for _, w := range m.words {
		b = appendString(b, w)
	}
	return b
}

// fail gives the connection up. Whoever reads finds it closed, and answers what waits.
func (s *session) fail(err error) {
	if s.broken == nil {
		s.broken = err
	}
	_ = s.raw.Close()
}

// answered takes the message off that the server has just answered.
func (s *session) answered() message {
	m := s.unread[0]
	s.unread = slices.Delete(s.unread, 0, 1)
	s.inFlight -= m.size
	return m
}

// patience is until when the answer to the first message is waited for: its node
// timeout, and not longer than somebody is interested in what is under way.
func (s *session) patience(timeout time.Duration) time.Time {
	latest := s.unread[0].limit
	for _, m := range s.unread[1:] {
		if m.limit.After(latest) {
			latest = m.limit
		}
	}
	if limit := s.unread[0].sent.Add(timeout); limit.Before(latest) {
		return limit
	}
	return latest
}

// forgotten takes in an answer while requests wait that met a server without the
// script. It returns what cannot be asked again: a request must not run after a later
// one for the same lock, so if that one found the script, put there by somebody else in
// between, the earlier one is refused.
func (s *session) forgotten(m message, err error) (kept bool, refused []message) {
	if redis.HasErrorPrefix(err, "NOSCRIPT") && !m.again && m.heard == nil {
		s.again = append(s.again, m)
		return true, nil
	}
	waiting := s.again[:0:0]
	for _, earlier := range s.again {
		if m.heard == nil && earlier.call.req.Keys.Lock == m.call.req.Keys.Lock {
			refused = append(refused, earlier)
		} else {
			waiting = append(waiting, earlier)
		}
	}
	s.again = waiting
	return false, refused
}

// repeat returns what is to be asked again, the first with the source of the script, once
// everything that was sent before has been answered.
func (s *session) repeat() []message {
	if len(s.again) == 0 || len(s.unread) > 0 {
		return nil
	}
	repeated := s.again
	s.again = nil
	s.runID, s.bare = "", true // it has to be asked from now on, since it may be another
	for i := range repeated {
		repeated[i].again = true
	}
	return repeated
}

// unusable tells whether an error leaves the connection of no use. A login that was
// refused does: the credentials may be right the next time they are read.
func unusable(err error) bool {
	if err == nil {
		return false
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return true
	}
	kind, _ := replyKind(reply.Error())
	return kind == redlock.KindAuth
}
