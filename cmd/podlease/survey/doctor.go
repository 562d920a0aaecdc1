package survey

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
)

// Verdict says how well something is.
type Verdict string

// The verdicts, from good to bad.
const (
	Fit     Verdict = "fit"
	Warning Verdict = "warning"
	Unfit   Verdict = "unfit"
)

// worse is the worse of two verdicts.
func worse(a, b Verdict) Verdict {
	order := []Verdict{Fit, Warning, Unfit}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// Check is one thing that was looked at.
type Check struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Found is what was found, and Advice what to change about it.
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// Health is what was found at one node.
type Health struct {
	Node    string  `json:"node"`
	Verdict Verdict `json:"verdict"`
	Checks  []Check `json:"checks"`

	runID  string
	offset time.Duration
	timed  bool
}

func (h *Health) add(name string, v Verdict, found, advice string) {
	h.Checks = append(h.Checks, Check{name, v, found, advice})
	h.Verdict = worse(h.Verdict, v)
}

// Diagnosis is what was found at all nodes.
type Diagnosis struct {
	Verdict Verdict  `json:"verdict"`
	Nodes   []Health `json:"nodes"`
	// Set are the checks of the nodes together.
	Set []Check `json:"set"`
}

// Lease are the settings that nodes are judged by.
type Lease struct {
	NodeTimeout time.Duration
	Quarantine  time.Duration
}

const (
	// clockSpan is how long a clock is watched.
	clockSpan = 2 * time.Second
	// maxClockRate is the allowance for drift in a lease, half of a hundredth.
	maxClockRate = 0.005
	// offsetWarning is how far clocks may be apart without a word.
	offsetWarning = time.Second
	// latencySamples is how often a node is asked for its round trip.
	latencySamples = 5
)

// Diagnose looks at all nodes. It takes a lease of its own on each, for a moment, to see
// that it may.
func (n *Nodes) Diagnose(ctx context.Context, names Names, lease Lease) Diagnosis {
	d := Diagnosis{Verdict: Fit, Nodes: make([]Health, len(n.nodes))}
	n.each(func(i int, node *redisnode.Node) {
		e := examination{node: node, cfg: n.configs[i], lease: lease, keys: names.keys("podlease-doctor/" + rand.Text())}
		e.health = Health{Node: node.Name(), Verdict: Fit}
		e.run(ctx)
		d.Nodes[i] = e.health
	})
	d.together(lease)
	for _, h := range d.Nodes {
		d.Verdict = worse(d.Verdict, h.Verdict)
	}
	for _, c := range d.Set {
		d.Verdict = worse(d.Verdict, c.Verdict)
	}
	return d
}

// examination is that of one node.
type examination struct {
	node   *redisnode.Node
	cfg    redisnode.Config
	lease  Lease
	keys   redlock.Keys
	health Health
}

func (e *examination) run(ctx context.Context) {
	first, err := e.probe(ctx) // which had to connect
	if err != nil {
		e.health.add("reachable", Unfit, err.Error(), advice(err))
		return
	}
	e.health.runID = first.RunID
	base := e.latency(ctx, first)
	e.fitness()
	e.info(ctx)
	e.maturity(first)
	e.rights(ctx)
	e.clock(ctx, base)
}

// probe asks as one who never saw the node.
func (e *examination) probe(ctx context.Context) (reply, error) {
	return ask(ctx, e.node, redlock.Request{Op: redlock.OpProbe, Keys: e.keys, Unseen: true, Quarantine: max(e.lease.Quarantine, time.Second)})
}

// advice is what can be done about an error, if its text does not say so already.
func advice(err error) string {
	if node, ok := errors.AsType[*redlock.NodeError](err); ok && node.Hint == "" {
		return "look at the address, the server's log and the network between"
	}
	return ""
}

// latency asks some times more, and returns the fastest answer, or else the first.
func (e *examination) latency(ctx context.Context, first reply) (fastest reply) {
	var took []time.Duration
	fastest = first
	for range latencySamples {
		r, err := e.probe(ctx)
		if err != nil {
			e.health.add("reachable", Warning, "answers at times only: "+err.Error(), advice(err))
			return fastest
		}
		took = append(took, r.took())
		if r.took() < fastest.took() {
			fastest = r
		}
	}
	middle, worst := median(took), slices.Max(took)
	found := fmt.Sprintf("round trip %v, at worst %v", middle.Round(time.Microsecond), worst.Round(time.Microsecond))
	if worst > e.lease.NodeTimeout/2 {
		e.health.add("reachable", Warning, found, fmt.Sprintf("that is more than half of the node timeout, %v: use a nearer node, or a longer TTL", e.lease.NodeTimeout))
		return fastest
	}
	e.health.add("reachable", Fit, found, "")
	return fastest
}

func median(d []time.Duration) time.Duration {
	sorted := slices.SortedFunc(slices.Values(d), cmp.Compare[time.Duration])
	return sorted[len(sorted)/2]
}

func (e *examination) fitness() {
	switch reason, known := e.node.Fitness(); {
	case reason != "":
		e.health.add("independent", Unfit, reason, "use independent servers that lose no key while they run: no replicas, no cluster, maxmemory-policy noeviction")
	case !known:
		e.health.add("independent", Warning, "it does not tell what it is", "let the user run INFO (+info)")
	default:
		e.health.add("independent", Fit, "a server on its own, and it evicts nothing", "")
	}
}

func (e *examination) maturity(first reply) {
	switch up := first.Uptime; {
	case e.lease.Quarantine == 0:
		e.health.add("mature", Warning, "the quarantine is off", "a node that lost its keys in a restart grants the lock again at once: leave the quarantine on")
	case up < 0:
		e.health.add("mature", Warning, "it does not tell for how long it has been up", "let the user run INFO (+info); otherwise it grants new leases only on a connection that is as old as the quarantine")
	case up-time.Second < e.lease.Quarantine:
		e.health.add("mature", Warning, fmt.Sprintf("up for %v, less than the quarantine of %v", up, e.lease.Quarantine),
			fmt.Sprintf("it grants new leases in %v", e.lease.Quarantine+time.Second-up))
	default:
		e.health.add("mature", Fit, fmt.Sprintf("up for %v", up), "")
	}
}

// rights takes, renews and releases a lock that nobody else uses, and listens to that.
func (e *examination) rights(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	notices := make(chan redlock.Notice, 8)
	var listening sync.WaitGroup
	listening.Go(func() {
		e.node.Subscribe(ctx, e.keys.Channel, func(n redlock.Notice) {
			select {
			case notices <- n:
			default:
			}
		})
	})
	defer listening.Wait()
	defer cancel()
	listens := hears(ctx, notices, redlock.NoticeSubscribed)
	if err := e.tryLock(ctx); err != nil {
		e.health.add("rights", Unfit, fmt.Sprintf("a lock cannot be taken and released: %v", err), adviceOnRights(err))
		return
	}
	if !listens || !hears(ctx, notices, redlock.NoticeMessage) {
		e.health.add("rights", Warning, "releases cannot be heard, so a hand-over takes as long as a crash", rightsAdvice)
		return
	}
	e.health.add("rights", Fit, "a lock was taken, renewed and released, and the release was heard", "")
}

// tryLock takes, renews and releases.
func (e *examination) tryLock(ctx context.Context) error {
	token := rand.Text()
	const lives = 10 * time.Second
	for _, step := range []redlock.Request{
		{Op: redlock.OpTake, Keys: e.keys, Token: token, TTL: lives},
		{Op: redlock.OpTake, Keys: e.keys, Token: token, TTL: lives},
		{Op: redlock.OpRelease, Keys: e.keys, Token: token, Notice: "doctor"},
	} {
		if _, err := ask(ctx, e.node, step); err != nil {
			return err
		}
	}
	return nil
}

// noticeTimeout is how long a notice may take.
const noticeTimeout = time.Second

func hears(ctx context.Context, notices <-chan redlock.Notice, kind redlock.NoticeKind) bool {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	for {
		select {
		case n := <-notices:
			if n.Kind == kind {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

func adviceOnRights(err error) string {
	if node, ok := errors.AsType[*redlock.NodeError](err); ok && node.Kind == redlock.KindPermission {
		return rightsAdvice
	}
	return advice(err)
}

const rightsAdvice = "docs/sidecar.md has the smallest ACL"

// clock compares the node's clock with the own one, twice.
func (e *examination) clock(ctx context.Context, first reply) {
	if first.Time == 0 {
		e.health.add("clock", Warning, "it does not tell the time", "let the user run TIME (+time)")
		return
	}
	timer := time.NewTimer(clockSpan)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	second, err := e.probe(ctx)
	if err != nil {
		e.health.add("clock", Warning, err.Error(), advice(err))
		return
	}
	now := time.Now()
	e.health.offset, e.health.timed = time.UnixMicro(second.Time).Sub(now.Add(-second.took()/2)), true
	own := (second.sent + second.received - first.sent - first.received) / 2
	theirs := time.Duration(second.Time-first.Time) * time.Microsecond
	rate, doubt := float64(theirs-own)/float64(own), float64(first.took()+second.took())/2/float64(own)
	found := fmt.Sprintf("%v off ours, runs %+.2f %% ± %.2f %%", e.health.offset.Round(time.Millisecond), 100*rate, 100*doubt)
	switch off := max(rate, -rate); {
	case off-doubt > maxClockRate:
		e.health.add("clock", Unfit, found, "a lease allows for half a per cent: look at the server's time synchronisation, it must slew and not step")
	case e.health.offset.Abs() > offsetWarning:
		e.health.add("clock", Warning, found, "synchronise the clocks: fencing tokens made after a loss of data grow only as far as clocks agree")
	default:
		e.health.add("clock", Fit, found, "")
	}
}

// together judges what only all nodes show.
func (d *Diagnosis) together(lease Lease) {
	d.number()
	d.duplicates()
	d.clocks(lease)
}

// number says how many nodes may fail, and how many have: that is more urgent.
func (d *Diagnosis) number() {
	size, needed := len(d.Nodes), redlock.Quorum(len(d.Nodes))
	verdict, advice := Fit, ""
	found := fmt.Sprintf("%d nodes, of which %d may fail", size, size-needed)
	switch {
	case size == 1:
		verdict, found, advice = Warning, "one node: when it is down, nobody is active", "use three for a lock that goes on without one of them"
	case size%2 == 0:
		verdict, found = Warning, fmt.Sprintf("%s, as with %d", found, size-1)
		advice = fmt.Sprintf("use %d or %d: an even number adds a node that can fail, and not one more that may", size-1, size+1)
	}
	failed := 0
	for _, h := range d.Nodes {
		if h.Verdict == Unfit {
			failed++
		}
	}
	if failed > 0 {
		verdict, found = Warning, fmt.Sprintf("%s; down or unfit now: %d", found, failed)
		advice = fmt.Sprintf("see to what is unfit above; until then %d more may fail", size-needed-failed)
	}
	if size-failed < needed {
		verdict, advice = Unfit, fmt.Sprintf("see to what is unfit above; with fewer than %d fit nodes nobody is active", needed)
	}
	d.check("number", verdict, found, advice)
}

func (d *Diagnosis) check(name string, v Verdict, found, advice string) {
	d.Set = append(d.Set, Check{name, v, found, advice})
}

func (d *Diagnosis) duplicates() {
	seen := map[string]string{}
	for _, h := range d.Nodes {
		if other, twice := seen[h.runID]; twice {
			d.check("distinct", Unfit, fmt.Sprintf("%s and %s are one server", other, h.Node), "name each server once: it has one vote")
			return
		}
		if h.runID != "" {
			seen[h.runID] = h.Node
		}
	}
	if size := len(d.Nodes); len(seen) < size && size > 1 {
		d.check("distinct", Warning, fmt.Sprintf("%d of %d servers answered: the others cannot be compared with them", len(seen), size), "look again when all answer")
		return
	}
	d.check("distinct", Fit, fmt.Sprintf("different servers: %d", len(seen)), "")
}

func (d *Diagnosis) clocks(lease Lease) {
	var offsets []time.Duration
	for _, h := range d.Nodes {
		if h.timed {
			offsets = append(offsets, h.offset)
		}
	}
	if len(offsets) < 2 {
		return
	}
	spread := slices.Max(offsets) - slices.Min(offsets)
	found := fmt.Sprintf("the nodes' clocks are within %v", spread.Round(time.Millisecond))
	switch {
	case lease.Quarantine > 0 && spread > lease.Quarantine:
		d.check("clocks", Unfit, found, "that is more than the quarantine: fencing tokens may not grow after a loss of data")
	case spread > offsetWarning:
		d.check("clocks", Warning, found, "synchronise them")
	default:
		d.check("clocks", Fit, found, "")
	}
}
