package redisnode_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/link"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = DescribeTable("whether an absent key may be set does not hang on what the user may ask", func(without string) {
	ctx := context.Background()
	server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", redistest.MinimalRights+without))
	node := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("lease", "secret")})
	var known string
	watched := func(r *redlock.Request) { r.MatureRunID = known }
	another := func(r *redlock.Request) { r.MatureRunID = "another" }
	unseen := func(r *redlock.Request) { r.Unseen = true }
	voted := func(r *redlock.Request) { r.HaveVote = true }
	want := func(outcome redlock.Outcome, young bool, change ...func(*redlock.Request)) {
		GinkgoHelper()
		reply := ask(node, take("a", append(change, quarantine(time.Hour))...))
		Expect(reply.Outcome).To(Equal(outcome))
		Expect(reply.Young).To(Equal(young))
		known = reply.RunID
	}
	rules := func() {
		GinkgoHelper()
		server.Client().FlushDB(ctx)
		want(redlock.Absent, true)
		want(redlock.Absent, true, another)
		want(redlock.Absent, true, unseen)
		want(redlock.Taken, true, voted)
		want(redlock.Extended, true)
		want(redlock.Extended, false, watched)
		server.Client().FlushDB(ctx)
		want(redlock.Taken, false, watched)
	}
	rules()
	By("having forgotten the script")
	server.Client().ScriptFlush(ctx)
	rules()
	By("having been restarted")
	before := known
	server.Restart(true)
	Eventually(func() error {
		reply, err := do(node, take("a", quarantine(time.Hour), watched))
		if err == nil {
			Expect(reply.Outcome).To(Equal(redlock.Absent))
			Expect(reply.Young).To(BeTrue())
			Expect(reply.RunID).NotTo(Equal(before))
		}
		return err
	}).Should(Succeed())
	rules()
},
	Entry("with the rights of the documentation", ""),
	Entry("without INFO", " -info"),
	Entry("without SCRIPT LOAD", " -script|load"),
	Entry("without either", " -info -script|load"),
)

// switched is a connection through something that exchanges the server behind it.
type switched struct {
	net.Conn // to the first server

	mu     sync.Mutex
	second net.Conn
}

func (s *switched) now() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.second != nil {
		return s.second
	}
	return s.Conn
}

func (s *switched) to(second net.Conn) {
	s.mu.Lock()
	s.second = second
	s.mu.Unlock()
	_ = s.Close()
}

func (s *switched) Write(p []byte) (int, error) { return s.now().Write(p) }

func (s *switched) Read(p []byte) (int, error) {
	from := s.now()
	n, err := from.Read(p)
	if to := s.now(); err != nil && to != from {
		return to.Read(p)
	}
	return n, err
}

func (s *switched) SetReadDeadline(t time.Time) error { return s.now().SetReadDeadline(t) }

var _ = Describe("a server that became another under a connection", func() {
	It("is not taken for the one that was watched", func() {
		first, second := redistest.Start(GinkgoTB()), redistest.Start(GinkgoTB())
		conns := make(chan *switched, 1)
		node := open(redisnode.Config{Address: first.URL(), Dial: func(ctx context.Context, network, endpoint string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, endpoint)
			s := &switched{Conn: conn}
			conns <- s
			return s, err
		}})
		known := ask(node, probe()).RunID
		conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", second.Addr())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		(<-conns).to(conn)
		for range 3 {
			reply := ask(node, take("a", quarantine(time.Hour), func(r *redlock.Request) { r.MatureRunID = known }))
			Expect(reply.Outcome).To(Equal(redlock.Absent))
			Expect(reply.Young).To(BeTrue())
			Expect(reply.RunID).NotTo(Equal(known))
		}
	})
})

var _ = Describe("a connection that breaks again and again", func() {
	It("has each request answered once, with its own answer", func() {
		const locks, each = 4, 1000
		server := redistest.Start(GinkgoTB())
		way := link.Start(GinkgoTB(), server.Addr())
		node := open(redisnode.Config{Address: way.Addr()})
		ask(node, probe())
		var pending sync.WaitGroup
		var answered, twice, wrong, right atomic.Int64
		trouble := func(n int64) {
			switch {
			case n%97 == 0:
				way.Break()
			case n%61 == 0:
				server.Client().ScriptFlush(context.Background())
			}
		}
		for lock := range locks {
			key := fmt.Sprintf("podlease:%d", lock)
			pending.Go(func() {
				for i := range uint64(each) {
					// The counter tells which request an answer is for, and that none was
					// overtaken by a later one.
					req := take("a", fence(i+1))
					req.Keys = redlock.Keys{Lock: key, Fence: key + ":fence"}
					pending.Add(1)
					var calls atomic.Int32
					heard := make(chan struct{})
					node.Send(context.Background(), req, func(reply redlock.Reply, err error) {
						defer pending.Done()
						if calls.Add(1) > 1 {
							twice.Add(1)
							return
						}
						answered.Add(1)
						if err == nil {
							right.Add(1)
							if reply.Fence != i+1 {
								wrong.Add(1)
							}
						}
						close(heard)
					})
					if i%8 == 0 {
						<-heard
						trouble(answered.Load())
					}
				}
			})
		}
		pending.Wait()
		Expect(answered.Load()).To(BeEquivalentTo(locks * each))
		Expect(twice.Load()).To(BeZero())
		Expect(wrong.Load()).To(BeZero())
		Expect(right.Load()).To(BeNumerically(">", 0))
	})
})
