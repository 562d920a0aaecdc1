package redisnode_test

import (
	"context"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// subscribe delivers notices until the spec ends.
func subscribe(node redlock.Node) <-chan redlock.Notice {
	ctx, cancel := context.WithCancel(context.Background())
	notices := make(chan redlock.Notice, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		node.Subscribe(ctx, keys.Channel, func(n redlock.Notice) { notices <- n })
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(BeClosed())
	})
	return notices
}

var _ = Describe("a subscription", func() {
	var (
		ctx    = context.Background()
		server *redistest.Server
		node   *redisnode.Node
	)
	BeforeEach(func() {
		server = redistest.Start(GinkgoTB())
		node = open(redisnode.Config{Address: server.URL()})
	})

	It("delivers, and says when it broke and when it is back", func() {
		notices := subscribe(node)
		Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeSubscribed})))
		ask(node, take("a"))
		ask(node, release("a"))
		Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeMessage, Message: "bye"})))
		for range 3 {
			server.Client().ClientKillByFilter(ctx, "TYPE", "pubsub")
			Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeLost})))
			Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeSubscribed})))
		}
	})

	It("hears announcements, which touch nothing", func() {
		notices := subscribe(node)
		Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeSubscribed})))
		ask(node, redlock.Request{Op: redlock.OpAnnounce, Keys: keys, Notice: "priority 7"})
		Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeMessage, Message: "priority 7"})))
		Expect(server.Client().DBSize(ctx).Val()).To(BeZero())
	})

	It("waits for a server that is away", func() {
		server.Kill()
		notices := subscribe(node)
		server.Restart(true)
		Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeSubscribed})))
	})

	It("ends with its context, also when the server is frozen", func() {
		server.Freeze()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			node.Subscribe(ctx, keys.Channel, func(redlock.Notice) {})
		}()
		Consistently(ended, "50ms").ShouldNot(BeClosed())
		cancel()
		Eventually(ended).Should(BeClosed())
	})

	It("delivers nothing where it is forbidden", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", minimal+" -subscribe"))
		node := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("lease", "secret")})
		notices := subscribe(node)
		Eventually(func() string { return server.Client().Info(ctx, "commandstats").Val() }).Should(ContainSubstring("cmdstat_subscribe:calls=0"))
		Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Taken))
		Expect(notices).NotTo(Receive())
	})
})
