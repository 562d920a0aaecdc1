package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redlocktest"
)

// Setting is what a run does and how long.
type Setting struct {
	Seed uint64
	// Length is how long faults go on, in virtual time. Then everything heals, and
	// somebody has to be elected.
	Length time.Duration
	// Wild breaks the assumptions as well: clocks step and run far off, nodes lose keys
	// without restarting. Two candidates may then be active, but storage that compares
	// tokens must not notice.
	Wild bool
	// NoQuarantine turns the quarantine off, to see that the checker finds the harm.
	NoQuarantine bool
	// GoClock measures leases with a clock that stands still while a process does, as
	// Go's own does in a suspend.
	GoClock bool
	// SwapTwo gives some candidates a list in which two nodes are others.
	SwapTwo bool
	// Stall makes a pause stop what a process is doing at its next request, so that it
	// goes on from there with timers that ran out long ago. Otherwise its requests and
	// replies are held up, and the rest of it goes on in the dark. Stalled processes find
	// several things to do at once when they wake, and choose at random: such a seed may
	// take more than one course.
	Stall bool
	// Favour names a fault that is every second one.
	Favour string
}

// The settings that all candidates of a run share are drawn from these.
var (
	ttls     = []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
	nodeSets = []int{1, 3, 3, 3, 4, 5}
)

// world is one run.
type world struct {
	set     Setting
	rng     *rand.Rand
	start   time.Time
	ttl     time.Duration
	opt     redlock.Options
	servers []*redlocktest.Server // those of the usual list, then spare ones
	size    int                   // of the usual list
	procs   []*proc
	log     timeline
	check   checker
	running sync.WaitGroup

	quiet time.Time // no faults before

	hookMu  sync.Mutex
	elected func(*life) // called once, in the instant in which a process becomes active
}

// newWorld draws a world from the seed.
func newWorld(set Setting) *world {
	w := &world{set: set, rng: rand.New(rand.NewPCG(set.Seed, 1)), start: time.Now()}
	w.log.start = w.start
	w.check.log = &w.log
	w.ttl = ttls[w.rng.IntN(len(ttls))]
	w.opt = redlock.Options{
		TTL: w.ttl, StopBudget: []time.Duration{0, w.ttl / 10, w.ttl / 4}[w.rng.IntN(3)],
		Quarantine: max(w.ttl, 3*time.Second) + time.Second, KeyPrefix: "podlease:",
	}
	if set.NoQuarantine {
		w.opt.Quarantine = 0
	}
	w.size = nodeSets[w.rng.IntN(len(nodeSets))]
	if set.SwapTwo {
		w.size = 3
	}
	for i := range w.size + 2 {
		s := redlocktest.NewServer(fmt.Sprintf("node-%d", i+1), time.Hour)
		s.Rate((w.rng.Float64()*2 - 1) * 0.0049)
		s.Step(time.Duration(w.rng.Int64N(int64(2*time.Second))) - time.Second)
		w.servers = append(w.servers, s)
	}
	growing, mixed := w.rng.IntN(8) == 0, w.rng.IntN(3) == 0
	for i := range 2 + w.rng.IntN(4) {
		p := newProc(w, i)
		p.list = w.servers[:w.size]
		switch {
		case set.SwapTwo && i%2 == 1:
			p.list = []*redlocktest.Server{w.servers[0], w.servers[3], w.servers[4]}
		case growing && i%2 == 1:
			p.list = w.servers[:w.size+1] // one node more, as in a roll-out that adds one
		}
		if mixed && i%2 == 1 && w.ttl > time.Second {
			p.ttl = w.ttl / 2
		}
		w.procs = append(w.procs, p)
	}
	return w
}

// proc is a place where a candidate runs; a crash and restart puts another process
// there.
type proc struct {
	w      *world
	name   string
	rng    *rand.Rand
	rate   float64 // of its clock
	offset time.Duration
	list   []*redlocktest.Server
	ttl    time.Duration

	mu        sync.Mutex
	life      *life
	lives     int
	paused    bool
	awake     chan struct{} // closed when the pause ends
	since     time.Time     // when the pause began
	slept     time.Duration // in pauses that are over
	held      []deed        // what waits for the end of the pause
	cutAtTake []int         // links to cut at the next take
	astray    bool          // the next process here will be
	trap      int           // requests until the process pauses, 0 for no such plan
}

// life is one process.
type life struct {
	*election.Candidate
	proc   *proc
	name   string
	locker *redlock.Locker
	links  []*link
	stop   context.CancelFunc
	done   chan struct{}
	dead   bool // killed: nothing of it is heard any more

	acted time.Time // when its workload was last seen to be allowed to act
	terms map[string]bool
	term  string
}

func newProc(w *world, i int) *proc {
	return &proc{
		w: w, name: "ABCDEFGH"[i : i+1], ttl: w.ttl, rng: rand.New(rand.NewPCG(w.set.Seed, uint64(100+i))), //nolint:gosec // a handful
		rate: (w.rng.Float64()*2 - 1) * 0.0049, offset: time.Hour + time.Duration(w.rng.Int64N(int64(time.Hour))),
	}
}

// clock is the process's own.
func (p *proc) clock() time.Duration {
	t := time.Since(p.w.start)
	if p.w.set.GoClock {
		t -= p.asleep()
	}
	return p.offset + t + time.Duration(float64(t)*p.rate)
}

// stopBudget is the process's share of its TTL.
func (p *proc) stopBudget() time.Duration { return p.w.opt.StopBudget / (p.w.ttl / p.ttl) }

// entropy gives a life random bytes that depend on nothing but the seed.
type entropy struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (e *entropy) Read(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], e.rng.Uint64())
		copy(b[i:], word[:])
	}
	return len(b), nil
}

// boot starts a process.
func (p *proc) boot() {
	p.mu.Lock()
	p.lives++
	l := &life{proc: p, name: fmt.Sprintf("%s%d", p.name, p.lives), done: make(chan struct{}), terms: map[string]bool{}}
	p.mu.Unlock()
	opt := p.w.opt
	opt.Identity, opt.Clock = l.name, p.clock
	opt.TTL, opt.StopBudget = p.ttl, p.stopBudget()
	opt.Entropy = &entropy{rng: rand.New(rand.NewPCG(p.w.set.Seed, hash(l.name)))}
	nodes := make([]redlock.Node, len(p.list))
	// Stale DNS, or a load balancer: all names lead to one server. Not for the first
	// process, so that somebody can be elected in the end.
	astray := p.isAstray() || p.rng.IntN(12) == 0 && p != p.w.procs[0]
	for i, s := range p.list {
		target := s
		if astray {
			target = p.list[0]
		}
		k := newLink(l, target, s.Name(), i)
		l.links, nodes[i] = append(l.links, k), k
	}
	var err error
	if l.locker, err = redlock.New(nodes, opt); err != nil {
		panic(err)
	}
	if l.Candidate, err = election.New(l.locker, election.Config{
		Lock: "orders", Identity: l.name, NativeSidecar: true, Log: logr.Discard(),
		OnEvent: func(e election.Event) { p.w.onEvent(l, e) },
	}); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	p.w.running.Go(func() {
		_ = l.Run(ctx)
		close(l.done)
	})
	p.mu.Lock()
	p.life = l
	p.mu.Unlock()
}

func hash(s string) uint64 {
	h := uint64(1469598103934665603)
	for _, c := range []byte(s) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// current returns the process that runs there, or nil.
func (p *proc) current() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// isDead reports whether the process was killed.
func (l *life) isDead() bool {
	l.proc.mu.Lock()
	defer l.proc.mu.Unlock()
	return l.dead
}

// kill ends the process without a word, as SIGKILL does.
func (p *proc) kill() {
	p.mu.Lock()
	l := p.life
	if l != nil {
		l.dead, p.life = true, nil
	}
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.bury() // its goroutines have to end; what they send is not sent any more
}

// bury ends what a process does, and then what it does in the background.
func (l *life) bury() {
	l.stop()
	go func() {
		<-l.done
		l.locker.Close()
	}()
}

// end stops the process in order, as SIGTERM does, and starts no other.
func (p *proc) end() {
	p.mu.Lock()
	l := p.life
	p.life = nil
	p.mu.Unlock()
	if l == nil {
		return
	}
	l.bury()
}

// goAstray makes the next process here one for which all names lead to one server.
func (p *proc) goAstray() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.astray = true
}

func (p *proc) isAstray() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.astray
	p.astray = false
	return was
}

// aboutToTake is called before each take.
func (l *life) aboutToTake() {
	l.proc.mu.Lock()
	cut := l.proc.cutAtTake
	l.proc.cutAtTake = nil
	l.proc.mu.Unlock()
	for _, i := range cut {
		l.links[i].Cut(true)
	}
}

// hook sets what to do when somebody becomes active next; f may be nil.
func (w *world) hook(f func(*life)) {
	w.hookMu.Lock()
	defer w.hookMu.Unlock()
	w.elected = f
}

func (w *world) callHook(l *life) {
	w.hookMu.Lock()
	f := w.elected
	w.elected = nil
	w.hookMu.Unlock()
	if f != nil {
		f(l)
	}
}

// onEvent is told of what candidates announce, in the instant it happens.
func (w *world) onEvent(l *life, e election.Event) {
	if l.isDead() {
		return
	}
	w.log.add("%s %s token %d: %s", l.name, e.Kind, e.FencingToken, e.Message)
	if e.Kind == election.LeaderElected {
		w.check.elected(l, e.FencingToken)
		w.check.exclusive(w)
		w.callHook(l)
	}
}

// lives returns the processes that run.
func (w *world) lives() []*life {
	var out []*life
	for _, p := range w.procs {
		if l := p.current(); l != nil {
			out = append(out, l)
		}
	}
	return out
}
