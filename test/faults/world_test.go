package faults_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/link"
	"github.com/podlease/podlease/test/recorder"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	lock, user, password = "orders", "lock", "secret"
	lockKey              = "podlease:" + lock
	fenceKey             = lockKey + ":fence"
	channel              = lockKey + ":released"
)

// settings are what a world is made from.
type settings struct {
	nodes, candidates int
	ttl, quarantine   time.Duration
	unchecked         bool // storage does not compare tokens
}

// timings give single requests as much time as is allowed, since the machine that runs
// tests may be overloaded.
func (s settings) timings() []string {
	return []string{"--quarantine=" + s.quarantine.String(), "--node-timeout=" + (s.ttl / 10).String()}
}

// world is a lock's nodes and candidates, with whatever is wrong with them.
type world struct {
	*behaviour.Field
	set     settings
	places  []*place
	log     *timeline
	storage *storage
	writing *writers
	primary *redistest.Server // of nodes that become replicas; nil until one does
	due     []deed            // what is to be done later, in order
}

// place is where one candidate after another lives.
type place struct {
	identity string

	mu      sync.Mutex
	sidecar *sidecartest.Sidecar // nil while none runs
}

func (p *place) current() *sidecartest.Sidecar {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sidecar
}

func (p *place) put(s *sidecartest.Sidecar) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sidecar = s
}

// deed is something to be done at an instant of CLOCK_BOOTTIME.
type deed struct {
	at   time.Duration
	name string
	do   func()
}

// newWorld starts nodes, candidates, and clients of the candidates that write to storage.
func newWorld(set settings) *world {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "password")
	Expect(os.WriteFile(file, []byte(password), 0o600)).To(Succeed())
	w := &world{
		set: set, log: &timeline{start: boottime.Now()},
		Field: &behaviour.Field{
			Program: program, Lock: lock, TTL: set.ttl, Linked: true, Every: 3 * time.Millisecond,
			Nodes: redistest.Cluster(GinkgoTB(), set.nodes, redistest.WithUser(user, password, redistest.MinimalRights)),
			Args:  append(set.timings(), "--username="+user, "--password-file="+file),
		},
	}
	DeferCleanup(w.tell)
	w.Start(0)
	for i := range set.candidates {
		p := &place{identity: string(rune('a' + i))}
		p.put(w.AddAs(p.identity))
		w.places = append(w.places, p)
	}
	w.storage = newStorage(set.unchecked)
	return w
}

// tell shows what happened, if that was not as it should be.
func (w *world) tell() {
	AddReportEntry("timeline", ReportEntryVisibilityFailureOrVerbose, w.log.with(w.Recorder.Runs()))
}

func (w *world) quorum() int { return redlock.Quorum(len(w.Nodes)) }

// some are n nodes, beginning with the i-th.
func (w *world) some(n, i int) []*redistest.Server {
	out := make([]*redistest.Server, n)
	for k := range out {
		out[k] = w.Nodes[(i+k)%len(w.Nodes)]
	}
	return out
}

// links are those of the candidate that lives at a place.
func (w *world) links(p *place) []*link.Link {
	if s := p.current(); s != nil {
		return w.Links[s.Name]
	}
	return nil
}

// holder is the place of the candidate that is active, or else the given one.
func (w *world) holder(otherwise *place) *place {
	for _, run := range w.Recorder.Active() {
		for _, p := range w.places {
			if s := p.current(); s != nil && s.Name == run.Who {
				return p
			}
		}
	}
	return otherwise
}

// crash kills the candidate of a place.
func (w *world) crash(p *place) {
	if s := p.current(); s != nil {
		p.put(nil)
		s.Crash()
		w.Leave(s)
	}
}

// bury waits for the end of a candidate that was told to, and still answers meanwhile.
func (w *world) bury(s *sidecartest.Sidecar) {
	_ = s.Thaw() // or it would never hear of it
	ctx, cancel := context.WithTimeout(context.Background(), behaviour.Patience)
	defer cancel()
	_, err := s.ExitCode(ctx)
	Expect(err).NotTo(HaveOccurred())
	w.Leave(s)
}

// boot starts a candidate at a place where none runs, or one has ended by itself.
func (w *world) boot(p *place) {
	if s := p.current(); s != nil {
		if s.Ended() == nil {
			return
		}
		w.log.add("%s had ended: %v", s.Name, s.Ended())
		w.crash(p)
	}
	p.put(w.AddAs(p.identity))
}

// later does something after a while, when the nemesis gets to it.
func (w *world) later(d time.Duration, name string, do func()) {
	at := boottime.Now() + d
	i := 0
	for i < len(w.due) && w.due[i].at <= at {
		i++
	}
	w.due = append(w.due[:i], append([]deed{{at, name, do}}, w.due[i:]...)...)
}

// catchUp does what is due until an instant.
func (w *world) catchUp(ctx context.Context, until time.Duration) {
	for len(w.due) > 0 && w.due[0].at <= until && ctx.Err() == nil {
		d := w.due[0]
		w.due = w.due[1:]
		idle(ctx, d.at)
		w.log.add("   end of: %s", d.name)
		d.do()
	}
	idle(ctx, until)
}

// idle lets time go by until an instant.
func idle(ctx context.Context, until time.Duration) {
	timer := time.NewTimer(until - boottime.Now())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// order has a node's administrator give commands. A node that does not answer in time may
// still obey later.
func (w *world) order(n *redistest.Server, commands ...string) {
	w.give(n, n.Client().Pipelined, commands)
}

// orderAtOnce is order in one transaction, which a node that is out of memory refuses.
func (w *world) orderAtOnce(n *redistest.Server, commands ...string) {
	w.give(n, n.Client().TxPipelined, commands)
}

type pipeline func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)

func (w *world) give(n *redistest.Server, through pipeline, commands []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := give(ctx, through, commands); err != nil {
		w.log.add("   %s: %s: %v", n.Addr(), strings.Join(commands, "; "), err)
	}
}

func give(ctx context.Context, through pipeline, commands []string) error {
	_, err := through(ctx, func(p redis.Pipeliner) error {
		for _, c := range commands {
			var args []any
			for word := range strings.FieldsSeq(c) {
				args = append(args, word)
			}
			p.Do(ctx, args...)
		}
		return nil
	})
	return err
}

// up reports whether a node's process runs, be it frozen or not.
func up(n *redistest.Server) bool { return n.PID() != 0 }

func freeze(n *redistest.Server) {
	if up(n) {
		n.Freeze()
	}
}

// revive starts a node that is down, without what it knew.
func revive(n *redistest.Server) {
	if !up(n) {
		n.Restart(true)
	}
}

// heal mends all there is, and starts everybody who does not run.
func (w *world) heal() {
	w.log.add("-- everything heals")
	for _, d := range w.due {
		d.do()
	}
	w.due = nil
	for _, n := range w.Nodes {
		n.Thaw()
		revive(n)
		w.restore(n)
	}
	for _, p := range w.places {
		if s := p.current(); s != nil {
			_ = s.Thaw()
		}
		w.boot(p)
		for _, l := range w.links(p) {
			l.Trap(nil)
			l.Mend()
		}
	}
}

// restore undoes whatever an administrator may have done to a node.
func (w *world) restore(n *redistest.Server) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), behaviour.Patience)
	defer cancel()
	if demoted(ctx, n) {
		n.Restart(true)
	}
	Expect(give(ctx, n.Client().Pipelined, []string{"CONFIG SET maxmemory 0 maxmemory-policy noeviction", restoreUser})).To(Succeed())
}

// demoted reports whether a node is or was a replica.
func demoted(ctx context.Context, n *redistest.Server) bool {
	GinkgoHelper()
	info, err := n.Client().InfoMap(ctx, "replication").Result()
	Expect(err).NotTo(HaveOccurred())
	r := info["Replication"]
	return r["role"] != "master" || r["second_repl_offset"] != "-1"
}

// timeline is what happened, for people.
type timeline struct {
	start time.Duration
	mu    sync.Mutex
	lines []deed // do is not used
}

func (t *timeline) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, deed{at: boottime.Now(), name: fmt.Sprintf(format, args...)})
}

// with is the timeline with the terms as the recorder saw them.
func (t *timeline) with(runs []recorder.Run) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := append([]deed{}, t.lines...)
	for _, r := range runs {
		lines = append(lines,
			deed{at: r.First.Received, name: fmt.Sprintf(">> %s is active with token %d", r.Who, r.Token)},
			deed{at: r.Last.Sent, name: fmt.Sprintf("<< %s was last active with token %d", r.Who, r.Token)})
	}
	return render(lines, t.start)
}
