package podstatus

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
)

const (
	// eventQueue is how many events wait while one is sent; more are dropped.
	eventQueue = 16
	// eventTimeout bounds one request. There is no second try.
	eventTimeout = 2 * time.Second
	// eventBurst events may come at once, and one more each eventEvery.
	eventBurst = 10
	eventEvery = 20 * time.Second
	// sameWithin is how long a repetition is counted on the event that was there.
	sameWithin = 10 * time.Minute
)

// Recorder records what happened as events on the Pod. Events are for people: one
// that cannot be sent at once is dropped.
type Recorder struct {
	api   *apiserver.Client
	pod   Pod
	log   logr.Logger
	queue chan happening

	tokens float64
	filled time.Time
	last   map[election.EventKind]recorded
}

// happening is an event and when it happened.
type happening struct {
	election.Event
	at time.Time
}

// recorded is the newest event of its kind.
type recorded struct {
	name, message string
	count         int
	at            time.Time
}

// NewRecorder makes a Recorder. It sends nothing before Run.
func NewRecorder(api *apiserver.Client, pod Pod, log logr.Logger) (*Recorder, error) {
	if err := pod.check(); err != nil {
		return nil, err
	}
	return &Recorder{
		api: api, pod: pod, log: log,
		queue:  make(chan happening, eventQueue),
		tokens: eventBurst,
		filled: time.Now(),
		last:   map[election.EventKind]recorded{},
	}, nil
}

// Record takes an event. It never blocks, so it fits election.Config.OnEvent.
func (r *Recorder) Record(e election.Event) {
	select {
	case r.queue <- happening{e, time.Now()}:
	default:
		r.log.V(1).Info("event dropped, too many wait", "reason", e.Kind)
	}
}

// Run sends events until ctx ends, and then, within a second, those that wait.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case e := <-r.queue:
			r.send(ctx, e)
		case <-ctx.Done():
			r.rest(context.WithoutCancel(ctx))
			return
		}
	}
}

func (r *Recorder) rest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case e := <-r.queue:
			r.send(ctx, e)
		default:
			return
		}
	}
}

func (r *Recorder) send(ctx context.Context, e happening) {
	if !r.allowed() {
		r.log.V(1).Info("event dropped, too many of late", "reason", e.Kind)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	if err := r.record(ctx, e); err != nil {
		r.log.V(1).Info("event not recorded", "reason", e.Kind, "cause", err.Error())
	}
}

// allowed takes a token from a bucket of eventBurst.
func (r *Recorder) allowed() bool {
	now := time.Now()
	r.tokens = min(eventBurst, r.tokens+float64(now.Sub(r.filled))/float64(eventEvery))
	r.filled = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// record counts a repetition on the event that is there, or creates one.
func (r *Recorder) record(ctx context.Context, e happening) error {
	if l, ok := r.last[e.Kind]; ok && l.message == e.Message && e.at.Sub(l.at) < sameWithin {
		err := r.count(ctx, l, e)
		if refusal := apiserver.Refused(err); refusal == nil || refusal.Code != http.StatusNotFound {
			return err
		}
	}
	return r.create(ctx, e)
}

func (r *Recorder) create(ctx context.Context, e happening) error {
	name := fmt.Sprintf("%.230s.%x", r.pod.Name, e.at.UnixNano())
	err := r.api.Do(ctx, apiserver.Request{
		Method: http.MethodPost, Path: r.path(),
		ContentType: apiserver.JSON, Accept: apiserver.MetadataOnly,
		Body: r.event(name, e),
	}, nil)
	if err == nil {
		r.last[e.Kind] = recorded{name: name, message: e.Message, count: 1, at: e.at}
	}
	return err
}

func (r *Recorder) count(ctx context.Context, l recorded, e happening) error {
	l.count++
	err := r.api.Do(ctx, apiserver.Request{
		Method: http.MethodPatch, Path: append(r.path(), l.name),
		ContentType: apiserver.StrategicMergePatch, Accept: apiserver.MetadataOnly,
		Body: map[string]any{"count": l.count, "lastTimestamp": timestamp(e.at)},
	}, nil)
	if err == nil {
		l.at = e.at
		r.last[e.Kind] = l
	}
	return err
}

func (r *Recorder) path() []string {
	return []string{"api", "v1", "namespaces", r.pod.Namespace, "events"}
}

func (r *Recorder) event(name string, e happening) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"name": name, "namespace": r.pod.Namespace},
		"involvedObject": map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"namespace": r.pod.Namespace, "name": r.pod.Name, "uid": r.pod.UID,
		},
		"reason": e.Kind, "message": e.Message, "type": severity(e.Kind),
		"source":         map[string]any{"component": "podlease"},
		"firstTimestamp": timestamp(e.at), "lastTimestamp": timestamp(e.at), "count": 1,
		"reportingComponent": "podlease.io/sidecar", "reportingInstance": r.pod.Name,
	}
}

func severity(k election.EventKind) string {
	if k == election.LeaderElected || k == election.LeaderReleased || k == election.RedisQuorumRegained {
		return "Normal"
	}
	return "Warning"
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
