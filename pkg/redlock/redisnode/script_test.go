package redisnode_test

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("the lock script on Redis", func() {
	lockScript(func() (string, *redis.Client) {
		server := redistest.Start(GinkgoTB())
		return server.URL(), server.Client()
	})
})

var _ = Describe("the lock script on miniredis", func() {
	lockScript(func() (string, *redis.Client) {
		server := miniredis.RunT(GinkgoTB())
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		DeferCleanup(client.Close)
		return server.Addr(), client
	})
})

func lockScript(server func() (string, *redis.Client)) {
	var (
		ctx   = context.Background()
		admin *redis.Client
		node  *redisnode.Node
	)
	BeforeEach(func() {
		var addr string
		addr, admin = server()
		node = open(redisnode.Config{Address: addr})
	})
	stored := func(key string) string {
		GinkgoHelper()
		value, err := admin.Get(ctx, key).Result()
		Expect(err).NotTo(HaveOccurred())
		return value
	}

	Describe("take", func() {
		It("sets an absent key with an expiry", func() {
			reply := ask(node, take("a"))
			Expect(reply.Outcome).To(Equal(redlock.Taken))
			Expect(reply.RunID).NotTo(BeEmpty())
			Expect(time.UnixMicro(reply.Time)).To(BeTemporally("~", time.Now(), patience))
			Expect(stored(keys.Lock)).To(Equal("a"))
			Expect(admin.PTTL(ctx, keys.Lock).Val()).To(And(BeNumerically(">", time.Minute-patience), BeNumerically("<=", time.Minute)))
		})

		It("extends its own key, also one that lost its expiry", func() {
			ask(node, take("a"))
			Expect(admin.Persist(ctx, keys.Lock).Err()).NotTo(HaveOccurred())
			Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Extended))
			Expect(admin.PTTL(ctx, keys.Lock).Val()).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Minute)))
		})

		It("tells who holds the key and for how long", func() {
			ask(node, take("a"))
			reply := ask(node, take("b", func(r *redlock.Request) { r.TTL = time.Hour }))
			Expect(reply.Outcome).To(Equal(redlock.Held))
			Expect(reply.Owner).To(Equal("a"))
			Expect(reply.PTTL).To(And(BeNumerically(">", time.Minute-patience), BeNumerically("<=", time.Minute)))
			Expect(stored(keys.Lock)).To(Equal("a"))
		})

		It("tells of a foreign key that never expires", func() {
			Expect(admin.Set(ctx, keys.Lock, "stuck", 0).Err()).NotTo(HaveOccurred())
			reply := ask(node, take("b"))
			Expect(reply.Outcome).To(Equal(redlock.Held))
			Expect(reply.PTTL).To(Equal(redlock.NoExpiry))
		})

		It("does not set the key after its time, but renews it", func() {
			late := func(r *redlock.Request) { r.NotAfter = time.Now().Add(-time.Hour).UnixMicro() }
			inTime := func(r *redlock.Request) { r.NotAfter = time.Now().Add(time.Hour).UnixMicro() }
			reply := ask(node, take("a", late, fence(5)))
			Expect(reply.Outcome).To(Equal(redlock.Late))
			Expect(reply.Time).To(BeNumerically(">", time.Now().Add(-patience).UnixMicro()))
			Expect(admin.Exists(ctx, keys.Lock, keys.Fence).Val()).To(BeZero())
			Expect(ask(node, take("a", inTime)).Outcome).To(Equal(redlock.Taken))
			Expect(ask(node, take("a", late)).Outcome).To(Equal(redlock.Extended))
		})
	})

	Describe("a young server", func() {
		It("grants no new key", func() {
			reply := ask(node, take("a", quarantine(time.Hour), fence(5)))
			Expect(reply.Outcome).To(Equal(redlock.Absent))
			Expect(reply.Young).To(BeTrue())
			Expect(admin.Exists(ctx, keys.Lock, keys.Fence).Val()).To(BeZero())
		})

		It("grants one to a caller that watched it", func() {
			id := ask(node, probe()).RunID
			reply := ask(node, take("a", quarantine(time.Hour), func(r *redlock.Request) { r.MatureRunID = id }))
			Expect(reply.Outcome).To(Equal(redlock.Taken))
			Expect(reply.Young).To(BeFalse())
		})

		It("grants none to a caller that watched another", func() {
			reply := ask(node, take("a", quarantine(time.Hour), func(r *redlock.Request) { r.MatureRunID = "another" }))
			Expect(reply.Outcome).To(Equal(redlock.Absent))
		})

		It("gives a key back to the holder of a vote, and stays young", func() {
			reply := ask(node, take("a", quarantine(time.Hour), func(r *redlock.Request) { r.HaveVote = true }))
			Expect(reply.Outcome).To(Equal(redlock.Taken))
			Expect(reply.Young).To(BeTrue())
		})

		It("renews", func() {
			ask(node, take("a"))
			Expect(ask(node, take("a", quarantine(time.Hour))).Outcome).To(Equal(redlock.Extended))
		})

		It("is not believed to be old without having been up", func() {
			reply := ask(node, take("a", quarantine(time.Hour), func(r *redlock.Request) { r.Unseen = true }))
			Expect(reply.Outcome).To(Equal(redlock.Absent))
		})
	})

	Describe("the fencing counter", func() {
		It("grows with each new key", func() {
			Expect(ask(node, take("a", fence(100))).Fence).To(BeEquivalentTo(100))
			ask(node, release("a"))
			Expect(ask(node, take("b", fence(7))).Fence).To(BeEquivalentTo(101))
			ask(node, release("b"))
			Expect(ask(node, take("c", fence(500))).Fence).To(BeEquivalentTo(500))
			Expect(stored(keys.Fence)).To(Equal("500"))
			Expect(admin.PTTL(ctx, keys.Fence).Val()).To(BeEquivalentTo(-1))
		})

		It("is raised by the holder, and never lowered", func() {
			ask(node, take("a", fence(100)))
			Expect(ask(node, take("a", fence(120))).Fence).To(BeEquivalentTo(120))
			Expect(ask(node, take("a", fence(90))).Fence).To(BeEquivalentTo(120))
			Expect(stored(keys.Fence)).To(Equal("120"))
		})

		It("is told to others, who do not change it", func() {
			ask(node, take("a", fence(100)))
			Expect(ask(node, take("b", fence(900))).Fence).To(BeEquivalentTo(100))
			Expect(ask(node, probe()).Fence).To(BeEquivalentTo(100))
			Expect(stored(keys.Fence)).To(Equal("100"))
		})

		It("is left alone without a proposal", func() {
			Expect(ask(node, take("a")).Fence).To(BeZero())
			Expect(ask(node, take("a")).Fence).To(BeZero())
			Expect(admin.Exists(ctx, keys.Fence).Val()).To(BeZero())
		})

		It("need not exist", func() {
			alone := func(r *redlock.Request) { r.Keys.Fence = "" }
			Expect(ask(node, take("a", alone)).Outcome).To(Equal(redlock.Taken))
			Expect(ask(node, take("a", alone)).Outcome).To(Equal(redlock.Extended))
		})

		DescribeTable("keeps every digit", func(n uint64, text string) {
			Expect(ask(node, take("a", fence(n))).Fence).To(Equal(n))
			Expect(stored(keys.Fence)).To(Equal(text))
			Expect(ask(node, take("a", fence(n))).Fence).To(Equal(n))
			Expect(ask(node, probe()).Fence).To(Equal(n))
		},
			Entry("of a time", uint64(1764495600123457), "1764495600123457"),
			Entry("of the largest", uint64(redisnode.MaxFence), "9006099743113216"),
			Entry("of the one before", uint64(redisnode.MaxFence-1), "9006099743113215"),
		)

		It("refuses a proposal that is too large", func() {
			_, err := do(node, take("a", fence(redisnode.MaxFence+1)))
			Expect(err).To(beRefused(redlock.KindOther))
			Expect(err).To(MatchError(ContainSubstring("9006099743113217")))
		})

		It("does not pass its end", func() {
			ask(node, take("a", fence(redisnode.MaxFence)))
			ask(node, release("a"))
			_, err := do(node, take("b", fence(1)))
			Expect(err).To(beRefused(redlock.KindWrongType))
			Expect(err).To(MatchError(ContainSubstring(keys.Fence)))
			Expect(admin.Exists(ctx, keys.Lock).Val()).To(BeZero())
		})

		DescribeTable("that is no counter", func(spoil func()) {
			spoil()
			_, err := do(node, take("a", fence(5)))
			Expect(err).To(beRefused(redlock.KindWrongType))
			Expect(err).To(MatchError(And(ContainSubstring(keys.Fence), ContainSubstring("remove it"))))
			Expect(admin.Exists(ctx, keys.Lock).Val()).To(BeZero())

			By("costing nobody a lease who has it")
			Expect(admin.Set(ctx, keys.Lock, "a", time.Second).Err()).NotTo(HaveOccurred())
			reply := ask(node, take("a", fence(5)))
			Expect(reply.Outcome).To(Equal(redlock.Extended))
			Expect(reply.Fence).To(BeZero())
		},
			Entry("but a word", func() { admin.Set(ctx, keys.Fence, "many", 0) }),
			Entry("but negative", func() { admin.Set(ctx, keys.Fence, "-5", 0) }),
			Entry("but a fraction", func() { admin.Set(ctx, keys.Fence, "1.5", 0) }),
			Entry("but above the limit", func() { admin.Set(ctx, keys.Fence, "9007199254740993", 0) }),
			Entry("but endless", func() { admin.Set(ctx, keys.Fence, "99999999999999999999", 0) }),
			Entry("but empty", func() { admin.Set(ctx, keys.Fence, "", 0) }),
			Entry("but a list", func() { admin.RPush(ctx, keys.Fence, "5") }),
		)
	})

	Describe("probe", func() {
		It("changes nothing", func() {
			Expect(ask(node, probe()).Outcome).To(Equal(redlock.Absent))
			Expect(admin.DBSize(ctx).Val()).To(BeZero())
			ask(node, take("a"))
			Expect(admin.PExpire(ctx, keys.Lock, time.Second*30).Err()).NotTo(HaveOccurred())
			own := probe()
			own.Token = "a"
			reply := ask(node, own)
			Expect(reply.Outcome).To(Equal(redlock.Held))
			Expect(reply.Owner).To(Equal("a"))
			Expect(reply.PTTL).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
		})
	})

	Describe("release", func() {
		var notices *redis.PubSub
		BeforeEach(func() {
			notices = admin.Subscribe(ctx, keys.Channel)
			DeferCleanup(notices.Close)
			Expect(notices.Receive(ctx)).To(BeAssignableToTypeOf(&redis.Subscription{}))
		})

		It("deletes its own key and tells the channel", func() {
			ask(node, take("a"))
			Expect(ask(node, release("a")).Outcome).To(Equal(redlock.Released))
			Expect(admin.Exists(ctx, keys.Lock).Val()).To(BeZero())
			Eventually(notices.Channel()).Should(Receive(HaveField("Payload", "bye")))
		})

		It("says gone the second time, without another notice", func() {
			ask(node, take("a"))
			ask(node, release("a"))
			Expect(ask(node, release("a")).Outcome).To(Equal(redlock.Gone))
			Expect(admin.Publish(ctx, keys.Channel, "end").Err()).NotTo(HaveOccurred())
			Eventually(notices.Channel()).Should(Receive(HaveField("Payload", "bye")))
			Eventually(notices.Channel()).Should(Receive(HaveField("Payload", "end")))
		})

		It("leaves a foreign key", func() {
			ask(node, take("a"))
			Expect(ask(node, release("b")).Outcome).To(Equal(redlock.Gone))
			Expect(stored(keys.Lock)).To(Equal("a"))
		})

		It("is silent when asked to", func() {
			ask(node, take("a"))
			quiet := release("a")
			quiet.Notice = ""
			Expect(ask(node, quiet).Outcome).To(Equal(redlock.Released))
			Expect(admin.Publish(ctx, keys.Channel, "end").Err()).NotTo(HaveOccurred())
			Eventually(notices.Channel()).Should(Receive(HaveField("Payload", "end")))
		})
	})

	DescribeTable("a key of another type", func(req redlock.Request) {
		Expect(admin.RPush(ctx, keys.Lock, "x").Err()).NotTo(HaveOccurred())
		_, err := do(node, req)
		Expect(err).To(beRefused(redlock.KindWrongType))
		Expect(err).To(MatchError(And(ContainSubstring(keys.Lock), ContainSubstring("remove it, or use another key prefix"))))
		Expect(admin.LLen(ctx, keys.Lock).Val()).To(BeEquivalentTo(1))
	},
		Entry("refuses a take", take("a", fence(5))),
		Entry("refuses a probe", probe()),
		Entry("refuses a release", release("a")),
	)

	DescribeTable("refuses a request without sense", func(req redlock.Request, text string) {
		_, err := do(node, req)
		Expect(err).To(beRefused(redlock.KindOther))
		Expect(err).To(MatchError(ContainSubstring(text)))
	},
		Entry("no TTL", take("a", func(r *redlock.Request) { r.TTL = 0 }), "TTL of 0s"),
		Entry("no token", take(""), "take without a token"),
		Entry("no key", redlock.Request{Op: redlock.OpProbe}, "lock key"),
		Entry("no operation", redlock.Request{Op: 9, Keys: keys, Token: "a"}, "Op(9)"),
	)

	It("keeps the order of what is sent at once", func() {
		for range 50 {
			taken := start(node, patience, take("a"))
			released := start(node, patience, release("a"))
			again := start(node, patience, take("b"))
			gone := start(node, patience, release("b"))
			Expect((<-taken).reply.Outcome).To(Equal(redlock.Taken))
			Expect((<-released).reply.Outcome).To(Equal(redlock.Released))
			Expect((<-again).reply.Outcome).To(Equal(redlock.Taken))
			Expect((<-gone).reply.Outcome).To(Equal(redlock.Released))
		}
	})

	It("comes back after SCRIPT FLUSH, in order", func() {
		ask(node, probe())
		for range 20 {
			Expect(admin.ScriptFlush(ctx).Err()).NotTo(HaveOccurred())
			taken := start(node, patience, take("a"))
			released := start(node, patience, release("a"))
			Expect((<-taken).reply.Outcome).To(Equal(redlock.Taken))
			Expect((<-released).reply.Outcome).To(Equal(redlock.Released))
		}
	})
}

var _ = Describe("a server that was never seen", func() {
	It("is mature when it has been up for a quarantine and a second", func() {
		server := redistest.Start(GinkgoTB())
		node := open(redisnode.Config{Address: server.URL()})
		unseen := func(r *redlock.Request) { r.Unseen = true }
		req := take("a", quarantine(time.Second), unseen)
		var reply redlock.Reply
		Eventually(func() redlock.Outcome {
			reply = ask(node, req)
			if reply.Outcome == redlock.Absent {
				Expect(reply.Uptime).To(BeNumerically("<", 2*time.Second))
			}
			return reply.Outcome
		}).Should(Equal(redlock.Taken))
		Expect(reply.Uptime).To(BeNumerically(">=", 2*time.Second))
		Expect(reply.Young).To(BeFalse())
	})
})
