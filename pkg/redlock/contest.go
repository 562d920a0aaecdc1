package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Contest is one candidate's part in the contest for one lock, over any number of
// leases. Only one Acquire may run at a time; the other methods may be called at any
// time.
type Contest struct {
	locker *Locker
	lock   string
	keys   Keys
	events chan event // of the present subscription; only Acquire touches it
	once   bool       // there is one attempt, whose caller is told how things are

	mu       sync.Mutex
	priority int
	sights   []sight
	refusal  string // why this candidate must not contend, as things stand

	splits    int           // votes split in a row
	notBefore time.Duration // when the wait after a split vote is over
	after     time.Duration // when others have had their turn, see defers

	// Who withdraws does not tell, so a token that is new at a quorum may be gone soon: it
	// is looked at again when an attempt's time is over.
	met      string
	looks    int           // how many more of those are due
	nextLook time.Duration // when the next one is

	attempts map[Result]uint64

	heard   int // the highest priority heard of
	heardAt time.Duration
}

// sight is what a node last showed of the lock.
type sight struct {
	at     time.Duration // when; 0 when it has shown nothing since it last failed
	owner  string        // the value of the key, empty when there was none
	freeAt time.Duration // when the node may grant us the lock, as far as it told
	young  bool
	// endless says that the key never expires: somebody has to look at it.
	endless bool
	err     error // why the last request failed
}

type event struct {
	node   int
	notice Notice
}

// eventBuffer holds the notices of a burst; more are dropped, since notices only
// shorten waits.
const eventBuffer = 64

// Contest returns the contest for a lock.
func (l *Locker) Contest(lock string) *Contest {
	return &Contest{
		locker: l, lock: lock, keys: l.keys(lock),
		sights: make([]sight, len(l.nodes)),
	}
}

// Acquire waits for the lease until ctx ends. It is woken by releases, and by the
// clock when the holder's lease runs out.
func (l *Locker) Acquire(ctx context.Context, lock string) (*Lease, error) {
	return l.Contest(lock).Acquire(ctx)
}

// TryAcquire asks for the lease once. It returns an error that wraps ErrHeld when
// somebody else holds the lock, and one that wraps ErrNoQuorum when too few nodes
// answered, are mature, or all of a split vote's losers have withdrawn.
func (l *Locker) TryAcquire(ctx context.Context, lock string) (*Lease, error) {
	c := l.Contest(lock)
	c.once = true
	le, err := c.attempt(ctx, false)
	if errors.Is(err, errWithdrawn) {
		return nil, c.whyNot(err)
	}
	return le, err
}

// SetPriority changes from when on this candidate contends for a free lock: one of
// lower priority than another that it heard of starts later by a part of the TTL.
// The range is -100 to 100.
func (c *Contest) SetPriority(p int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.priority = p
}

// Acquire waits for the lease until ctx ends.
func (c *Contest) Acquire(ctx context.Context) (*Lease, error) {
	if c.delay() == 0 && c.refused() == "" {
		if le, err := c.attempt(ctx, false); !errors.Is(err, errWithdrawn) {
			return le, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.subscribe(ctx)
	return c.await(ctx)
}

// subscribe listens to releases at every node until ctx ends. Nobody waits for that
// end: a lease that was won must not wait for connections to close.
func (c *Contest) subscribe(ctx context.Context) {
	events := make(chan event, eventBuffer)
	c.events = events
	for i, n := range c.locker.nodes {
		c.locker.background.begin()
		go func() {
			defer c.locker.background.end()
			n.Subscribe(ctx, c.keys.Channel, func(notice Notice) {
				select {
				case events <- event{node: i, notice: notice}:
				default:
				}
			})
		}()
	}
}

// await waits for the lock to come free, and tries whenever it may be.
func (c *Contest) await(ctx context.Context) (*Lease, error) {
	timer := time.NewTimer(c.untilNext())
	defer timer.Stop()
	for {
		le, err := c.next(ctx, timer.C)
		if !errors.Is(err, errWithdrawn) {
			return le, err
		}
		timer.Reset(c.untilNext())
	}
}

// next acts on what comes next. What was announced already comes before the timer: it
// may say that this candidate is to wait.
func (c *Contest) next(ctx context.Context, timer <-chan time.Time) (*Lease, error) {
	select {
	case ev := <-c.events:
		return c.onNotice(ctx, ev)
	default:
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("acquire lock %q: %w", c.lock, ctx.Err())
	case <-timer:
		return c.onTimer(ctx)
	case ev := <-c.events:
		return c.onNotice(ctx, ev)
	}
}

// onTimer tries when a quorum of nodes may be free, and looks again at the nodes of
// which too little is known.
func (c *Contest) onTimer(ctx context.Context) (*Lease, error) {
	c.announce(ctx)
	if c.due() <= c.locker.opt.Clock() {
		return c.attempt(ctx, false)
	}
	c.probe(ctx, c.takeLook())
	return nil, errWithdrawn
}

// onNotice acts on a notice at the node that it came from.
func (c *Contest) onNotice(ctx context.Context, ev event) (*Lease, error) {
	driven := false
	switch {
	case ev.notice.Kind == NoticeSubscribed:
		// What was published before is lost, so look.
		c.probe(ctx, []int{ev.node})
		c.announce(ctx)
	case ev.notice.Kind != NoticeMessage:
		return nil, errWithdrawn
	case strings.HasPrefix(ev.notice.Message, noticePriority):
		c.hear(strings.TrimPrefix(ev.notice.Message, noticePriority))
		return nil, errWithdrawn
	default:
		c.freed(ev.node)
		driven = true
	}
	// The clock is read last: contendsAt is never before its own reading.
	if driven && c.contendsAt() <= c.locker.opt.Clock() || c.due() <= c.locker.opt.Clock() {
		return c.attempt(ctx, driven)
	}
	return nil, errWithdrawn
}

// contendsAt is when this candidate may act on a release that it was just told of.
func (c *Contest) contendsAt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != "" {
		return never
	}
	return max(c.notBefore, c.after, c.locker.opt.Clock()+c.delayLocked())
}

// freed notes that a node announced a release.
func (c *Contest) freed(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	s := &c.sights[i]
	if !s.young {
		*s = sight{at: now, freeAt: now}
	}
	c.refusal, c.after = "", 0 // who releases has not died
}

// noticePriority begins the message in which a candidate that wants to be preferred
// tells its priority to the others.
const noticePriority = "priority "

func (c *Contest) hear(text string) {
	p, err := strconv.Atoi(text)
	if err != nil || p < 0 || p > 100 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	if p >= c.heard || now-c.heardAt > 2*c.locker.opt.TTL {
		c.heard, c.heardAt = p, now
	}
}

// delay is how much later than the lock comes free this candidate starts to contend:
// a part of the TTL for what its priority is below the highest heard of lately. A
// preferred candidate that went away is forgotten (kubernetes#138066).
func (c *Contest) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delayLocked()
}

func (c *Contest) delayLocked() time.Duration {
	highest := 0
	if c.heardAt > 0 && c.locker.opt.Clock()-c.heardAt <= 2*c.locker.opt.TTL {
		highest = c.heard
	}
	return c.locker.opt.TTL * time.Duration(max(highest-c.priority, 0)) / 400
}

// defers notes that a node shows the lease of an earlier process under this candidate's
// identity. That one died without a word, so others go first: what killed it may not be
// over. It needs c.mu.
func (c *Contest) defers(s sight) {
	// One who has not got the lease yet but is on the way shows at some nodes: that ends
	// nothing.
	if info, ok := ParseToken(s.owner); ok && info.Identity == c.locker.info.Identity {
		c.after = s.freeAt + c.locker.opt.TTL/20
	}
}

// announce tells the other candidates of a priority above the usual.
func (c *Contest) announce(ctx context.Context) {
	c.mu.Lock()
	p := c.priority
	c.mu.Unlock()
	if p <= 0 {
		return
	}
	r := c.locker.newRound(ctx, c.locker.opt.NodeTimeout)
	req := Request{Op: OpAnnounce, Keys: c.keys, Notice: noticePriority + strconv.Itoa(p)}
	for _, n := range c.locker.nodes {
		r.add()
		// Who does not hear it contends a little earlier: nothing hangs on the answer.
		n.Send(r.ctx, req, func(Reply, error) { r.done() })
	}
	r.done()
}

// due is when the next attempt should be made, and far in the future when too few
// nodes told when they may grant the lock.
func (c *Contest) due() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	times := make([]time.Duration, 0, len(c.sights))
	for _, s := range c.sights {
		// A node that does not answer is still known by what it said before, until that
		// is over.
		if s.at > 0 && (s.err == nil || s.freeAt > now) {
			times = append(times, s.freeAt)
		}
	}
	q := Quorum(len(c.sights))
	if len(times) < q || c.refusal != "" {
		return never
	}
	slices.Sort(times)
	return max(times[q-1]+c.delayLocked(), c.notBefore, c.after)
}

const never = time.Duration(1<<63 - 1)

// untilNext is how long to wait before the lock is looked at again if nothing is
// announced: until it may come free; at most a TTL, so that what is known stays
// fresh; and less where a node has to be asked that did not answer.
func (c *Contest) untilNext() time.Duration {
	wait := c.locker.opt.TTL
	if at := min(c.due(), c.lookAgainAt()); at != never {
		wait = min(wait, max(at-c.locker.opt.Clock(), 0))
	}
	if len(c.silent()) > 0 || c.refused() != "" {
		wait = min(wait, max(c.locker.opt.RenewInterval, 100*time.Millisecond))
	}
	return wait
}

func (c *Contest) all() []int {
	out := make([]int, len(c.sights))
	for i := range out {
		out[i] = i
	}
	return out
}

// silent lists the nodes that did not answer last time.
func (c *Contest) silent() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []int
	for i, s := range c.sights {
		if s.err != nil {
			out = append(out, i)
		}
	}
	return out
}

// lookAgainAt is when the token that a quorum shows has to be looked at again, if so.
func (c *Contest) lookAgainAt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks == 0 {
		return never
	}
	return c.nextLook
}

// meets notes that a node shows a token, and when to look at it again if it is new at a
// quorum: soon, and when an attempt must have ended. It needs c.mu.
func (c *Contest) meets(owner string, now time.Duration) {
	if owner != c.met {
		c.looksAgain(owner, now)
	}
}

// doubts notes that the holder has announced its release. Where a quorum shows its token
// still, the release may be on its way, and its other notices lost.
func (c *Contest) doubts(holder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looksAgain(holder, c.locker.opt.Clock())
}

// looksAgain plans looks at a token that a quorum shows. It needs c.mu.
func (c *Contest) looksAgain(owner string, now time.Duration) {
	count := 0
	for _, s := range c.sights {
		if s.owner == owner {
			count++
		}
	}
	if owner != "" && count >= Quorum(len(c.sights)) {
		c.met, c.looks, c.nextLook = owner, 2, now+c.locker.opt.NodeTimeout
	}
}

// takeLook lists the nodes to look at now: those that did not answer, those whose word is
// about to be a TTL old, and those that showed a token which may have been withdrawn. It
// counts the look at that token as taken.
func (c *Contest) takeLook() []int {
	out := c.silent()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	old := now - c.locker.opt.TTL*9/10
	again := c.looks > 0 && c.nextLook <= now
	if again {
		c.looks--
		c.nextLook = now + attemptTimeouts*c.locker.opt.NodeTimeout
	}
	for i, s := range c.sights {
		if s.err == nil && (s.at <= old || c.refusal != "" || again && s.owner == c.met) {
			out = append(out, i)
		}
	}
	return out
}

func (c *Contest) refused() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

// Look asks every node who holds the lock, without taking part in the contest. It
// returns when all answered or a node timeout is over. It must not run beside Acquire.
func (c *Contest) Look(ctx context.Context) { c.probe(ctx, c.all()) }

// probe looks at nodes without taking anything, and returns when all answered or a
// node timeout is over.
func (c *Contest) probe(ctx context.Context, nodes []int) {
	if len(nodes) == 0 {
		return
	}
	r := c.locker.newRound(ctx, c.locker.opt.NodeTimeout)
	answered := make(chan struct{}, len(nodes))
	for _, i := range nodes {
		c.probeAt(r, i, answered)
	}
	r.done()
	limit := time.NewTimer(r.until - r.start)
	defer limit.Stop()
	for range nodes {
		select {
		case <-answered:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *Contest) probeAt(r *round, i int, answered chan<- struct{}) {
	sent := c.locker.opt.Clock()
	req := Request{Op: OpProbe, Keys: c.keys, TTL: c.locker.opt.TTL}
	c.locker.permit(i, sent, r.until, &req)
	r.add()
	c.locker.nodes[i].Send(r.ctx, req, func(reply Reply, err error) {
		if err != nil {
			c.locker.failed(i, err)
		} else {
			c.locker.answered(i, c.keys.Fence, sent, reply)
		}
		c.see(i, reply, err)
		answered <- struct{}{}
		r.done()
	})
}

// see notes what node i showed of the lock.
func (c *Contest) see(i int, r Reply, err error) {
	young := c.locker.matureAt(i)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.locker.opt.Clock()
	if err != nil {
		c.sights[i].err = err // what it said before stands: no answer changes nothing
		return
	}
	s := sight{at: now, freeAt: now, young: r.Young}
	switch {
	case r.Outcome == Held && r.PTTL == NoExpiry:
		s.owner, s.freeAt, s.endless = r.Owner, now+c.locker.opt.TTL, true
		s.err = fmt.Errorf("node %s: key %q never expires: no Redlock client leaves such a key; look what wrote it, and delete it if nothing holds the lock",
			c.locker.nodes[i].Name(), c.keys.Lock)
	case r.Outcome == Held:
		// The key is gone within the millisecond after its PTTL.
		s.owner, s.freeAt = r.Owner, now+r.PTTL+time.Millisecond
	}
	if r.Young {
		s.freeAt = max(s.freeAt, young)
	}
	c.sights[i] = s
	c.meets(s.owner, now)
	c.defers(s)
	c.checkOwner(r)
}

// matureAt is when node i will be mature, as far as can be told.
func (l *Locker) matureAt(i int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opt.Clock()
	return now + l.watches[i].matureIn(now, l.opt.Quarantine)
}

// checkOwner refuses to contend where the holder's settings and ours cannot be safe
// together: its TTL is longer than our quarantine, or it counts another number of
// nodes (review A.1, A.7).
func (c *Contest) checkOwner(r Reply) {
	if r.Outcome != Held {
		conflicting := func(s sight) bool { return c.locker.conflict(s.owner) != "" }
		if !slices.ContainsFunc(c.sights, conflicting) {
			c.refusal = ""
		}
		return
	}
	if why := c.locker.conflict(r.Owner); why != "" {
		c.refusal = why
	}
}

// conflict says why a candidate with that token and we cannot share a lock safely,
// or nothing.
func (l *Locker) conflict(owner string) string {
	info, ok := ParseToken(owner)
	switch {
	case !ok:
		return ""
	case info.Nodes != l.info.Nodes:
		return fmt.Sprintf("%s counts %d nodes and this candidate %d: give all candidates the same list", info.Identity, info.Nodes, l.info.Nodes)
	case l.opt.Quarantine > 0 && info.TTL > l.opt.Quarantine:
		return fmt.Sprintf("%s uses a TTL of %v, longer than this candidate's quarantine of %v: raise the quarantine of all candidates first", info.Identity, info.TTL, l.opt.Quarantine)
	}
	return ""
}
