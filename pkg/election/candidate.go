// Package election runs one candidate of a lock: it contends, renews, drains and
// steps down, and tells at any instant whether it is active.
//
// Being active is a function of the clock and the lease's deadline, evaluated at each
// call of [Candidate.Leadership]: a candidate that was frozen, suspended or cut off for
// longer than its lease had left is not active when it wakes, before it has spoken to
// anyone.
package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/redlock"
)

// ErrUnfit is wrapped when the configured nodes can never make a quorum of fit nodes.
var ErrUnfit = errors.New("no quorum of fit nodes is possible")

// MaxPriority bounds priorities: they range from -MaxPriority to MaxPriority.
const MaxPriority = 100

// publishLimit is how long the end of a term waits for the outside world to be told.
// A label that cannot be changed must not keep the next holder waiting.
const publishLimit = time.Second

// releaseLimit bounds the release at the end of a term.
const releaseLimit = time.Second

// Config is what a candidate needs to know. Lock is required.
type Config struct {
	Lock     string
	Identity string

	// Priority, -100 to 100: a candidate of lower priority starts contending later by a
	// part of the TTL. It never takes a held lease away.
	Priority int
	// NativeSidecar says that the end of Run's context means that the workload has
	// already ended.
	NativeSidecar bool
	// DrainTimeout is how long the end of Run waits for a workload that can be seen to
	// be seen stopped.
	DrainTimeout time.Duration

	// Publisher tells the outside world of the role; nil when nobody does.
	Publisher Publisher
	// Workload tells whether the workload runs and is healthy; nil when it cannot be
	// seen.
	Workload Workload
	// Tokens makes fencing tokens elsewhere than on the nodes; nil uses the nodes'.
	Tokens TokenSource
	// OnEvent is called for each event, in order, and must not block; may be nil.
	OnEvent func(Event)
	// OnDemotion is told how long the end of a term took, from not being active to the
	// release or the decision against it; may be nil.
	OnDemotion func(time.Duration)
	Log        logr.Logger
}

// Publisher tells the outside world of the role, for example in a Pod's label.
type Publisher interface {
	// Sync returns when what was published agrees with the candidate's role, or with an
	// error when ctx ends before.
	Sync(ctx context.Context) error
}

// Workload is the program that acts while the candidate is active.
type Workload interface {
	// Healthy reports whether the workload is fit to act, and if not, why.
	Healthy() (bool, string)
	// Stopped reports whether the workload was seen to have stopped acting.
	Stopped() bool
}

// TokenSource makes fencing tokens outside the nodes.
type TokenSource interface {
	// Next returns a token greater than all it returned before, to anybody.
	Next(ctx context.Context) (uint64, error)
}

// Candidate takes part in the election of one lock. Its methods may be called at any
// time from any goroutine.
type Candidate struct {
	cfg     Config
	locker  *redlock.Locker
	contest *redlock.Contest
	opt     redlock.Options
	wake    chan struct{}

	mu      sync.Mutex
	changed chan struct{}
	shown   shown // what was last told to those who wait for a change
	term    *term // the term being held or ended, nil between terms

	draining  bool
	paused    bool
	stepping  bool          // a step-down was asked for and not yet begun
	restUntil time.Duration // after a step-down, on the locker's clock
	unhealthy string
	closing   bool // Run's context has ended
	lastLoss  string
	conflict  bool // with the holder's settings, as was last logged

	since     time.Time // when the present role began
	wasActive bool
	beat      time.Duration // when the loop last ran, on the locker's clock
	awake     time.Duration // since when it has run without standing still
	seenFit   bool
	quorumOut bool
	unfit     map[string]bool
	stats     Stats
}

// term is one period of holding the lease.
type term struct {
	lease   *redlock.Lease
	token   uint64
	granted bool          // the fencing token is known
	over    bool          // no longer to be active: the end has begun
	overAt  time.Duration // when that was
	stopped bool          // the workload said that it has stopped
}

// Health is what the liveness and readiness of a candidate are judged by.
type Health struct {
	// SinceLoop is how long ago the election loop last ran.
	SinceLoop time.Duration
	// SinceQuorum is how long ago a quorum of fit nodes had answered; negative when
	// never.
	SinceQuorum time.Duration
	// TTL is the lease's, the measure for both.
	TTL time.Duration
}

// Stats are counters and last values for metrics.
type Stats struct {
	ToActive, ToStandby uint64            // transitions
	Attempts            map[string]uint64 // attempts to acquire, by result
	Pauses              uint64            // times the process was found to have stood still
	LastRenew           time.Time         // of the present lease; zero without one
}

// NodeState is a node's status with the own vote there.
type NodeState struct {
	redlock.NodeStatus
	// Voted reports whether the own lease has a valid vote at the node.
	Voted bool
}

// New makes a candidate. It does nothing until Run.
func New(locker *redlock.Locker, cfg Config) (*Candidate, error) {
	if cfg.Lock == "" {
		return nil, errors.New("election: Lock is empty: a name is needed")
	}
	if cfg.Priority < -MaxPriority || cfg.Priority > MaxPriority {
		return nil, fmt.Errorf("election: Priority %d: must lie between %d and %d", cfg.Priority, -MaxPriority, MaxPriority)
	}
	c := &Candidate{
		cfg: cfg, locker: locker, contest: locker.Contest(cfg.Lock), opt: locker.Options(),
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
		since: time.Now(), beat: locker.Now(), awake: locker.Now(), unfit: map[string]bool{},
	}
	c.contest.SetPriority(cfg.Priority)
	return c, nil
}

// Run takes part in the election until ctx ends, and then ends the term in order. It
// returns nil after an orderly end, and an error wrapping ErrUnfit when the nodes can
// never make a quorum of fit nodes.
func (c *Candidate) Run(ctx context.Context) error {
	c.sync(ctx) // a label left over from an earlier life goes before this one contends
	for {
		lease, err := c.contend(ctx)
		switch {
		case err != nil:
			return err
		case lease == nil:
			c.set(func() { c.closing = true })
			return nil
		}
		c.hold(ctx, lease)
	}
}

// tickInterval is how often the loop looks after things that tell of no change by
// themselves.
func (c *Candidate) tickInterval() time.Duration {
	return min(c.opt.RenewInterval, 200*time.Millisecond)
}

// contend waits until this candidate may contend and has won. It returns nil without
// an error when ctx ended.
func (c *Candidate) contend(ctx context.Context) (*redlock.Lease, error) {
	tick := time.NewTicker(c.tickInterval())
	defer tick.Stop()
	stale := time.NewTimer(c.untilStale())
	defer stale.Stop()
	for {
		if err := c.look(); err != nil {
			return nil, err
		}
		if c.mayContend() {
			lease, err := c.acquire(ctx, tick.C)
			if lease != nil || err != nil || ctx.Err() != nil {
				return lease, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-c.wake:
		case <-tick.C:
		case <-stale.C:
			if c.untilStale() <= c.opt.NodeTimeout {
				// Who takes no part still has to know whether it could: readiness says so.
				c.contest.Look(ctx)
			}
			stale.Reset(c.untilStale())
		}
	}
}

// untilStale is how long what is known of the nodes is good for: a TTL from when a
// quorum of them had answered.
func (c *Candidate) untilStale() time.Duration {
	since := c.locker.SinceQuorum()
	if since < 0 {
		since = c.opt.TTL
	}
	return max(c.opt.TTL-since, c.opt.NodeTimeout)
}

type acquired struct {
	lease *redlock.Lease
	err   error
}

// acquire contends until it has won, may no longer contend, or ctx ends.
func (c *Candidate) acquire(ctx context.Context, tick <-chan time.Time) (*redlock.Lease, error) {
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	won := make(chan acquired, 1)
	go func() {
		lease, err := c.contest.Acquire(try)
		won <- acquired{lease, err}
	}()
	for {
		select {
		case a := <-won:
			return c.won(ctx, a)
		case <-c.wake:
		case <-tick:
		case <-ctx.Done():
		}
		err := c.look()
		if err == nil && c.mayContend() && ctx.Err() == nil {
			continue
		}
		cancel()
		if a := <-won; a.lease != nil {
			c.release(a.lease) // won in the moment of giving up: nobody acted under it
		}
		return nil, err
	}
}

func (c *Candidate) won(ctx context.Context, a acquired) (*redlock.Lease, error) {
	if a.err != nil && ctx.Err() == nil {
		c.set(func() { c.lastLoss = a.err.Error() })
		c.cfg.Log.Info("contending ended, will try again", "lock", c.cfg.Lock, "reason", a.err.Error())
	}
	return a.lease, nil
}

// mayContend reports whether nothing but others is in the way of the lease.
func (c *Candidate) mayContend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whyNotContend() == ""
}

// whyNotContend needs c.mu.
func (c *Candidate) whyNotContend() string {
	switch {
	case c.closing:
		return "shutting down"
	case c.draining:
		return "draining"
	case c.paused:
		return "paused"
	case c.locker.Now() < c.restUntil:
		return "stepped down"
	case c.unhealthy != "":
		return "app unhealthy: " + c.unhealthy
	}
	return ""
}

// hold keeps the lease until something ends the term, and ends it in order.
func (c *Candidate) hold(ctx context.Context, lease *redlock.Lease) {
	renew, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	kept := make(chan error, 1)
	go func() { kept <- lease.Keep(renew) }()
	t := &term{lease: lease}
	if c.cfg.Tokens == nil {
		t.token, t.granted = lease.FencingToken(), true
	}
	c.set(func() { c.term, c.lastLoss = t, "" })
	end := &ending{candidate: c, term: t, kept: kept, stopRenewing: stopRenewing}
	if c.grant(ctx, end) {
		end.why = c.watch(ctx, end)
	}
	end.run(ctx)
	c.set(func() { c.term = nil })
}

// grant makes the fencing token of the term known if it comes from elsewhere, and with
// it the candidate active. It reports false when the term ended before.
func (c *Candidate) grant(ctx context.Context, end *ending) bool {
	t := end.term
	if !t.granted {
		token, ok := c.fetchToken(ctx, end)
		if !ok {
			return false
		}
		c.set(func() { t.token, t.granted = token, true })
	}
	c.event(LeaderElected, t.token, fmt.Sprintf("%s holds the lease on %q", c.cfg.Identity, c.cfg.Lock))
	return true
}

// fetchToken asks the token source until it answers, for as long as the lease is held.
// A number that comes after the lease ended is not used: it might be larger than the
// next term's.
func (c *Candidate) fetchToken(ctx context.Context, end *ending) (token uint64, ok bool) {
	type answer struct {
		token uint64
		err   error
	}
	for {
		try, cancel := context.WithTimeout(ctx, c.opt.RenewInterval)
		got := make(chan answer, 1)
		go func() {
			n, err := c.cfg.Tokens.Next(try)
			got <- answer{n, err}
			c.kick()
		}()
		a := answer{err: ctx.Err()}
		end.why = c.waitFor(ctx, end, func() bool {
			select {
			case a = <-got:
				return true
			default:
				return false
			}
		})
		cancel()
		switch {
		case end.why != goesOn:
			return 0, false
		case a.err == nil && end.term.lease.Holding():
			return a.token, true
		case a.err != nil:
			c.cfg.Log.Info("no fencing token yet, will ask again", "lock", c.cfg.Lock, "reason", a.err.Error())
		}
		again := c.locker.Now() + c.tickInterval()
		if end.why = c.waitFor(ctx, end, func() bool { return c.locker.Now() >= again }); end.why != goesOn {
			return 0, false
		}
	}
}

// watch waits for whatever ends the term.
func (c *Candidate) watch(ctx context.Context, end *ending) cause {
	return c.waitFor(ctx, end, func() bool { return false })
}

// waitFor waits until done, which it asks at every tick, or until the term must end.
func (c *Candidate) waitFor(ctx context.Context, end *ending, done func() bool) cause {
	tick := time.NewTicker(c.tickInterval())
	defer tick.Stop()
	for {
		if why := c.mustEnd(); why != goesOn {
			return why
		}
		if done() {
			return goesOn
		}
		select {
		case err := <-end.kept:
			end.lost(err)
			return lost
		case <-ctx.Done():
			return closing
		case <-c.wake:
		case <-tick.C:
		}
		_ = c.look() // a holder has seen a fit quorum
	}
}

// mustEnd reports why the term has to end, if it has.
func (c *Candidate) mustEnd() cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stepping, c.paused:
		return handover
	case c.unhealthy != "" && !c.draining:
		return handover
	}
	return goesOn
}

// set changes the state and tells those who wait for a change.
func (c *Candidate) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.tellChange()
}

// kick makes the loop look at the state.
func (c *Candidate) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Candidate) event(kind EventKind, token uint64, message string) {
	c.cfg.Log.Info("event", "kind", string(kind), "lock", c.cfg.Lock, "token", token, "message", message)
	if c.cfg.OnEvent != nil {
		c.cfg.OnEvent(Event{Kind: kind, Message: message, FencingToken: token})
	}
}

// sync waits, a short time only, for the outside world to be told.
func (c *Candidate) sync(ctx context.Context) {
	if c.cfg.Publisher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	if err := c.cfg.Publisher.Sync(ctx); err != nil {
		c.cfg.Log.Info("role not yet published, going on without", "lock", c.cfg.Lock, "reason", err.Error())
	}
}

func (c *Candidate) release(lease *redlock.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		c.cfg.Log.Info("release not confirmed", "lock", c.cfg.Lock, "reason", err.Error())
	}
}
