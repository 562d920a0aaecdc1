package statusapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

const (
	// heartbeat is how often a comment is sent on a stream, so that both ends notice
	// when the other is gone; clients may count on one in 5 s.
	heartbeat = 4 * time.Second
	// writeTimeout bounds how long an answer may take to be written.
	writeTimeout = 10 * time.Second

	defaultWait = 30 * time.Second
	maxWait     = 10 * time.Minute
)

// query is what may follow /v1/leadership.
type query struct {
	watch   bool
	wait    election.Role // empty: answer at once
	timeout time.Duration
}

// badParameter is a query parameter that is not allowed.
func badParameter(name, value, allowed string) error {
	return fmt.Errorf("parameter %s=%q is not allowed: want %s", name, value, allowed)
}

const queryAllowed = "one of watch=true; wait=active or wait=standby, with timeout=30s if you like"

func parseQuery(raw string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, fmt.Errorf("query %q is not allowed: want %s", raw, queryAllowed)
	}
	q := query{timeout: defaultWait}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) != 1 {
			return query{}, badParameter(name, values[name][1], "it once")
		}
		if err := q.set(name, values[name][0]); err != nil {
			return query{}, err
		}
	}
	return q, q.check(values)
}

func (q *query) set(name, value string) (err error) {
	switch name {
	case "watch":
		if q.watch, err = strconv.ParseBool(value); err != nil {
			return badParameter(name, value, "true or false")
		}
	case "wait":
		q.wait = election.Role(value)
		if q.wait != election.Active && q.wait != election.Standby {
			return badParameter(name, value, "active or standby")
		}
	case "timeout":
		q.timeout, err = time.ParseDuration(value)
		if err != nil || q.timeout < 0 || q.timeout > maxWait {
			return badParameter(name, value, "a duration from 0s to 10m, such as 30s")
		}
	default:
		return badParameter(name, value, queryAllowed)
	}
	return nil
}

func (q *query) check(values url.Values) error {
	switch {
	case q.watch && q.wait != "":
		return badParameter("wait", string(q.wait), "no wait together with watch")
	case q.wait == "" && values.Has("timeout"):
		return badParameter("timeout", values.Get("timeout"), "wait=active or wait=standby as well")
	}
	return nil
}

func (h *readOnly) leadership(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.RawQuery)
	switch {
	case err != nil:
		writeProblem(w, http.StatusBadRequest, err.Error())
	case q.watch:
		h.limited(w, func() { h.stream(w, r) })
	case q.wait != "":
		h.limited(w, func() { h.wait(w, r, q) })
	default:
		writeLeadership(w, http.StatusOK, h.source.Leadership())
	}
}

// limited runs what may take long, unless too many do already.
func (h *readOnly) limited(w http.ResponseWriter, long func()) {
	select {
	case h.watchers <- struct{}{}:
		defer func() { <-h.watchers }()
		long()
	default:
		w.Header().Set("Retry-After", "1")
		writeProblem(w, http.StatusTooManyRequests, fmt.Sprintf("%d requests are watching or waiting already, which is all there may be", maxWatchers))
	}
}

// wait answers once the role is as asked for, or at the timeout.
func (h *readOnly) wait(w http.ResponseWriter, r *http.Request, q query) {
	extendDeadline(w, q.timeout)
	ctx, cancel := context.WithTimeout(r.Context(), q.timeout)
	defer cancel()
	for {
		changed := h.source.Changed()
		l := h.source.Leadership()
		if l.Role == q.wait {
			writeLeadership(w, http.StatusOK, l)
			return
		}
		if ctx.Err() != nil {
			writeLeadership(w, waitFailure(ctx.Err()), l)
			return
		}
		sleep(ctx, changed, l, maxWait)
	}
}

// waitFailure tells the end of the server from the end of the time.
func waitFailure(err error) int {
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusGatewayTimeout
	}
	return http.StatusServiceUnavailable
}

// sleep returns at the next change, when the deadline of l ends its role, after limit,
// or with ctx.
func sleep(ctx context.Context, changed <-chan struct{}, l election.Leadership, limit time.Duration) {
	if l.Active() {
		// The role ends by time alone, which closes no channel. Clocks differ a
		// little, so it may take another look.
		limit = min(limit, l.ValidFor)
	}
	timer := time.NewTimer(max(limit, time.Millisecond))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stream sends an event at once and at each change, and comments in between.
func (h *readOnly) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	if r.Method == http.MethodHead {
		return
	}
	s := eventStream{w: w, control: http.NewResponseController(w), commented: time.Now()}
	for s.err == nil && r.Context().Err() == nil {
		changed := h.source.Changed()
		l := h.source.Leadership()
		s.tell(l)
		s.comment()
		sleep(r.Context(), changed, l, heartbeat-time.Since(s.commented))
	}
}

// eventStream is one client's stream of server-sent events.
type eventStream struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	told      state
	commented time.Time
	err       error
}

// state is what makes two answers differ other than by the passing of time.
type state struct {
	role                 election.Role
	holder, term, reason string
	token                uint64
	quorum               election.Quorum
	draining             bool
}

func stateOf(l election.Leadership) state {
	return state{
		role: l.Role, holder: l.Holder, term: l.Term, reason: l.Reason,
		token: l.FencingToken, quorum: l.Quorum, draining: l.Draining,
	}
}

// tell sends l unless it says what was told last.
func (s *eventStream) tell(l election.Leadership) {
	now := stateOf(l)
	if now == s.told {
		return
	}
	data, err := json.Marshal(NewDocument(l))
	if err != nil {
		s.err = err
		return
	}
	s.told = now
	s.write(fmt.Sprintf("event: leadership\ndata: %s\n\n", data))
}

// comment sends a comment when the last one is a heartbeat ago.
func (s *eventStream) comment() {
	if s.err == nil && time.Since(s.commented) >= heartbeat {
		s.commented = time.Now()
		s.write(": still here\n\n")
	}
}

func (s *eventStream) write(text string) {
	extendDeadline(s.w, 0)
	if _, s.err = s.w.Write([]byte(text)); s.err == nil {
		s.err = s.control.Flush()
	}
}

// extendDeadline gives an answer that takes that long by design its time to be
// written after it. A writer without deadlines has nothing to extend.
func extendDeadline(w http.ResponseWriter, after time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(after + writeTimeout))
}
