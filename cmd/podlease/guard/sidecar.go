//go:build unix

package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/statusapi"
)

const (
	// askTimeout bounds one question to the sidecar, which is on loopback.
	askTimeout = 500 * time.Millisecond
	// streamRetry is how long to wait before the stream of changes is opened again.
	streamRetry = time.Second
	// streamSilence is how long a stream may be silent: a comment comes every 5 s.
	streamSilence = 15 * time.Second
	// handOverPause is for how long the sidecar does not contend after the command has
	// ended: a standby goes first, and a container that starts again need not wait.
	handOverPause = 2 * time.Second
	maxAnswer     = 64 << 10
)

// Sidecar is the leadership of the sidecar beside us. Regular questions extend it, as
// only they can be dated; the stream of changes makes the next question come at once.
type Sidecar struct {
	// URL is the sidecar's read-only endpoint, and Control its control endpoint.
	URL, Control string
	Clock        func() time.Duration
	Log          logr.Logger

	client *http.Client
}

// NewSidecar makes the leadership of the sidecar at url.
func NewSidecar(address, control string, clock func() time.Duration, log logr.Logger) *Sidecar {
	return &Sidecar{
		URL: address, Control: control, Clock: clock, Log: log,
		client: &http.Client{Transport: &http.Transport{}}, // and no proxy
	}
}

// Follow implements Leadership.
func (s *Sidecar) Follow(ctx context.Context, tell func(Answer)) error {
	defer s.client.CloseIdleConnections()
	changes := make(chan Answer)
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		s.stream(ctx, changes)
	}()
	var change *Answer
	for ctx.Err() == nil {
		a := s.ask(ctx)
		if a.Err != nil && change != nil && !change.Active {
			a = *change // no later answer says otherwise
		}
		tell(a)
		change = s.rest(ctx, changes, a)
	}
	<-streamed
	return nil
}

// rest waits until it is time to ask again, and returns the change that made it so.
func (s *Sidecar) rest(ctx context.Context, changes <-chan Answer, last Answer) *Answer {
	timer := time.NewTimer(last.interval())
	defer timer.Stop()
	select {
	case a := <-changes:
		return &a
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// ask asks once.
func (s *Sidecar) ask(ctx context.Context) Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	sent := s.Clock()
	resp, err := s.get(ctx, "/v1/leadership")
	if err != nil {
		return Answer{Sent: sent, Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{Sent: sent, Err: fmt.Errorf("answer of the sidecar at %s: %w", s.URL, err)}
	}
	a, err := parseAnswer(body)
	if err != nil {
		return Answer{Sent: sent, Err: fmt.Errorf("answer of the sidecar at %s: %w", s.URL, err)}
	}
	a.Sent = sent
	// One that does not say has none for us: then the end comes without a warning.
	a.StopBudget, _ = time.ParseDuration(resp.Header.Get(statusapi.StopBudgetHeader))
	return a
}

func (s *Sidecar) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the sidecar at %s: %w", s.URL, cause(err))
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the sidecar at %s answered %s", s.URL, resp.Status)
	}
	return resp, nil
}

// cause leaves out the method and the URL, which the message has already.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func parseAnswer(body []byte) (Answer, error) {
	var d statusapi.Document
	if err := json.Unmarshal(body, &d); err != nil {
		return Answer{}, err
	}
	if d.Lock == "" || (d.Active && d.Term == "") {
		return Answer{}, fmt.Errorf("%.80q is no leadership document", body)
	}
	return Answer{
		Active: d.Active, ValidFor: time.Duration(d.ValidForMs) * time.Millisecond,
		Term: d.Term, FencingToken: d.FencingToken, Reason: d.Reason,
	}, nil
}

// stream tells of changes until ctx ends. Without it they are seen a little later.
func (s *Sidecar) stream(ctx context.Context, changes chan<- Answer) {
	for ctx.Err() == nil {
		err := s.readStream(ctx, changes)
		if err != nil && ctx.Err() == nil {
			s.Log.V(1).Info("stream of changes ended, will open it again", "reason", err.Error())
		}
		timer := time.NewTimer(streamRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (s *Sidecar) readStream(ctx context.Context, changes chan<- Answer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	resp, err := s.get(ctx, "/v1/leadership?watch=true")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		silence.Reset(streamSilence)
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		a, err := parseAnswer([]byte(data))
		if err != nil {
			return err
		}
		select {
		case changes <- a:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return lines.Err()
}

// Ended implements Leadership.
func (s *Sidecar) Ended(ctx context.Context, last bool) error {
	if last { // while it is active it would not believe that we have stopped
		if err := s.post(ctx, "/v1/step-down?for="+handOverPause.String()); err != nil {
			return err
		}
	}
	return s.post(ctx, "/v1/stopped")
}

// post asks for a verb. That it makes no sense now is no error: the sidecar knows better
// than we whether there is a hand-over.
func (s *Sidecar) post(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Control+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the sidecar's control endpoint, expected at %s: %w; if it is elsewhere, say so with --sidecar-control", s.Control, cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusConflict {
		return fmt.Errorf("%s at %s was answered %s; if the sidecar's control endpoint is elsewhere, say so with --sidecar-control", path, s.Control, resp.Status)
	}
	return nil
}
