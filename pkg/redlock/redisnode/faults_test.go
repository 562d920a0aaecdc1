package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onsi/gomega/gleak"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("a connection", func() {
	var (
		ctx    = context.Background()
		server *redistest.Server
	)
	BeforeEach(func() { server = redistest.Start(GinkgoTB()) })

	It("is replaced before it is needed when the server closed it", func() {
		node := open(redisnode.Config{Address: server.URL()})
		ask(node, take("a"))
		for range 10 {
			Expect(server.Client().ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Val()).To(BeEquivalentTo(1))
			Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Extended))
		}
	})

	It("is replaced while nobody asks", func() {
		node := open(redisnode.Config{Address: server.URL(), ClientName: "podlease-test"})
		id := func() string {
			for line := range strings.SplitSeq(server.Client().ClientList(ctx).Val(), "\n") {
				if strings.Contains(line, "name=podlease-test") {
					return strings.Fields(line)[0]
				}
			}
			return ""
		}
		ask(node, probe())
		first := id()
		Expect(first).NotTo(BeEmpty())
		server.Client().ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
		Eventually(id).ShouldNot(BeElementOf("", first))
	})

	It("fails at once while the server is away, and comes back", func() {
		node := open(redisnode.Config{Address: server.URL()})
		before := ask(node, take("a")).RunID
		server.Kill()
		Eventually(func() error {
			_, err := do(node, take("a"))
			return err
		}).Should(And(beRefused(redlock.KindConnection), MatchError(ContainSubstring("nothing listens there"))))
		server.Restart(true)
		var reply redlock.Reply
		Eventually(func() (err error) {
			reply, err = do(node, take("a"))
			return err
		}).Should(Succeed())
		Expect(reply.RunID).NotTo(Equal(before))
	})

	It("carries more requests than may be under way at once, each lock's in order", func() {
		node := open(redisnode.Config{Address: server.URL()})
		var pending sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[string][]redlock.Outcome{}
		for i := range 300 {
			lock := fmt.Sprintf("podlease:%d", i%3)
			for _, req := range []redlock.Request{take("a"), take("a"), release("a")} {
				req.Keys = redlock.Keys{Lock: lock, Fence: lock + ":fence"}
				pending.Add(1)
				node.Send(ctx, req, func(reply redlock.Reply, err error) {
					defer pending.Done()
					mu.Lock()
					defer mu.Unlock()
					outcomes[lock] = append(outcomes[lock], reply.Outcome)
				})
			}
		}
		pending.Wait()
		for lock, got := range outcomes {
			for i, outcome := range got {
				Expect(outcome).To(Equal([]redlock.Outcome{redlock.Taken, redlock.Extended, redlock.Released}[i%3]), "%s, %d", lock, i)
			}
		}
		Expect(outcomes).To(HaveLen(3))
	})

	DescribeTable("stays when a request is refused", func(upset func()) {
		var dials atomic.Int32
		node := open(redisnode.Config{Address: server.URL(), Dial: func(ctx context.Context, network, endpoint string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, endpoint)
		}})
		other := take("b", func(r *redlock.Request) { r.Keys = redlock.Keys{Lock: "podlease:other", Fence: "podlease:other:fence"} })
		ask(node, other)
		upset()
		for range 20 {
			refused, fine := start(node, patience, take("a")), start(node, patience, other)
			Expect((<-refused).err).To(MatchError(redlock.ErrNotSent))
			a := <-fine
			Expect(a.err).NotTo(HaveOccurred())
			Expect(a.reply.Outcome).To(Equal(redlock.Extended))
		}
		Expect(dials.Load()).To(BeEquivalentTo(1))
	},
		Entry("because the key is a list", func() { server.Client().RPush(ctx, keys.Lock, "x") }),
		Entry("because the memory is full", func() { server.Client().ConfigSet(ctx, "maxmemory", "1") }),
	)

	It("leaves the outcome open of what was sent behind the request that ends it", func() {
		greeted, answered := make(chan struct{}), false
		fake, err := newFakeServer(answering(func([]string) string {
			if answered {
				return "" // it may have done it, and is gone
			}
			answered = true
			return "-READONLY You can't write against a read only replica.\r\n"
		}))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fake.close)
		node := open(redisnode.Config{Address: fake.addr(), Dial: func(ctx context.Context, network, endpoint string) (net.Conn, error) {
			<-greeted
			return new(net.Dialer).DialContext(ctx, network, endpoint)
		}})
		first, second := start(node, patience, take("a")), start(node, patience, take("b"))
		close(greeted)
		Expect((<-first).err).To(beRefused(redlock.KindReadOnly))
		Expect((<-second).err).To(And(HaveOccurred(), Not(MatchError(redlock.ErrNotSent))))
	})

	It("refuses a request that no socket takes at once", func() {
		node := open(redisnode.Config{Address: server.URL()})
		_, err := do(node, take("a", func(r *redlock.Request) { r.Keys.Lock = strings.Repeat("x", 1<<20) }))
		Expect(err).To(And(MatchError(redlock.ErrNotSent), MatchError(ContainSubstring("may have 16384 together"))))
	})

	It("works over a Unix socket", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUnixSocket())
		node := open(redisnode.Config{Address: server.URL()})
		Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Taken))
		server.Restart(false)
		Eventually(func() error {
			_, err := do(node, take("a"))
			return err
		}).Should(Succeed())
	})

	It("uses the database of the address", func() {
		node := open(redisnode.Config{Address: "redis://" + server.Addr() + "/3"})
		ask(node, take("a"))
		Expect(server.Client().Exists(ctx, keys.Lock).Val()).To(BeZero())
		Expect(server.Client().Do(ctx, "info", "keyspace").String()).To(ContainSubstring("db3"))
	})

	It("speaks to a server that knows neither HELLO nor INFO", func() {
		fake, err := newFakeServer(answering(func([]string) string { return outcome(1) }))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fake.close)
		node := open(redisnode.Config{Address: fake.addr()})
		Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Taken))
		_, known := node.Fitness()
		Expect(known).To(BeFalse())
	})
})

var _ = Describe("a frozen server", func() {
	It("leaves the outcome open, then costs nothing, then is used again", func() {
		server := redistest.Start(GinkgoTB())
		node := open(redisnode.Config{Address: server.URL(), NodeTimeout: 100 * time.Millisecond, DialTimeout: 200 * time.Millisecond})
		Eventually(func() error {
			_, err := do(node, take("a"))
			return err
		}).Should(Succeed())

		server.Freeze()
		_, err := do(node, take("a"))
		Expect(err).To(And(beKind(redlock.KindTimeout), Not(MatchError(redlock.ErrNotSent))))
		Eventually(func() error {
			_, err := do(node, take("a"))
			return err
		}).Should(beRefused(redlock.KindTimeout))

		By("sending it a lot")
		goroutines := runtime.NumGoroutine()
		var pending sync.WaitGroup
		var refused atomic.Int64
		for range 20_000 {
			pending.Add(1)
			node.Send(context.Background(), take("a"), func(_ redlock.Reply, err error) {
				if errors.Is(err, redlock.ErrNotSent) {
					refused.Add(1)
				}
				pending.Done()
			})
		}
		pending.Wait()
		Expect(refused.Load()).To(BeEquivalentTo(20_000))
		Expect(runtime.NumGoroutine()).To(BeNumerically("<=", goroutines+5))

		server.Thaw()
		Eventually(func() error {
			_, err := do(node, take("a"))
			return err
		}).Should(Succeed())
	})

	It("is told apart from one that there was no connection to yet", func() {
		server := redistest.Start(GinkgoTB())
		cfg := redisnode.Config{Address: server.URL(), NodeTimeout: 100 * time.Millisecond, DialTimeout: time.Hour}
		node := open(cfg)
		Eventually(func() error {
			_, err := do(node, take("a"))
			return err
		}).Should(Succeed())
		server.Freeze()
		_, err := do(node, take("a"))
		Expect(err).To(beKind(redlock.KindTimeout))
		Eventually(func() error { return (<-start(node, 100*time.Millisecond, take("a"))).err }).Should(And(beRefused(redlock.KindTimeout), MatchError(ContainSubstring("the server, or the network to it, is stuck or too slow"))))

		first := <-start(open(cfg), 100*time.Millisecond, take("b"))
		Expect(first.err).To(And(beRefused(redlock.KindTimeout), MatchError(HaveSuffix("no connection yet")), MatchError(context.DeadlineExceeded)))
	})

	It("does not set a key later than it may", func() {
		server := redistest.Start(GinkgoTB())
		node := open(redisnode.Config{Address: server.URL(), NodeTimeout: 50 * time.Millisecond})
		id := func() (reply redlock.Reply, err error) { return do(node, probe()) }
		Eventually(id).Should(HaveField("Outcome", redlock.Absent))
		now, err := id()
		Expect(err).NotTo(HaveOccurred())

		server.Freeze()
		limit := now.Time + (200 * time.Millisecond).Microseconds()
		_, err = do(node, take("a", func(r *redlock.Request) { r.NotAfter = limit }))
		Expect(err).To(beKind(redlock.KindTimeout))
		Eventually(time.Now).Should(BeTemporally(">", time.UnixMicro(limit)))
		server.Thaw()

		Eventually(func() error {
			_, err := do(node, release("a"))
			return err
		}).Should(Succeed())
		Expect(server.Client().Exists(context.Background(), keys.Lock).Val()).To(BeZero())
	})

	It("does not hold up the end", func() {
		server := redistest.Start(GinkgoTB())
		node, err := redisnode.New(redisnode.Config{Address: server.URL(), NodeTimeout: time.Hour, DialTimeout: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		ask(node, probe())
		server.Freeze()
		sent := start(node, time.Hour, take("a"))
		Expect(node.Close()).To(Succeed())
		Expect((<-sent).err).To(HaveOccurred())

		stuck, err := redisnode.New(redisnode.Config{Address: server.URL(), NodeTimeout: time.Hour, DialTimeout: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		waits := start(stuck, time.Hour, take("a"))
		Expect(stuck.Close()).To(Succeed())
		Expect((<-waits).err).To(MatchError(redlock.ErrNotSent))
	})
})

var _ = Describe("the script is forgotten within a batch", func() {
	noScript := "-NOSCRIPT No matching script. Please use EVAL.\r\n"

	// both sends two requests as one batch: they wait for the same connection.
	both := func(script func([]string) string) (first, second answer, evals [][]string) {
		greeted := make(chan struct{})
		fake, err := newFakeServer(answering(script))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fake.close)
		node := open(redisnode.Config{
			Address: fake.addr(),
			Dial: func(ctx context.Context, network, endpoint string) (net.Conn, error) {
				<-greeted
				return new(net.Dialer).DialContext(ctx, network, endpoint)
			},
		})
		a := start(node, patience, take("a"))
		b := start(node, patience, release("a"))
		close(greeted)
		return <-a, <-b, fake.commands("eval")
	}

	It("repeats both in order when neither ran, and sends the script once", func() {
		known, ran := false, []string{}
		a, b, evals := both(func(command []string) string {
			known = known || strings.EqualFold(command[0], "eval")
			if !known {
				return noScript
			}
			ran = append(ran, command[5])
			return outcome(map[string]int{"take": 1, "release": 6}[command[5]])
		})
		Expect(a.err).NotTo(HaveOccurred())
		Expect(a.reply.Outcome).To(Equal(redlock.Taken))
		Expect(b.err).NotTo(HaveOccurred())
		Expect(b.reply.Outcome).To(Equal(redlock.Released))
		Expect(ran).To(Equal([]string{"take", "release"}))
		Expect(evals).To(HaveLen(1))
	})

	It("never repeats a take after a release that ran", func() {
		n := 0
		a, b, evals := both(func([]string) string {
			n++
			if n == 1 {
				return noScript
			}
			return outcome(7)
		})
		Expect(a.err).To(MatchError(redlock.ErrNotSent))
		Expect(b.reply.Outcome).To(Equal(redlock.Gone))
		Expect(evals).To(BeEmpty())
	})
})

var _ = Describe("the end", func() {
	It("answers everything and leaves nothing", func() {
		server := redistest.Start(GinkgoTB())
		server.Client().Ping(context.Background())
		before, files := gleak.Goroutines(), openFiles()
		for range 5 {
			node, err := redisnode.New(redisnode.Config{Address: server.URL()})
			Expect(err).NotTo(HaveOccurred())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				node.Subscribe(context.Background(), keys.Channel, func(redlock.Notice) {})
			}()
			_, err = do(node, take("a"))
			Expect(err).NotTo(HaveOccurred())
			server.Client().ClientKillByFilter(context.Background(), "SKIPME", "yes")
			_, _ = do(node, take("a"))
			Expect(node.Close()).To(Succeed())
			Eventually(ended).Should(BeClosed())

			_, err = do(node, take("a"))
			Expect(err).To(And(MatchError(redlock.ErrNotSent), MatchError(redisnode.ErrClosed)))
			Expect(node.Close()).To(Succeed())
		}
		Eventually(gleak.Goroutines).ShouldNot(gleak.HaveLeaked(before))
		Eventually(openFiles).Should(BeNumerically("<=", files))
	})
})

func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	Expect(err).NotTo(HaveOccurred())
	return len(entries)
}
