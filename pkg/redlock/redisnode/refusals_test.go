package redisnode_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// minimal is what a user needs, and no more.
const minimal = "-@all +evalsha +eval +script|load +get +set +pexpire +pttl +del +publish +subscribe +ping " +
	"+hello +time +info +client|id +client|setname ~podlease:* &podlease:*"

func credentials(user, password string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) { return user, password, nil }
}

// failure asks until the node knows why it cannot.
func failure(node *redisnode.Node, req redlock.Request) error {
	_, err := do(node, req)
	return err
}

var _ = Describe("access control", func() {
	ctx := context.Background()

	It("needs no more than the minimal rules", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", minimal))
		node := open(redisnode.Config{Address: "redis://lease@" + server.Addr(), Credentials: credentials("", "secret"), ClientName: "me"})
		notices := subscribe(node)
		Eventually(notices).Should(Receive(HaveField("Kind", redlock.NoticeSubscribed)))
		Expect(ask(node, take("a", fence(5))).Outcome).To(Equal(redlock.Taken))
		Expect(ask(node, take("a", fence(6))).Outcome).To(Equal(redlock.Extended))
		Expect(ask(node, take("b")).Outcome).To(Equal(redlock.Held))
		Expect(ask(node, release("a")).Outcome).To(Equal(redlock.Released))
		Eventually(notices).Should(Receive(Equal(redlock.Notice{Kind: redlock.NoticeMessage, Message: "bye"})))
		reply := ask(node, probe())
		Expect(reply.RunID).To(HaveLen(40))
		reason, known := node.Fitness()
		Expect(reason).To(BeEmpty())
		Expect(known).To(BeTrue())
		Expect(server.Client().Do(ctx, "acl", "log").Slice()).To(BeEmpty())
	})

	It("logs in again once the password is right, without being asked to", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", minimal))
		var password atomic.Value
		password.Store("wrong")
		node := open(redisnode.Config{Address: server.Addr(), Credentials: func(context.Context) (string, string, error) {
			return "lease", password.Load().(string), nil
		}})
		takes := func() error { return failure(node, take("a")) }
		Eventually(takes).Should(beRefused(redlock.KindAuth))
		password.Store("secret")
		Eventually(takes).Should(Succeed())

		By("a password that changes on the server before it does in the file")
		server.Client().Do(ctx, "ACL", "SETUSER", "lease", "resetpass", ">next")
		server.Client().ClientKillByFilter(ctx, "USER", "lease")
		Eventually(takes).Should(beRefused(redlock.KindAuth))
		Consistently(takes, "300ms").Should(beRefused(redlock.KindAuth))
		password.Store("next")
		Eventually(takes).Should(Succeed())
	})

	It("goes without INFO: the connection stands for the server", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", minimal+" -info -script|load"))
		node := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("lease", "secret")})
		first := ask(node, probe())
		Expect(first.RunID).To(HavePrefix("connection-"))
		Expect(first.Uptime).To(BeNumerically("<", 0))
		watched := func(id string) func(*redlock.Request) {
			return func(r *redlock.Request) { r.MatureRunID, r.Unseen, r.Quarantine = id, true, time.Millisecond }
		}
		Expect(ask(node, take("a", watched(""))).Outcome).To(Equal(redlock.Absent))
		Expect(ask(node, take("a", watched(first.RunID))).Outcome).To(Equal(redlock.Taken))
		_, known := node.Fitness()
		Expect(known).To(BeFalse())

		Expect(server.Client().Do(ctx, "acl", "log").String()).NotTo(ContainSubstring("lua"), "asked in vain with each request")

		By("another one for each connection")
		server.Client().ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
		Expect(ask(node, probe()).RunID).To(And(HavePrefix("connection-"), Not(Equal(first.RunID))))
	})

	It("lets a release stand whose notice is forbidden, and says so once", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", minimal+" -publish"))
		log := make(chan string, 100)
		node := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("lease", "secret"),
			Log: funcr.New(func(_, args string) { log <- args }, funcr.Options{})})
		for range 3 {
			ask(node, take("a"))
			reply := ask(node, release("a"))
			Expect(reply.Outcome).To(Equal(redlock.Released))
			Expect(reply.Owner).To(BeEmpty())
		}
		Expect(server.Client().Exists(ctx, keys.Lock).Val()).To(BeZero())
		Expect(node.Close()).To(Succeed())
		close(log)
		var told []string
		for line := range log {
			if strings.Contains(line, "release notices may not be published") {
				told = append(told, line)
			}
		}
		Expect(told).To(HaveExactElements(And(ContainSubstring("publish"), ContainSubstring("give the user the commands"))))
	})

	DescribeTable("forbids", func(rules string, req redlock.Request, text string) {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "secret", rules))
		node := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("lease", "secret")})
		_, err := do(node, req)
		Expect(err).To(beRefused(redlock.KindPermission))
		Expect(err).To(MatchError(And(ContainSubstring(text), ContainSubstring("give the user the commands"))))
		Expect(server.Client().DBSize(ctx).Val()).To(BeZero())
	},
		Entry("the key", strings.ReplaceAll(minimal, "~podlease:*", "~other:*"), take("a"), "NOPERM"),
		Entry("the counter", strings.ReplaceAll(minimal, "~podlease:*", "~"+keys.Lock), take("a", fence(5)), "NOPERM"),
		Entry("scripts", minimal+" -evalsha -eval", take("a"), "NOPERM"),
		Entry("SET", minimal+" -set", take("a"), keys.Lock),
		Entry("SET of the counter", minimal+" -set", take("a", fence(5)), keys.Fence),
		Entry("GET", minimal+" -get", probe(), keys.Lock),
	)

	It("wants a password", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithPassword("secret"))
		node := open(redisnode.Config{Address: server.Addr()})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindAuth), MatchError(ContainSubstring("give user and password"))))
		wrong := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("", "guess")})
		Expect(failure(wrong, take("a"))).To(And(beRefused(redlock.KindAuth), MatchError(Not(ContainSubstring("guess")))))
		nobody := open(redisnode.Config{Address: "redis://nobody@" + server.Addr(), Credentials: credentials("", "secret")})
		Expect(failure(nobody, take("a"))).To(beRefused(redlock.KindAuth))
		unread := open(redisnode.Config{Address: server.Addr(), Credentials: func(context.Context) (string, string, error) {
			return "", "", errors.New("open /etc/password: no such file")
		}})
		Expect(failure(unread, take("a"))).To(And(beRefused(redlock.KindAuth), MatchError(ContainSubstring("no such file"))))
		right := open(redisnode.Config{Address: server.Addr(), Credentials: credentials("", "secret")})
		Expect(ask(right, take("a")).Outcome).To(Equal(redlock.Taken))
	})

	It("takes a rotated password at the next connection", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lease", "old", minimal))
		var password atomic.Value
		password.Store("old")
		node := open(redisnode.Config{Address: server.Addr(), Credentials: func(context.Context) (string, string, error) {
			return "lease", password.Load().(string), nil
		}})
		ask(node, take("a"))
		Expect(server.Client().ACLSetUser(ctx, "lease", "resetpass", ">new").Err()).NotTo(HaveOccurred())
		password.Store("new")
		server.Client().ClientKillByFilter(ctx, "USER", "lease")
		Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Extended))
	})
})

var _ = Describe("fitness", func() {
	ctx := context.Background()

	It("refuses a replica, but lets releases go", func() {
		primary := redistest.Start(GinkgoTB())
		replica := redistest.Start(GinkgoTB(), redistest.WithReplicaOf(primary))
		node := open(redisnode.Config{Address: replica.URL()})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindUnfit), MatchError(ContainSubstring("is a replica of 127.0.0.1:"))))
		Expect(failure(node, probe())).To(beRefused(redlock.KindUnfit))
		Expect(ask(node, release("a")).Outcome).To(Equal(redlock.Gone))

		By("counting it when told to")
		counted := open(redisnode.Config{Address: replica.URL(), AllowUnfit: true})
		Expect(failure(counted, take("a"))).To(beRefused(redlock.KindReadOnly))
		reason, known := counted.Fitness()
		Expect(reason).To(ContainSubstring("is a replica"))
		Expect(known).To(BeTrue())
	})

	It("notices that a server became a replica", func() {
		primary := redistest.Start(GinkgoTB())
		server := redistest.Start(GinkgoTB())
		node := open(redisnode.Config{Address: server.URL()})
		ask(node, take("a"))
		host, port, _ := strings.Cut(primary.Addr(), ":")
		Expect(server.Client().ReplicaOf(ctx, host, port).Err()).NotTo(HaveOccurred())
		Eventually(func() error { return failure(node, take("a")) }).Should(beRefused(redlock.KindUnfit))
	})

	It("refuses a promoted replica", func() {
		primary := redistest.Start(GinkgoTB())
		replica := redistest.Start(GinkgoTB(), redistest.WithReplicaOf(primary))
		Eventually(func() string { return replica.Client().Info(ctx, "replication").Val() }).Should(ContainSubstring("master_link_status:up"))
		Expect(replica.Client().ReplicaOf(ctx, "NO", "ONE").Err()).NotTo(HaveOccurred())
		node := open(redisnode.Config{Address: replica.URL()})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindUnfit), MatchError(ContainSubstring("promoted"))))
	})

	It("refuses a member of a cluster", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithConfig("cluster-enabled yes"))
		node := open(redisnode.Config{Address: server.URL()})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindUnfit), MatchError(ContainSubstring("Redis Cluster"))))
		counted := open(redisnode.Config{Address: server.URL(), AllowUnfit: true})
		Expect(failure(counted, take("a"))).To(beRefused(redlock.KindUnfit))
	})

	It("follows a change of the eviction policy", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithConfig("maxmemory-policy allkeys-lru"))
		node := open(redisnode.Config{Address: server.URL(), Recheck: 20 * time.Millisecond})
		Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Taken))
		Expect(server.Client().ConfigSet(ctx, "maxmemory", "100mb").Err()).NotTo(HaveOccurred())
		Eventually(func() error { return failure(node, take("a")) }).Should(And(beRefused(redlock.KindUnfit), MatchError(ContainSubstring("allkeys-lru"))))
		Expect(server.Client().ConfigSet(ctx, "maxmemory-policy", "noeviction").Err()).NotTo(HaveOccurred())
		Eventually(func() error { return failure(node, take("a")) }).Should(Succeed())
	})
})

var _ = Describe("a server that refuses", func() {
	ctx := context.Background()

	It("for want of memory renews and releases all the same", func() {
		server := redistest.Start(GinkgoTB())
		node := open(redisnode.Config{Address: server.URL()})
		ask(node, take("a", fence(100)))
		Expect(server.Client().ConfigSet(ctx, "maxmemory", "1").Err()).NotTo(HaveOccurred())
		reply := ask(node, take("a", fence(200)))
		Expect(reply.Outcome).To(Equal(redlock.Extended))
		Expect(reply.Fence).To(BeEquivalentTo(200)) // a script that wrote once may go on
		Expect(ask(node, release("a")).Outcome).To(Equal(redlock.Released))
		Expect(failure(node, take("b", fence(300)))).To(And(beRefused(redlock.KindMemory), MatchError(ContainSubstring("maxmemory"))))
		Expect(failure(node, take("b"))).To(beRefused(redlock.KindMemory))
		Expect(server.Client().Exists(ctx, keys.Lock).Val()).To(BeZero())
	})

	It("because it has too many clients says so", func() {
		server := redistest.Start(GinkgoTB())
		Expect(server.Client().ConfigSet(ctx, "maxclients", "1").Err()).NotTo(HaveOccurred())
		node := open(redisnode.Config{Address: server.URL()})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindConnection), MatchError(ContainSubstring("maxclients"))))
	})

	It("because it is in protected mode says so", func() {
		fake, err := newFakeServer(func([]string) string { return "-DENIED Redis is running in protected mode\r\n" })
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fake.close)
		Expect(failure(open(redisnode.Config{Address: fake.addr()}), take("a"))).To(And(beRefused(redlock.KindAuth), MatchError(ContainSubstring("protected mode"))))
	})

	DescribeTable("at a connection that worked", func(reply string, want redlock.ErrorKind, sure bool) {
		fake, err := newFakeServer(answering(func([]string) string { return reply }))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fake.close)
		_, err = do(open(redisnode.Config{Address: fake.addr()}), take("a"))
		Expect(err).To(beKind(want))
		Expect(errors.Is(err, redlock.ErrNotSent)).To(Equal(sure))
	},
		Entry("loading", "-LOADING Redis is loading the dataset in memory\r\n", redlock.KindLoading, true),
		Entry("busy", "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n", redlock.KindLoading, true),
		Entry("no auth", "-NOAUTH Authentication required.\r\n", redlock.KindAuth, true),
		Entry("read only", "-READONLY You can't write against a read only replica.\r\n", redlock.KindReadOnly, true),
		Entry("cannot save", "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.\r\n", redlock.KindMemory, true),
		Entry("moved", "-MOVED 3999 127.0.0.1:6381\r\n", redlock.KindUnfit, true),
		Entry("an error of the script's own", "-ERR user_script:3: attempt to index a nil value\r\n", redlock.KindOther, false),
		Entry("nonsense", "+PONG\r\n", redlock.KindOther, false),
		Entry("half an answer", "*3\r\n:1\r\n$0\r\n\r\n:0\r\n", redlock.KindOther, false),
		Entry("the end", "", redlock.KindConnection, false),
	)

	It("while it loads is tried again", func() {
		var loaded atomic.Bool
		fake, err := newFakeServer(func(command []string) string {
			if strings.EqualFold(command[0], "script") && !loaded.Load() {
				return "-LOADING Redis is loading the dataset in memory\r\n"
			}
			return answering(func([]string) string { return outcome(1) })(command)
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(fake.close)
		node := open(redisnode.Config{Address: fake.addr()})
		Expect(failure(node, take("a"))).To(beRefused(redlock.KindLoading))
		loaded.Store(true)
		Eventually(func() error { return failure(node, take("a")) }).Should(Succeed())
	})

	It("is not there", func() {
		server := redistest.Start(GinkgoTB())
		addr := server.Addr()
		server.Kill()
		Expect(failure(open(redisnode.Config{Address: addr}), take("a"))).To(And(beRefused(redlock.KindConnection), MatchError(ContainSubstring("nothing listens there"))))
		Expect(failure(open(redisnode.Config{Address: "no-such-host.invalid:6379"}), take("a"))).To(And(beRefused(redlock.KindConnection), MatchError(ContainSubstring("cannot be resolved"))))
		Expect(failure(open(redisnode.Config{Address: "unix:///nonexistent/redis.sock"}), take("a"))).To(beRefused(redlock.KindConnection))
	})
})

var _ = Describe("TLS", func() {
	var (
		ca     *redistest.CA
		server *redistest.Server
	)
	settings := func(change func(*tls.Config)) func() (*tls.Config, error) {
		return func() (*tls.Config, error) {
			cfg := ca.ClientConfig()
			change(cfg)
			return cfg, nil
		}
	}
	BeforeEach(func() {
		ca = redistest.NewCA(GinkgoTB())
		server = redistest.Start(GinkgoTB(), redistest.WithTLS(ca))
	})

	It("works, also when the server closed the connection", func() {
		node := open(redisnode.Config{Address: server.URL(), TLS: settings(func(*tls.Config) {})})
		notices := subscribe(node)
		Eventually(notices).Should(Receive(HaveField("Kind", redlock.NoticeSubscribed)))
		Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Taken))
		for range 5 {
			server.Client().ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes")
			Expect(ask(node, take("a")).Outcome).To(Equal(redlock.Extended))
		}
	})

	DescribeTable("does not fit", func(change func(*tls.Config), text string) {
		node := open(redisnode.Config{Address: server.URL(), TLS: settings(change)})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindTLS), MatchError(ContainSubstring(text))))
	},
		Entry("unknown authority", func(c *tls.Config) { c.RootCAs = nil }, "give its CA file"),
		Entry("other name", func(c *tls.Config) { c.ServerName = "redis.example.com" }, "another name"),
		Entry("too old", func(c *tls.Config) { c.MaxVersion, c.MinVersion = tls.VersionTLS10, tls.VersionTLS10 }, "refused our side"),
	)

	It("wants a client certificate", func() {
		server := redistest.Start(GinkgoTB(), redistest.WithTLS(ca), redistest.WithConfig("tls-auth-clients yes"))
		node := open(redisnode.Config{Address: server.URL(), TLS: settings(func(c *tls.Config) { c.Certificates = nil })})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindTLS), MatchError(ContainSubstring("client certificate"))))
	})

	It("has unreadable files", func() {
		node := open(redisnode.Config{Address: server.URL(), TLS: func() (*tls.Config, error) { return nil, errors.New("ca.crt: no such file") }})
		Expect(failure(node, take("a"))).To(And(beRefused(redlock.KindTLS), MatchError(ContainSubstring("ca.crt: no such file"))))
	})

	It("is spoken by one side only", func() {
		plain := open(redisnode.Config{Address: server.Addr()})
		Expect(failure(plain, take("a"))).To(And(beRefused(redlock.KindTLS), MatchError(ContainSubstring("rediss://"))))
		other := redistest.Start(GinkgoTB())
		secure := open(redisnode.Config{Address: "rediss://" + other.Addr(), DialTimeout: time.Second, TLS: settings(func(*tls.Config) {})})
		Expect(failure(secure, take("a"))).To(And(beRefused(redlock.KindTLS), MatchError(ContainSubstring("does not speak TLS"))))
	})
})
