package fencing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	// defaultURL is where a sidecar listens unless told otherwise.
	defaultURL = "http://127.0.0.1:8484"
	// askTimeout bounds one question: the sidecar is next door, and answers from memory.
	askTimeout = 2 * time.Second
	// maxDocument bounds what is read of an answer; the document has some 500 bytes.
	maxDocument = 1 << 16
)

// Sidecar asks the podlease-sidecar beside this process. The zero value is ready for
// use.
type Sidecar struct {
	// URL is the sidecar's read-only HTTP. Empty: $PODLEASE_URL, which injection sets in
	// the Pod's other containers, and without it http://127.0.0.1:8484.
	URL string
	// Client sends the question; nil: http.DefaultClient.
	Client *http.Client
}

// Leadership is what a sidecar answered.
type Leadership struct {
	// Token is the term's fencing token; 0 unless active, and with --fencing=off.
	Token uint64
	// Term is random and unique to the term, for comparison where there is no order.
	Term string
	// Holder is who holds the lease as far as the sidecar knows, for people.
	Holder string
	// Reason says why a standby is not active.
	Reason string

	asked    time.Time
	validFor time.Duration
}

// Active reports whether the process may act now: a function of the clock, to be asked
// before each step, and a few seconds after the question always false. It is no
// protection against a pause between it and the step, which is what the token is for.
func (l Leadership) Active() bool { return l.ValidFor() > 0 }

// ValidFor is how much longer Active is true without asking the sidecar again, never
// below 0. It is counted from when the question was sent, so that a slow answer is worth
// less.
func (l Leadership) ValidFor() time.Duration { return max(l.validFor-elapsed(l.asked, time.Now()), 0) }

// elapsed is the longer of what the monotonic clock counts and what the wall clock
// shows: the former stands still while a machine is suspended (golang/go#24595), the
// latter can be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Leadership asks for the leadership. An error means that the sidecar gave no answer,
// so that this process may act no longer than an earlier answer says.
func (s Sidecar) Leadership(ctx context.Context) (Leadership, error) {
	base := strings.TrimSuffix(cmp.Or(s.URL, os.Getenv("PODLEASE_URL"), defaultURL), "/")
	l, err := s.ask(ctx, base+"/v1/leadership")
	if err != nil {
		return Leadership{}, fmt.Errorf("ask podlease-sidecar at %s for the leadership: %w", base, err)
	}
	return l, nil
}

func (s Sidecar) ask(ctx context.Context, url string) (Leadership, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) //nolint:gosec // the address is the caller's or its environment's
	if err != nil {
		return Leadership{}, err
	}
	sent := time.Now()
	response, err := cmp.Or(s.Client, http.DefaultClient).Do(request) //nolint:gosec // as above
	if err != nil {
		return Leadership{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Leadership{}, fmt.Errorf("status %s", response.Status)
	}
	return read(response.Body, sent)
}

func read(body io.Reader, sent time.Time) (Leadership, error) {
	var document struct {
		Role         string `json:"role"`
		Active       bool   `json:"active"`
		Holder       string `json:"holder"`
		FencingToken uint64 `json:"fencingToken"`
		Term         string `json:"term"`
		ValidForMs   int64  `json:"validForMs"`
		Reason       string `json:"reason"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxDocument)).Decode(&document); err != nil {
		return Leadership{}, fmt.Errorf("read the leadership document: %w", err)
	}
	if document.Role == "" {
		return Leadership{}, errors.New("the answer is no leadership document: it has no role")
	}
	l := Leadership{Token: document.FencingToken, Term: document.Term, Holder: document.Holder, Reason: document.Reason, asked: sent}
	if document.Active {
		l.validFor = time.Duration(document.ValidForMs) * time.Millisecond
	}
	return l, nil
}
