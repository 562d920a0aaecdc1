// Package redlocktest has lock servers in memory, for tests of what stands on
// redlock: their clocks, links, restarts and losses are the test's to set. Inside a
// testing/synctest bubble everything happens in virtual time.
package redlocktest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

// Server is one lock server, with the semantics that a redisnode gives to Redis. It is
// safe for concurrent use.
type Server struct {
	name string

	mu      sync.Mutex
	boot    time.Time // when the process started, by the server's clock
	runs    int
	origin  time.Time
	rate    float64       // of the server's clock against true time, less one
	skew    time.Duration // of the server's clock
	full    bool
	keys    map[string]entry
	fences  map[string]uint64
	frozen  bool
	queue   []func()
	subs    map[*subscription]bool
	handled map[redlock.Op]int
	fails   func(redlock.Request) error
}

type entry struct {
	value   string
	expires time.Time // in the server's clock
}

// NewServer returns a server that has been up for age.
func NewServer(name string, age time.Duration) *Server {
	s := &Server{name: name, origin: time.Now(), subs: map[*subscription]bool{}, handled: map[redlock.Op]int{}}
	s.start(s.now().Add(-age))
	return s
}

func (s *Server) start(boot time.Time) {
	s.boot, s.runs = boot, s.runs+1
	s.keys, s.fences = map[string]entry{}, map[string]uint64{}
}

// Restart ends the process and starts another one without data.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start(s.now())
	for sub := range s.subs {
		sub.lost()
	}
}

// RestartWithData ends the process and starts another one that has kept everything.
func (s *Server) RestartWithData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot, s.runs = s.now(), s.runs+1
	for sub := range s.subs {
		sub.lost()
	}
}

// Full makes the server refuse new keys, as Redis does when it is out of memory;
// existing keys can be extended.
func (s *Server) Full(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// Rate makes the server's clock run fast by that part, or slow when it is negative.
func (s *Server) Rate(r float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += time.Duration(float64(time.Since(s.origin)) * (s.rate - r)) // no step now
	s.rate = r
}

// Freeze stops the process; what it is sent waits until Thaw.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

// Thaw lets a frozen process go on with what it was sent.
func (s *Server) Thaw() {
	s.mu.Lock()
	s.frozen = false
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

// Step moves the server's clock.
func (s *Server) Step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += by
}

// Fail makes the server answer with what f returns, where that is not nil; f may be
// nil.
func (s *Server) Fail(f func(redlock.Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = f
}

// Handled returns how many requests of a kind were executed.
func (s *Server) Handled(op redlock.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handled[op]
}

// Value returns the value of a lock's key, or nothing.
func (s *Server) Value(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, _ := s.get(key)
	return v
}

// Set writes a key that expires after ttl, or never with a ttl of 0.
func (s *Server) Set(key, value string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = entry{value: value}
	if ttl != 0 {
		s.keys[key] = entry{value: value, expires: s.now().Add(ttl)}
	}
}

// Delete removes a key, as an operator or an eviction would.
func (s *Server) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// SetFence writes the stored fencing token of a lock.
func (s *Server) SetFence(key string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fences[key] = n
}

func (s *Server) now() time.Time {
	now := time.Now()
	return now.Add(s.skew + time.Duration(float64(now.Sub(s.origin))*s.rate))
}

func (s *Server) runID() string { return s.name + "#" + strconv.Itoa(s.runs) }

func (s *Server) get(key string) (string, time.Duration) {
	e, ok := s.keys[key]
	if ok && e.expires.IsZero() {
		return e.value, redlock.NoExpiry
	}
	left := e.expires.Sub(s.now())
	if !ok || left <= 0 {
		delete(s.keys, key)
		return "", 0
	}
	return e.value, left
}

// run executes f now, or when the server thaws.
func (s *Server) run(f func()) {
	s.mu.Lock()
	if s.frozen {
		s.queue = append(s.queue, f)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	f()
}

func (s *Server) execute(req redlock.Request) (redlock.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		if err := s.fails(req); err != nil {
			return redlock.Reply{}, err
		}
	}
	s.handled[req.Op]++
	uptime := s.now().Sub(s.boot).Truncate(time.Second) // wall time, as Redis counts it
	mature := req.Quarantine == 0 || req.MatureRunID == s.runID() || req.Unseen && uptime-time.Second >= req.Quarantine
	r := redlock.Reply{RunID: s.runID(), Young: !mature, Uptime: uptime, Time: s.now().UnixMicro()}
	value, left := s.get(req.Keys.Lock)
	switch {
	case req.Op == redlock.OpAnnounce:
		s.publish(req.Keys.Channel, req.Notice)
		r.Outcome = redlock.Gone
	case req.Op == redlock.OpRelease:
		r.Outcome = s.release(req, value)
	case value == "" && s.full && req.Op == redlock.OpTake:
		return redlock.Reply{}, &redlock.NodeError{Node: s.name, Kind: redlock.KindMemory, Err: fmt.Errorf("out of memory: %w", redlock.ErrNotSent)}
	case value == "":
		r.Outcome = s.grant(req, mature, r.Time)
	case value == req.Token && req.Op == redlock.OpTake:
		s.extend(req)
		r.Outcome = redlock.Extended
	default:
		r.Outcome, r.Owner, r.PTTL = redlock.Held, value, left
		if left != redlock.NoExpiry {
			r.PTTL = left.Truncate(time.Millisecond)
		}
	}
	r.Fence = s.fences[req.Keys.Fence]
	return r, nil
}

func (s *Server) grant(req redlock.Request, mature bool, now int64) redlock.Outcome {
	switch {
	case req.Op == redlock.OpProbe, !mature && !req.HaveVote:
		return redlock.Absent
	case req.NotAfter != 0 && now > req.NotAfter:
		return redlock.Late
	}
	s.keys[req.Keys.Lock] = entry{value: req.Token, expires: s.now().Add(req.TTL)}
	if req.Fence > 0 {
		s.fences[req.Keys.Fence] = max(s.fences[req.Keys.Fence]+1, req.Fence)
	}
	return redlock.Taken
}

func (s *Server) extend(req redlock.Request) {
	s.keys[req.Keys.Lock] = entry{value: req.Token, expires: s.now().Add(req.TTL)}
	if req.Fence > 0 {
		s.fences[req.Keys.Fence] = max(s.fences[req.Keys.Fence], req.Fence)
	}
}

func (s *Server) release(req redlock.Request, value string) redlock.Outcome {
	if value != req.Token {
		return redlock.Gone
	}
	delete(s.keys, req.Keys.Lock)
	if req.Notice != "" {
		s.publish(req.Keys.Channel, req.Notice)
	}
	return redlock.Released
}

// publish needs s.mu.
func (s *Server) publish(channel, message string) {
	for sub := range s.subs {
		if strings.EqualFold(sub.channel, channel) {
			sub.send(redlock.Notice{Kind: redlock.NoticeMessage, Message: message})
		}
	}
}

// Name returns the server's name.
func (s *Server) Name() string { return s.name }
