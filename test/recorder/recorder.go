// Package recorder watches candidates from outside: it asks each one many times a
// second whether it is active, and tells from the answers alone whether two were at
// one instant.
package recorder

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
)

// answerTimeout is how long one answer is waited for; a frozen candidate does not
// answer, and is asked again on a new connection.
const answerTimeout = 200 * time.Millisecond

// Recorder asks candidates and keeps what they said.
type Recorder struct {
	interval time.Duration
	ctx      context.Context // ends with the recorder
	stop     context.CancelFunc
	asking   sync.WaitGroup

	mu         sync.Mutex
	candidates map[string]*candidate
	changed    chan struct{} // closed and replaced when a run begins or ends
}

// candidate is what is known of one of them; guarded by Recorder.mu.
type candidate struct {
	name    string
	forget  context.CancelFunc
	gone    bool // an answer that is still on its way no longer counts
	runs    []Run
	open    bool          // the last of runs goes on
	last    Sample        // the last answer of any kind; zero after a silence
	answers int           // of any kind
	longest time.Duration // between the sending of two questions
	watched time.Duration // all times between two questions
}

// Start makes a recorder that asks each candidate it is told to watch every
// interval, until Stop.
func Start(interval time.Duration) *Recorder {
	ctx, stop := context.WithCancel(context.Background())
	return &Recorder{interval: interval, ctx: ctx, stop: stop, candidates: map[string]*candidate{}, changed: make(chan struct{})}
}

// Dial opens a connection to a candidate.
type Dial func(ctx context.Context) (net.Conn, error)

// Watch begins to ask a candidate at host:port. A name may be used again when its
// candidate is no longer watched: what that one said stays.
func (r *Recorder) Watch(name, addr string) {
	r.WatchThrough(name, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	})
}

// WatchThrough is Watch for a candidate that is not reached by its address alone.
func (r *Recorder) WatchThrough(name string, dial Dial) {
	ctx, forget := context.WithCancel(r.ctx)
	c := &candidate{name: name, forget: forget}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.candidates[name]; before != nil {
		c.runs, c.answers, c.longest, c.watched = before.runs, before.answers, before.longest, before.watched
	}
	r.candidates[name] = c
	r.asking.Go(func() { r.watch(ctx, c, dial) })
}

// Unwatch ends the asking of a candidate; what it said stays.
func (r *Recorder) Unwatch(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.candidates[name]
	c.forget()
	c.gone = true
	r.end(c)
}

// Stop ends the asking.
func (r *Recorder) Stop() {
	r.stop()
	r.asking.Wait()
}

// Runs are all runs so far, in the order in which they began.
func (r *Recorder) Runs() []Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	var runs []Run
	for _, c := range r.candidates {
		runs = append(runs, c.runs...)
	}
	slices.SortFunc(runs, func(a, b Run) int { return int(a.First.Sent - b.First.Sent) })
	return runs
}

// Active are the runs that go on as far as the last answers tell.
func (r *Recorder) Active() []Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	var runs []Run
	for _, c := range r.candidates {
		if c.open {
			runs = append(runs, c.runs[len(c.runs)-1])
		}
	}
	return runs
}

// Wait waits until an active run satisfies want, and returns it.
func (r *Recorder) Wait(ctx context.Context, want func(Run) bool) (Run, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		for _, run := range r.Active() {
			if want(run) {
				return run, nil
			}
		}
		select {
		case <-ctx.Done():
			return Run{}, fmt.Errorf("wait for an active candidate: %w; active: %v", ctx.Err(), r.Active())
		case <-changed:
		}
	}
}

// WaitNone waits until no candidate is active.
func (r *Recorder) WaitNone(ctx context.Context) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if len(r.Active()) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until none is active: %w; active: %v", ctx.Err(), r.Active())
		case <-changed:
		}
	}
}

// Effort tells how closely the candidates were watched, while they answered.
func (r *Recorder) Effort() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var answers int
	var longest, sum time.Duration
	for _, c := range r.candidates {
		answers, longest, sum = answers+c.answers, max(longest, c.longest), sum+c.watched
	}
	return fmt.Sprintf("%d answers of %d candidates, one every %v on average, at most %v apart",
		answers, len(r.candidates), (sum / time.Duration(max(answers, 1))).Round(time.Microsecond), longest)
}

// watch asks one candidate until ctx ends, over one connection as long as it holds.
func (r *Recorder) watch(ctx context.Context, c *candidate, dial Dial) {
	for ctx.Err() == nil {
		if conn, err := dialInTime(ctx, dial); err == nil {
			r.converse(ctx, c, conn)
			_ = conn.Close()
		}
		r.silent(c)
		sleep(ctx, r.interval)
	}
}

func dialInTime(ctx context.Context, dial Dial) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return dial(ctx)
}

// converse asks over one connection until it breaks or ctx ends.
func (r *Recorder) converse(ctx context.Context, c *candidate, conn net.Conn) {
	in := bufio.NewReader(conn)
	for next := boottime.Now(); ctx.Err() == nil; {
		_ = conn.SetDeadline(time.Now().Add(answerTimeout))
		sample, token, active, err := ask(conn, in)
		if err != nil {
			return
		}
		r.note(c, sample, token, active)
		next = max(next+r.interval, sample.Received)
		sleep(ctx, next-boottime.Now())
	}
}

// ask asks once. The times enclose the instant at which the answer was made.
func ask(conn net.Conn, in *bufio.Reader) (s Sample, token uint64, active bool, err error) {
	s.Sent = boottime.Now()
	if _, err = io.WriteString(conn, "GET /leader HTTP/1.1\r\nHost: candidate\r\n\r\n"); err != nil {
		return s, 0, false, err
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return s, 0, false, err
	}
	s.Received = boottime.Now()
	defer response.Body.Close()
	if _, err = io.Copy(io.Discard, response.Body); err != nil {
		return s, 0, false, err
	}
	token, _ = strconv.ParseUint(response.Header.Get("Podlease-Fencing-Token"), 10, 64) // 0 with fencing off
	return s, token, response.StatusCode == http.StatusOK, nil
}

func (r *Recorder) note(c *candidate, s Sample, token uint64, active bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.gone {
		return
	}
	if c.last != (Sample{}) {
		c.longest, c.watched = max(c.longest, s.Sent-c.last.Sent), c.watched+s.Sent-c.last.Sent
	}
	c.answers, c.last = c.answers+1, s
	if !active {
		if n := len(c.runs); n > 0 && c.runs[n-1].Then == (Sample{}) {
			c.runs[n-1].Then = s
		}
		r.end(c)
		return
	}
	if !c.open || c.runs[len(c.runs)-1].Token != token {
		r.end(c)
		c.runs, c.open = append(c.runs, Run{Who: c.name, Token: token, First: s}), true
		r.announce()
	}
	run := &c.runs[len(c.runs)-1]
	run.Last, run.Answers = s, run.Answers+1
}

// silent notes that a candidate did not answer.
func (r *Recorder) silent(c *candidate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.last = Sample{}
	r.end(c)
}

func (r *Recorder) end(c *candidate) {
	if c.open {
		c.open = false
		r.announce()
	}
}

func (r *Recorder) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
