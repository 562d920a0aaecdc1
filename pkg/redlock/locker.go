package redlock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
)

// MinTTL is the shortest lease: below it the allowances for drift and round trips
// are finer than what the nodes' clocks resolve.
const MinTTL = 500 * time.Millisecond

// Options configure a Locker. The zero value of a field other than TTL is usable.
type Options struct {
	// TTL is how long a lease lasts without renewal, at least MinTTL.
	TTL time.Duration
	// RenewInterval is how often a held lease is renewed; 0 means TTL/5.
	RenewInterval time.Duration
	// StopBudget is how long before the lease can be given away its holder stops
	// holding it, so that its work can end in time. A negative value holds on beyond
	// the deadline: it exists to show the harm, and is never safe.
	StopBudget time.Duration
	// NodeTimeout bounds one request at one node; 0 means TTL/50, within 20 ms to
	// 500 ms.
	NodeTimeout time.Duration
	// Quarantine is how long a node must be up before it grants a new lease: at least
	// the longest TTL any candidate of the lock uses. 0 means none, which is safe only
	// with nodes that never lose a key.
	Quarantine time.Duration
	// KeyPrefix is put before keys and channels.
	KeyPrefix string
	// BareKey uses the lock's name itself as its key, to share it with other Redlock
	// clients; the fence and the channel keep the prefix.
	BareKey bool
	// Identity tells people who holds a lease. It is not a secret.
	Identity string
	// NoFencing leaves the counter of fencing tokens alone.
	NoFencing bool
	// Clock is a monotonic clock that counts suspends; nil means boottime.Now.
	Clock func() time.Duration
	// Entropy is where tokens and random waits come from; nil means crypto/rand.
	Entropy io.Reader
	// OnRound, if not nil, is told how long each acquisition and renewal took and
	// with what result. It must not block.
	OnRound func(Round)
}

// Round is the measure of one acquisition or renewal.
type Round struct {
	// Renewal is true for the renewal of a lease, false for an acquisition.
	Renewal bool
	// Took is the time from the first request until the result was known, by
	// Options.Clock.
	Took time.Duration
	// Result is how it ended.
	Result Result
}

// Result says how a round ended. The values are used in metrics; they do not change.
type Result string

// The results of rounds.
const (
	ResultWon      Result = "acquired"  // acquired, or renewed
	ResultHeld     Result = "held"      // somebody else has a quorum
	ResultSplit    Result = "split"     // candidates have each other's votes
	ResultNoQuorum Result = "no-quorum" // too few nodes answered, or were mature
	ResultLost     Result = "lost"      // a renewal found the lease over
	ResultError    Result = "error"     // given up by the caller
)

// Locker takes leases on a fixed list of nodes. It is safe for concurrent use.
type Locker struct {
	nodes  []Node
	opt    Options
	info   TokenInfo
	suffix string // of every token

	mu      sync.Mutex
	spare   string // a token that nobody has used yet, or empty
	watches []watch
	fences  map[string]uint64 // the highest fence seen anywhere, by lock key

	background tasks // requests under way, and releases that are being repeated
	ctx        context.Context
	cancel     context.CancelFunc
}

// New makes a Locker over nodes, whose number is N for good: nothing lowers the
// quorum. It returns an error that names the option, its value and what is allowed.
func New(nodes []Node, opt Options) (*Locker, error) {
	opt = opt.withDefaults()
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name()
	}
	if err := opt.validate(names); err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	info := TokenInfo{Identity: opt.Identity, TTL: opt.TTL, Nodes: len(nodes), ListHash: listHash(names)}
	l := &Locker{
		nodes: slices.Clone(nodes), opt: opt, watches: make([]watch, len(nodes)), fences: map[string]uint64{},
		info: info, suffix: info.suffix(), ctx: ctx, cancel: cancel,
	}
	l.stockToken()
	return l, nil
}

func (o Options) withDefaults() Options {
	if o.RenewInterval == 0 {
		o.RenewInterval = o.TTL / 5
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = min(max(o.TTL/50, 20*time.Millisecond), 500*time.Millisecond)
	}
	if o.Clock == nil {
		o.Clock = boottime.Now
	}
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	return o
}

func (o Options) validate(names []string) error {
	switch {
	case len(names) == 0:
		return errors.New("no nodes: at least one is needed")
	case o.TTL < MinTTL:
		return fmt.Errorf("TTL %v: must be at least %v", o.TTL, MinTTL)
	case o.TTL%time.Millisecond != 0:
		return fmt.Errorf("TTL %v: must be whole milliseconds", o.TTL)
	case o.NodeTimeout < time.Millisecond || o.TTL < 10*o.NodeTimeout:
		return fmt.Errorf("NodeTimeout %v: must be at least 1ms and at most a tenth of the TTL, %v", o.NodeTimeout, o.TTL/10)
	case o.RenewInterval < 0:
		return fmt.Errorf("RenewInterval %v: must be positive", o.RenewInterval)
	case o.Quarantine != 0 && o.Quarantine < o.TTL:
		return fmt.Errorf("Quarantine %v: must be 0 or at least the TTL, %v", o.Quarantine, o.TTL)
	}
	// Three tries have to fit before a lease that is not renewed ends (review B.4).
	need, have := 3*o.RenewInterval+o.NodeTimeout, o.TTL-drift(o.TTL)-o.StopBudget
	if need > have {
		return fmt.Errorf("RenewInterval %v: three of them and a node timeout make %v, but only %v lie before the stop budget: lower RenewInterval or StopBudget, or raise TTL",
			o.RenewInterval, need, have)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("node %q is in the list twice", name)
		}
	}
	return nil
}

// TTL returns how long a lease lasts without renewal.
func (l *Locker) TTL() time.Duration { return l.opt.TTL }

// Options returns the options with their defaults filled in.
func (l *Locker) Options() Options { return l.opt }

// Now reads the clock that leases are measured with.
func (l *Locker) Now() time.Duration { return l.opt.Clock() }

// Size returns the number of nodes.
func (l *Locker) Size() int { return len(l.nodes) }

// Close ends what goes on in the background, such as releases that are repeated because
// their node has not answered, and waits for it. It does not release leases, nor close
// the nodes; an Acquire that is under way has to be ended by its context.
func (l *Locker) Close() {
	l.cancel()
	l.background.wait()
}

func (l *Locker) keys(lock string) Keys {
	p := l.opt.KeyPrefix + lock
	k := Keys{Lock: p, Fence: p + ":fence", Channel: p + ":released"}
	if l.opt.BareKey {
		k.Lock = lock
	}
	return k
}

// freshToken returns a token that was never used.
func (l *Locker) freshToken() (string, error) {
	l.mu.Lock()
	token := l.spare
	l.spare = ""
	l.mu.Unlock()
	if token != "" {
		return token, nil
	}
	return newToken(l.opt.Entropy, l.suffix)
}

// stockToken makes the next token while nobody waits for it.
func (l *Locker) stockToken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare == "" {
		l.spare, _ = newToken(l.opt.Entropy, l.suffix) // who needs it will tell why there is none
	}
}

// answered takes in node i's reply to a request about a lock.
func (l *Locker) answered(i int, fenceKey string, sent time.Duration, r Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[i].answer(sent, l.opt.Clock(), drift(l.opt.TTL), r)
	if r.Fence > l.fences[fenceKey] {
		l.fences[fenceKey] = r.Fence
	}
}

func (l *Locker) failed(i int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[i].fail(err)
}

// permit fills in what node i is to know of our past with it, for a request that
// is sent now and given up at until.
func (l *Locker) permit(i int, now, until time.Duration, req *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.watches[i]
	req.Quarantine = l.opt.Quarantine
	req.Unseen = !w.answered
	if w.answered && w.mature(now, l.opt.Quarantine) {
		req.MatureRunID = w.runID
	}
	if w.clock.known {
		req.NotAfter = w.clock.latest(until).Microseconds()
	}
}

// clocksKnown reports whether the time of a quorum of nodes is known, so that a
// fencing token can be proposed.
func (l *Locker) clocksKnown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.watches {
		if l.watches[i].clock.known {
			n++
		}
	}
	return n >= Quorum(len(l.nodes))
}

// proposeFence returns a number above every one seen for the lock, and at least the
// median of the nodes' clocks in µs: so one sick clock can neither fall behind nor
// run the counter up (review A.8a).
func (l *Locker) proposeFence(fenceKey string, now time.Duration) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := make([]time.Duration, 0, 8)
	for i := range l.watches {
		if c := &l.watches[i].clock; c.known {
			times = append(times, c.middle(now))
		}
	}
	p := l.fences[fenceKey] + 1
	if len(times) > 0 {
		slices.Sort(times)
		p = max(p, uint64(max(times[(len(times)-1)/2].Microseconds(), 0)))
	}
	if p > maxFence {
		return 0, fmt.Errorf("fencing token %d of %q is above %d: no more can be given; delete that key on every node, and raise what compares its tokens", p, fenceKey, uint64(maxFence))
	}
	return p, nil
}

// roundTrip is the q-th smallest round trip last measured: what a quorum takes.
func (l *Locker) roundTrip() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	trips := make([]time.Duration, 0, len(l.watches))
	for i := range l.watches {
		if l.watches[i].answered {
			trips = append(trips, l.watches[i].latency)
		}
	}
	if len(trips) == 0 {
		return 0
	}
	slices.Sort(trips)
	return trips[min(Quorum(len(l.nodes)), len(trips))-1]
}

// random returns a duration in [0, limit).
func (l *Locker) random(limit time.Duration) time.Duration {
	var b [8]byte
	if limit <= 0 {
		return 0
	}
	if _, err := io.ReadFull(l.opt.Entropy, b[:]); err != nil {
		return limit / 2 // a wait need not be random to be right
	}
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % uint64(limit)) //nolint:gosec // less than limit
}

// Nodes tells what is known of each node, in the configured order.
func (l *Locker) Nodes() []NodeStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.opt.Clock()
	out := make([]NodeStatus, len(l.nodes))
	for i := range l.nodes {
		out[i] = l.watches[i].status(l.nodes[i].Name(), now, l.opt.Quarantine)
		if twin := l.twin(i); twin >= 0 && out[i].Unfit == "" {
			out[i].Unfit = fmt.Sprintf("the same server as %s: one server has one vote", l.nodes[twin].Name())
		}
	}
	return out
}

// twin returns the first other name of node i's server, or -1.
func (l *Locker) twin(i int) int {
	for j := range i {
		if l.watches[i].runID != "" && l.watches[j].runID == l.watches[i].runID {
			return j
		}
	}
	return -1
}

// SinceQuorum returns how long ago a quorum of fit nodes had answered, or a
// negative value when there was none.
func (l *Locker) SinceQuorum() time.Duration {
	ages := make([]time.Duration, 0, len(l.nodes))
	for _, s := range l.Nodes() {
		if s.LastReply >= 0 && s.Unfit == "" {
			ages = append(ages, s.LastReply)
		}
	}
	if q := Quorum(len(l.nodes)); len(ages) >= q {
		slices.Sort(ages)
		return ages[q-1]
	}
	return -1
}
