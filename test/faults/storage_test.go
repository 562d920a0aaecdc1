package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// storage is a register of its own Redis server, which nothing happens to. It keeps the
// greatest token that it was accessed with, and refuses smaller ones: to write with, and
// to read with, too. Otherwise what a new holder has read could still be overwritten by
// the old one, until the new one writes.
type storage struct {
	client    *redis.Client
	unchecked bool

	mu      sync.Mutex
	history []porcupine.Operation
	err     error // of an access that should have worked
}

var access = redis.NewScript(`
local token, op, value, unchecked = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
if unchecked ~= '1' and token < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then return false end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
if op == 'write' then redis.call('HSET', KEYS[1], 'value', value) end
return tonumber(redis.call('HGET', KEYS[1], 'value') or 0)`)

func newStorage(unchecked bool) *storage {
	GinkgoHelper()
	return &storage{client: redistest.Start(GinkgoTB()).Client(), unchecked: unchecked}
}

// result is what an increment came to.
type result struct {
	refused bool
	value   int
}

// increment reads with a token, lets time go by, and writes one more with it. That is one
// operation of the history.
func (s *storage) increment(who int, token uint64, pause func()) (result, error) {
	call := boottime.Now()
	out, err := s.steps(token, pause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
		return out, err
	}
	s.history = append(s.history, porcupine.Operation{
		ClientId: who, Input: token, Call: int64(call), Output: out, Return: int64(boottime.Now()),
	})
	return out, nil
}

func (s *storage) steps(token uint64, pause func()) (result, error) {
	value, err := s.do(token, "read", 0)
	if err != nil || value < 0 {
		return result{refused: true}, err
	}
	pause()
	value, err = s.do(token, "write", value+1)
	return result{refused: value < 0, value: value}, err
}

// do accesses the register. The value is negative when it refused.
func (s *storage) do(token uint64, op string, value int) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), behaviour.Patience)
	defer cancel()
	unchecked := 0
	if s.unchecked {
		unchecked = 1
	}
	got, err := access.Run(ctx, s.client, []string{"register"}, token, op, value, unchecked).Int()
	if err == redis.Nil { //nolint:errorlint // go-redis returns it as it is
		return -1, nil
	}
	return got, err
}

// counter is what increments do: each that was not refused makes one more of what the one
// before it made.
var counter = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, _, output any) (bool, any) {
		if r := output.(result); !r.refused {
			return r.value == state.(int)+1, r.value
		}
		return true, state
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("token %v: %+v", input, output) },
}

// judgement is what the history of storage says.
type judgement struct {
	linearizable      porcupine.CheckResult
	accepted, refused int
}

func (s *storage) judge() judgement {
	s.mu.Lock()
	defer s.mu.Unlock()
	Expect(s.err).NotTo(HaveOccurred(), "storage")
	j := judgement{linearizable: porcupine.CheckOperationsTimeout(counter, s.history, behaviour.Patience)}
	for _, op := range s.history {
		if op.Output.(result).refused {
			j.refused++
		} else {
			j.accepted++
		}
	}
	return j
}

// writers are the clients of the candidates: each asks its own for the token, and
// increments the register with it, now and then long after it asked.
type writers struct {
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// write starts a client at each place.
func (w *world) write(seed uint64) {
	ctx, stop := context.WithCancel(context.Background())
	w.writing = &writers{ctx: ctx, stop: stop}
	DeferCleanup(w.writing.end)
	for i, p := range w.places {
		c := &client{who: i, place: p, storage: w.storage, ttl: w.TTL, rng: rand.New(rand.NewPCG(seed, uint64(i+1)))}
		w.writing.running.Go(func() { c.work(ctx) })
	}
}

func (w *writers) end() {
	w.stop()
	w.running.Wait()
}

type client struct {
	who     int
	place   *place
	storage *storage
	ttl     time.Duration
	rng     *rand.Rand
}

func (c *client) work(ctx context.Context) {
	for ctx.Err() == nil {
		token := c.ask(ctx)
		if token == 0 {
			idle(ctx, boottime.Now()+10*time.Millisecond)
			continue
		}
		c.pause(ctx)
		if _, err := c.storage.increment(c.who, token, func() { c.pause(ctx) }); err != nil {
			return
		}
	}
}

// ask asks the own candidate for its token, 0 when it is not active.
func (c *client) ask(ctx context.Context) uint64 {
	s := c.place.current()
	if s == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	doc, err := s.Leadership(ctx)
	if err != nil || !doc.Active {
		return 0
	}
	return doc.FencingToken
}

// pause is short, but once in a while longer than a lease.
func (c *client) pause(ctx context.Context) {
	d := time.Duration(c.rng.Int64N(int64(10 * time.Millisecond)))
	if c.rng.IntN(30) == 0 {
		d = time.Duration(c.rng.Int64N(int64(2 * c.ttl)))
	}
	idle(ctx, boottime.Now()+d)
}
