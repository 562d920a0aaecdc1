// Package podstatus tells Kubernetes what the candidate beside it is: it keeps the
// own Pod's role label, annotations, condition and deletion cost right, records events
// on it, and reads what people want of the candidate from the Pod's downward-API files.
//
// Everything goes one way. The candidate never waits for the API server but for the
// bounded time it grants at the end of a term, and what the API server answers, or
// does not, costs the label and nothing else.
package podstatus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
)

// DefaultRoleLabel is the label that tells the role.
const DefaultRoleLabel = "podlease.io/role"

// ErrPodGone says that the Pod is no more, or that another one has its name.
var ErrPodGone = errors.New("the Pod is gone")

// errOutdated gives a patch up that would tell what is no longer so.
var errOutdated = errors.New("the role changed before it was sent")

// Source is the candidate whose role is published; *election.Candidate is one.
type Source interface {
	Leadership() election.Leadership
	Changed() <-chan struct{}
}

// Pod names a Pod.
type Pod struct{ Namespace, Name, UID string }

func (p Pod) check() error {
	for _, f := range []struct{ what, value string }{{"namespace", p.Namespace}, {"name", p.Name}, {"uid", p.UID}} {
		if f.value == "" || strings.Contains(f.value, "/") {
			return fmt.Errorf("pod %s %q: want that of the Pod to label", f.what, f.value)
		}
	}
	return nil
}

// Config is what a Publisher needs.
type Config struct {
	API *apiserver.Client
	Pod Pod
	// RoleLabel is the label's key; empty means DefaultRoleLabel.
	RoleLabel string
	// ReadinessGate says to set the condition podlease.io/active too.
	ReadinessGate bool
	Log           logr.Logger
}

// Publisher keeps the Pod's label, annotations, condition and deletion cost equal to
// what the candidate is. It is an election.Publisher.
type Publisher struct {
	cfg Config

	mu       sync.Mutex
	source   Source
	shown    shown
	pace     pace
	clear    bool // Observe saw that no label says active
	failures uint64
	lastErr  error
	gone     bool
	news     chan struct{} // closed and replaced when anything above changes
}

// New makes a Publisher. It sends nothing before Run.
func New(cfg Config) (*Publisher, error) {
	if err := cfg.Pod.check(); err != nil {
		return nil, err
	}
	if cfg.RoleLabel == "" {
		cfg.RoleLabel = DefaultRoleLabel
	}
	return &Publisher{cfg: cfg, news: make(chan struct{})}, nil
}

// Run publishes what src is until ctx ends. The first thing it publishes is what src
// is now, whatever the Pod's label says: a sidecar that comes back after a crash
// finds the label of its previous life. Let it run on until the candidate has ended.
func (p *Publisher) Run(ctx context.Context, src Source) {
	p.update(func() { p.source = src })
	for ctx.Err() == nil {
		news, changed := p.nextNews(), src.Changed() // first the channels, then the questions
		lead := src.Leadership()
		due, ever := p.due(p.stateOf(lead))
		if ever && due <= 0 {
			p.try(ctx, src, lead)
			continue
		}
		sleep(ctx, wake(lead, due, ever), news, changed)
	}
}

// wake is how long to sleep at most, or 0 for ever: until the next try, or until
// time alone ends the term.
func wake(l election.Leadership, due time.Duration, ever bool) time.Duration {
	if l.Active() && (!ever || l.ValidFor < due) {
		return max(l.ValidFor, time.Millisecond)
	}
	if ever {
		return due
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration, news, changed <-chan struct{}) {
	var timer <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-timer:
	case <-news:
	case <-changed:
	}
}

// Sync returns when what is published agrees with the candidate's role, with
// ErrPodGone when that will never be, or with an error when ctx ends first.
func (p *Publisher) Sync(ctx context.Context) error {
	for {
		news := p.nextNews()
		changed, done, err := p.synced()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return p.notSynced(ctx.Err())
		case <-news:
		case <-changed:
		}
	}
}

// Clear waits, before a candidate first contends, until the label no longer says
// active: a sidecar that crashed may have left it. It returns at once when Observe
// was told that it does not.
func (p *Publisher) Clear(ctx context.Context) error {
	p.mu.Lock()
	clear := p.clear
	p.mu.Unlock()
	if clear {
		return nil
	}
	return p.Sync(ctx)
}

func (p *Publisher) synced() (changed <-chan struct{}, done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, false, ErrPodGone
	}
	if p.source == nil {
		return nil, false, nil
	}
	changed = p.source.Changed()
	return changed, p.shown.tells(p.source.Leadership().Role), nil
}

func (p *Publisher) notSynced(cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastErr != nil {
		return fmt.Errorf("role not published: %w; last try: %w", cause, p.lastErr)
	}
	return fmt.Errorf("role not published: %w", cause)
}

// InSync reports whether the API server has confirmed the candidate's present role.
func (p *Publisher) InSync() bool {
	_, done, err := p.synced()
	return done && err == nil
}

// Failures counts the tries that the API server refused or did not answer.
func (p *Publisher) Failures() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures
}

// Observe takes the Pod's labels as the API server has them. When somebody changed
// the role label it is put right. Labels may be old: the worst that follows from
// that is a patch that changes nothing.
func (p *Publisher) Observe(labels map[string]string) {
	p.update(func() {
		role := labels[p.cfg.RoleLabel]
		p.clear = role != string(election.Active)
		if p.shown.differs(role) {
			p.cfg.Log.Info("role label was changed by somebody else", "label", p.cfg.RoleLabel, "seen", role, "want", p.shown.state.role)
			p.shown.stolen = true
		}
	})
}

// try sends one patch and notes what came of it.
func (p *Publisher) try(ctx context.Context, src Source, lead election.Leadership) {
	want := p.stateOf(lead)
	limit := p.patience()
	tryCtx, cancel := context.WithTimeout(ctx, limitedBy(limit, lead))
	defer cancel()
	if limit > tryTimeout {
		go p.cancelWhenOutdated(tryCtx, cancel, src, want)
	}
	before, cost := p.confirmed(want)
	var answer podMetadata
	err := p.cfg.API.Do(tryCtx, apiserver.Request{
		Method:      http.MethodPatch,
		Path:        []string{"api", "v1", "namespaces", p.cfg.Pod.Namespace, "pods", p.cfg.Pod.Name, "status"},
		Query:       url.Values{"timeout": {serverLimit(limit).String()}, "fieldManager": {"podlease"}},
		ContentType: apiserver.StrategicMergePatch,
		Accept:      apiserver.MetadataOnly,
		Body:        p.patch(want, cost),
		BeforeSend: func() error {
			if p.stateOf(src.Leadership()) != want {
				return errOutdated
			}
			if want.role != before.role {
				p.update(func() { p.shown.state = state{} }) // from now on either may be shown
			}
			return nil
		},
	}, &answer)
	if ctx.Err() != nil && err != nil {
		return // we were told to end; that is nobody's failure
	}
	p.settle(want, before, cost, answer, err)
}

// limitedBy keeps a patch that says active from being waited for beyond the term.
func limitedBy(limit time.Duration, lead election.Leadership) time.Duration {
	if lead.Active() {
		return min(limit, lead.ValidFor)
	}
	return limit
}

// cancelWhenOutdated gives a long try up as soon as there is something else to tell.
func (p *Publisher) cancelWhenOutdated(ctx context.Context, cancel context.CancelFunc, src Source, want state) {
	for {
		changed := src.Changed()
		if p.stateOf(src.Leadership()) != want {
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// patience is how long the next try may take.
func (p *Publisher) patience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastErr != nil && kind(p.lastErr) == http.StatusGatewayTimeout {
		return patientTimeout
	}
	return tryTimeout
}

// serverLimit is how long the server may take: a little less than we wait, so that one
// that is only slow can say so.
func serverLimit(limit time.Duration) time.Duration { return limit - limit/10 }

func (p *Publisher) settle(want, before state, cost string, answer podMetadata, err error) {
	p.update(func() {
		switch {
		case errors.Is(err, errOutdated):
		case err == nil:
			if p.lastErr != nil {
				p.cfg.Log.Info("role published again", "role", want.role, "tries", p.pace.streak+1)
			}
			p.lastErr = nil
			p.shown.confirm(want, cost, answer)
			p.pace.succeeded()
		case isGone(err):
			p.gone, p.lastErr = true, err
			p.failures++
			p.cfg.Log.Error(err, "pod is gone or was replaced, publishing has ended", "pod", p.cfg.Pod.Name, "uid", p.cfg.Pod.UID)
		default:
			p.failures++
			p.complain(want, err)
			p.lastErr = err
			p.pace.failed(want, err)
			if !isOpen(err) {
				p.shown.state = before
			}
		}
	})
}

// complain logs the first failure and each change of kind, the others in detail mode.
func (p *Publisher) complain(want state, err error) {
	log := p.cfg.Log
	if p.lastErr != nil && kind(p.lastErr) == kind(err) {
		log = log.V(1)
	}
	if kind(err) == http.StatusForbidden {
		log.Info("role not published: no right to patch pods/status, bind ClusterRole podlease-sidecar to the Pod's ServiceAccount",
			"namespace", p.cfg.Pod.Namespace, "role", want.role, "reason", err.Error())
		return
	}
	log.Info("role not published, will try again", "role", want.role, "reason", err.Error())
}

// due tells in how long the next patch is due, if ever.
func (p *Publisher) due(want state) (d time.Duration, ever bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return 0, false
	}
	return p.pace.due(want, p.shown.agrees(want))
}

// confirmed is what the API server showed last, and what to do about the deletion cost.
func (p *Publisher) confirmed(want state) (before state, cost string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown.state, p.shown.cost.next(want)
}

func (p *Publisher) nextNews() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.news
}

func (p *Publisher) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.news)
	p.news = make(chan struct{})
}
