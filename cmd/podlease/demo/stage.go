package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/podlease/podlease/pkg/election"
)

// stage is everything that takes part, and what is known of it.
type stage struct {
	opt       Options
	account   *account
	servers   []*miniredis.Miniredis
	members   []*member
	sightings chan sighting

	leader *member   // who is active, nil when nobody is
	former *member   // who was active last
	term   string    // the last one seen
	left   time.Time // when somebody was active last, or the start
	reason string    // why somebody else will be active next
}

// sighting is one answer of a candidate.
type sighting struct {
	by         *member
	life       *life // the process that gave it
	leadership election.Leadership
}

func newStage(ctx context.Context, opt Options) (*stage, error) {
	s := &stage{
		opt:       opt,
		account:   &account{out: opt.Out, color: opt.Color},
		sightings: make(chan sighting),
		left:      time.Now(),
		reason:    "election",
	}
	if err := s.fill(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) fill(ctx context.Context) error {
	for range nodes {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // keys run out by themselves, as on a real server
		if err := server.Start(); err != nil {
			return fmt.Errorf("start an embedded Redis node on a free port of 127.0.0.1: %w", err)
		}
		s.servers = append(s.servers, server)
	}
	for i := range candidates {
		m, err := newMember(ctx, fmt.Sprintf("candidate-%d", i+1))
		if err != nil {
			return err
		}
		s.members = append(s.members, m)
	}
	for _, m := range s.members {
		if err := m.start(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// close ends the candidates in order, and then what they talk to.
func (s *stage) close() {
	for _, m := range s.members {
		m.close()
	}
	for _, server := range s.servers {
		server.Close()
	}
}

func (s *stage) addresses() []string {
	var list []string
	for _, server := range s.servers {
		list = append(list, server.Addr())
	}
	return list
}

// endpoints are where the candidates answer, without the scheme.
func (s *stage) endpoints() []string {
	var list []string
	for _, m := range s.members {
		list = append(list, m.addr.String())
	}
	return list
}

// observe updates who is active, and tells when that changed.
func (s *stage) observe(seen sighting) {
	if seen.life != seen.by.life.Load() || seen.life.crashed() {
		return
	}
	switch l := seen.leadership; {
	case l.Active() && l.Term != s.term:
		s.began(seen.by, l)
	case !l.Active() && s.leader == seen.by:
		s.ended(l)
	}
}

func (s *stage) began(by *member, l election.Leadership) {
	if s.leader != nil { // its own sighting is still on the way
		s.ended(s.leader.leadership())
	}
	s.account.active(l, s.cause(l.Since.Sub(s.left)))
	s.leader, s.former, s.term = by, by, l.Term
}

func (s *stage) ended(l election.Leadership) {
	s.leader, s.left, s.reason = nil, l.Since, "take-over"
	if handsOver(l) {
		s.reason = "hand-over"
	}
	s.account.standby(l)
}

// handsOver reports whether a candidate is not active any more because it was asked to
// hand over, by the demo or by a visitor.
func handsOver(l election.Leadership) bool {
	switch l.Reason {
	case "stepping down", "stepped down", "paused":
		return true
	}
	return false
}

// cause says how a candidate came to be active, and how long nobody was.
func (s *stage) cause(gap time.Duration) string {
	if s.former == nil {
		return fmt.Sprintf("%s, %s after the start", s.reason, span(gap))
	}
	return fmt.Sprintf("%s from %s, %s", s.reason, s.former.name, span(gap))
}

// handOver asks the active candidate to give the lock to another.
func (s *stage) handOver() error {
	s.account.note(s.leader.name, "steps down", "asked to hand over")
	err := s.leader.life.Load().candidate.StepDown(2 * s.opt.TTL)
	if _, lost := errors.AsType[*election.RefusedError](err); err != nil && !lost {
		return fmt.Errorf("ask %s to step down: %w", s.leader.name, err)
	}
	return nil // one that has just lost the lock has nothing to hand over
}

// crash ends the active candidate as SIGKILL would.
func (s *stage) crash() error {
	s.account.crash(s.leader.name)
	s.leader.life.Load().die()
	s.leader, s.left, s.reason = nil, time.Now(), "fail-over"
	return nil
}

// restart starts the crashed candidate again, as a new process.
func (s *stage) restart(ctx context.Context) error {
	for _, m := range s.members {
		if !m.life.Load().crashed() {
			continue
		}
		if err := m.start(ctx, s); err != nil {
			return err
		}
		s.account.note(m.name, "starts again", "a new process, its place is open")
	}
	return nil
}
