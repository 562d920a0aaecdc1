package redisnode_test

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The script for the first take of a token is another one, for speed only: whatever the
// server holds, it answers and leaves what the script for all takes does.
var _ = Describe("the first take of a token", func() {
	var (
		ctx   = context.Background()
		admin *redis.Client
		node  *redisnode.Node
	)
	BeforeEach(func() {
		server := redistest.Start(GinkgoTB())
		admin, node = server.Client(), open(redisnode.Config{Address: server.URL()})
	})
	fresh := func(r *redlock.Request) { r.Fresh = true }
	late := func(r *redlock.Request) { r.NotAfter = time.Now().Add(-time.Hour).UnixMicro() }
	inTime := func(r *redlock.Request) { r.NotAfter = time.Now().Add(time.Hour).UnixMicro() }

	// outcome is all that can be told apart afterwards.
	type outcome struct {
		reply redlock.Reply
		kind  redlock.ErrorKind
		said  string
		lock  string
		lives bool // with an expiry
		fence string
	}
	run := func(prepare func(), change ...func(*redlock.Request)) outcome {
		GinkgoHelper()
		Expect(admin.FlushDB(ctx).Err()).NotTo(HaveOccurred())
		ask(node, probe()) // the connection is there, and its scripts
		prepare()
		reply, err := do(node, take("a", change...))
		reply.Time, reply.PTTL = 0, reply.PTTL.Round(time.Minute)
		o := outcome{reply: reply, kind: kindOf(err)}
		if err != nil {
			o.said = err.Error()
		}
		o.lock, o.fence = admin.Get(ctx, keys.Lock).Val(), admin.Get(ctx, keys.Fence).Val()
		o.lives = admin.PTTL(ctx, keys.Lock).Val() > 0
		return o
	}
	set := func(key, value string) func() {
		return func() { Expect(admin.Set(ctx, key, value, 0).Err()).NotTo(HaveOccurred()) }
	}
	held := func() { Expect(admin.Set(ctx, keys.Lock, "other", time.Hour).Err()).NotTo(HaveOccurred()) }
	list := func(key string) func() {
		return func() { Expect(admin.RPush(ctx, key, "5").Err()).NotTo(HaveOccurred()) }
	}
	both := func(first, second func()) func() {
		return func() { first(); second() }
	}
	nothing := func() {}

	DescribeTable("is answered as any take", func(prepare func(), want redlock.Outcome, change ...func(*redlock.Request)) {
		usual := run(prepare, change...)
		first := run(prepare, append(change, fresh)...)
		Expect(first).To(Equal(usual))
		Expect(first.reply.Outcome).To(Equal(want))
	},
		Entry("with nothing there", nothing, redlock.Taken),
		Entry("with nothing there, and a proposal", nothing, redlock.Taken, fence(100)),
		Entry("in time", nothing, redlock.Taken, fence(100), inTime),
		Entry("late", nothing, redlock.Late, fence(100), late),
		Entry("late, where another has it", held, redlock.Held, fence(100), late),
		Entry("where another has it", held, redlock.Held, fence(100), inTime),
		Entry("where another has it, with a counter", both(held, set(keys.Fence, "70")), redlock.Held, fence(100)),
		Entry("where another has it, with no counter but a list", both(held, list(keys.Fence)), redlock.Held, fence(100)),
		Entry("where another has it, with a counter beyond all limits", both(held, set(keys.Fence, "9007199254740993")), redlock.Held, fence(100)),
		Entry("where another has it for ever", set(keys.Lock, "stuck"), redlock.Held, fence(100)),
		Entry("where the key is a list", list(keys.Lock), redlock.Outcome(0), fence(100)),
		Entry("with a smaller counter", set(keys.Fence, "99"), redlock.Taken, fence(100)),
		Entry("with the counter at the proposal", set(keys.Fence, "100"), redlock.Taken, fence(100)),
		Entry("with a larger counter", set(keys.Fence, "1764495600123457"), redlock.Taken, fence(100)),
		Entry("with the largest but one", set(keys.Fence, "9006099743113215"), redlock.Taken, fence(100)),
		Entry("with the largest", set(keys.Fence, "9006099743113216"), redlock.Outcome(0), fence(100)),
		Entry("with one that is too large", set(keys.Fence, "9006099743113217"), redlock.Outcome(0), fence(100)),
		Entry("with an endless one", set(keys.Fence, strings.Repeat("9", 20)), redlock.Outcome(0), fence(100)),
		Entry("with a word", set(keys.Fence, "many"), redlock.Outcome(0), fence(100)),
		Entry("with a negative number", set(keys.Fence, "-5"), redlock.Outcome(0), fence(100)),
		Entry("with a fraction", set(keys.Fence, "1.5"), redlock.Outcome(0), fence(100)),
		Entry("with an empty counter", set(keys.Fence, ""), redlock.Outcome(0), fence(100)),
		Entry("with a list for a counter", list(keys.Fence), redlock.Outcome(0), fence(100)),
		Entry("with the largest proposal", nothing, redlock.Taken, fence(redisnode.MaxFence)),
		Entry("without a counter's key", nothing, redlock.Taken, func(r *redlock.Request) { r.Keys.Fence = "" }),
		Entry("by who has not watched the server", nothing, redlock.Absent, fence(100), quarantine(time.Hour)),
	)

	It("is refused without a trace where the counter may not be written", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("app", "secret", "+@all ~"+keys.Lock+" &*"))
		node := open(redisnode.Config{Address: strings.Replace(server.URL(), "://", "://app@", 1),
			Credentials: func(context.Context) (string, string, error) { return "app", "secret", nil }})
		ask(node, redlock.Request{Op: redlock.OpProbe, Keys: redlock.Keys{Lock: keys.Lock}})
		_, err := do(node, take("a", fence(5), fresh))
		Expect(err).To(beKind(redlock.KindPermission))
		Expect(server.Client().Exists(ctx, keys.Lock).Val()).To(BeZero())
	})

	It("costs three calls from the script", func() {
		calls := func() map[string]string {
			counted := map[string]string{}
			for line := range strings.SplitSeq(admin.Info(ctx, "commandstats").Val(), "\r\n") {
				name, rest, _ := strings.Cut(line, ":calls=")
				counted[strings.TrimPrefix(name, "cmdstat_")], _, _ = strings.Cut(rest, ",")
			}
			return counted
		}
		ask(node, probe())
		Expect(admin.ConfigResetStat(ctx).Err()).NotTo(HaveOccurred())
		ask(node, take("a", fence(100), fresh))
		Expect(calls()).To(And(HaveKeyWithValue("time", "1"), HaveKeyWithValue("set", "2"), Not(HaveKey("get"))))
	})
})
