package statusapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// FencingTokenHeader carries the fencing token while active.
const FencingTokenHeader = "Podlease-Fencing-Token"

// StopBudgetHeader carries, on every answer, for how long after the end of being active
// nobody else can be given the lease, such as 2.5s: the time there is for stopping the
// work.
const StopBudgetHeader = "Podlease-Stop-Budget"

// WithStopBudget makes every answer of a handler say how long the stop budget is.
func WithStopBudget(handler http.Handler, budget time.Duration) http.Handler {
	text := budget.String()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(StopBudgetHeader, text)
		handler.ServeHTTP(w, r)
	})
}

// Document is the leadership document, the body of most answers.
type Document struct {
	Lock     string `json:"lock"`
	Identity string `json:"identity"`
	// Role is "active" or "standby".
	Role   string `json:"role"`
	Active bool   `json:"active"`
	// Holder is whoever holds the lease as far as this candidate knows, or empty.
	Holder string `json:"holder"`
	// FencingToken grows with every term; 0 unless active.
	FencingToken uint64 `json:"fencingToken"`
	// Term is random and unique to the term.
	Term string `json:"term"`
	// Since is when the candidate took its role.
	Since Time `json:"since"`
	// ValidForMs is how many milliseconds after AsOf the candidate is active even if
	// no renewal succeeds; 0 unless active.
	ValidForMs int64          `json:"validForMs"`
	Quorum     QuorumDocument `json:"quorum"`
	Draining   bool           `json:"draining"`
	// Reason says why a standby is not active.
	Reason string `json:"reason"`
	// AsOf is when the answer was computed.
	AsOf Time `json:"asOf"`
}

// QuorumDocument tells how many votes the own lease has.
type QuorumDocument struct {
	Size   int `json:"size"`
	Needed int `json:"needed"`
	Held   int `json:"held"`
}

// Time is written in UTC with milliseconds.
type Time struct{ time.Time }

const timeFormat = `"2006-01-02T15:04:05.000Z07:00"`

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(make([]byte, 0, len(timeFormat)), timeFormat), nil
}

// NewDocument says what l says.
func NewDocument(l election.Leadership) Document {
	d := Document{
		Lock: l.Lock, Identity: l.Identity, Role: string(election.Standby), Holder: l.Holder, Term: l.Term,
		Since: Time{l.Since}, AsOf: Time{l.AsOf}, Draining: l.Draining, Reason: l.Reason,
		Quorum: QuorumDocument{Size: l.Quorum.Size, Needed: l.Quorum.Needed, Held: l.Quorum.Held},
	}
	if l.Active() {
		d.Role, d.Active = string(election.Active), true
		d.FencingToken = l.FencingToken
		d.ValidForMs = max(l.ValidFor.Milliseconds(), 0)
	}
	return d
}

// writeLeadership writes the document of l, which the caller has just asked for.
func writeLeadership(w http.ResponseWriter, status int, l election.Leadership) {
	if l.Active() && l.FencingToken != 0 {
		w.Header().Set(FencingTokenHeader, strconv.FormatUint(l.FencingToken, 10))
	}
	writeJSON(w, status, NewDocument(l))
}

// problem is the body of an answer to a request that cannot be served.
type problem struct {
	Error string `json:"error"`
}

func writeProblem(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, problem{Error: text})
}

// writeJSON writes body as one line. Anything that cannot be encoded is an error of
// the server: no answer that could be taken for "active" goes out.
func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, `{"error":"the answer cannot be encoded"}`, http.StatusInternalServerError)
		return
	}
	data = append(data, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // whoever asked is gone, which is theirs to notice
}
