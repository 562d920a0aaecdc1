package integration_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// A sickness makes a node unable to vote. Its server returns the node's address for
// --redis, and may add flags for the candidate.
type sickness struct {
	kind  string // of podlease_node_errors_total; empty where no request fails
	words string // that a person finds in the log
	start func(ctx SpecContext) (url string, args []string)
}

const lockKey = "podlease:orders"

var sicknesses = map[string]sickness{
	"a key of the wrong type": {"wrongtype", "WRONGTYPE", func(ctx SpecContext) (string, []string) {
		n := nodes(1)[0]
		Expect(n.Client().LPush(ctx, lockKey, "x").Err()).To(Succeed())
		return n.URL(), nil
	}},
	"a key without expiry": {"", "never expires", func(ctx SpecContext) (string, []string) {
		n := nodes(1)[0]
		Expect(n.Client().Set(ctx, lockKey, "x", 0).Err()).To(Succeed())
		return n.URL(), nil
	}},
	"a user without the rights": {"permission", "NOPERM", func(SpecContext) (string, []string) {
		n := nodes(1, redistest.WithUser("lock", "pw", "~other:* +@all"))[0]
		return "redis://lock@" + n.Addr(), []string{"--password-file=" + secret("pw")}
	}},
	"a wrong password": {"auth", "WRONGPASS", func(SpecContext) (string, []string) {
		n := nodes(1, redistest.WithUser("lock", "other", "~* &* +@all"))[0]
		return "redis://lock@" + n.Addr(), []string{"--password-file=" + secret("pw")}
	}},
	"a password that is missing": {"auth", "NOAUTH", func(SpecContext) (string, []string) {
		return nodes(1, redistest.WithPassword("pw"))[0].URL(), nil
	}},
	"a replica": {"unfit", "replica", func(SpecContext) (string, []string) {
		return replica(nodes(1)[0]).URL(), nil
	}},
	"a replica that is allowed": {"readonly", "READONLY", func(SpecContext) (string, []string) {
		return replica(nodes(1)[0]).URL(), []string{"--allow-unfit-nodes"}
	}},
	"a member of a Redis Cluster": {"unfit", "Cluster", func(SpecContext) (string, []string) {
		return nodes(1, redistest.WithConfig("cluster-enabled yes"))[0].URL(), nil
	}},
	"a server that may evict the lock": {"unfit", "maxmemory-policy", func(SpecContext) (string, []string) {
		return nodes(1, redistest.WithConfig("maxmemory 100mb", "maxmemory-policy allkeys-lru"))[0].URL(), nil
	}},
	"a server that is out of memory": {"memory", "OOM", func(SpecContext) (string, []string) {
		return nodes(1, redistest.WithConfig("maxmemory 1"))[0].URL(), nil
	}},
	"a server that loads its data": {"loading", "LOADING", func(ctx SpecContext) (string, []string) {
		return loading(ctx).URL(), nil
	}},
	"TLS asked of a plain server": {"tls", "TLS", func(SpecContext) (string, []string) {
		return "rediss://" + nodes(1)[0].Addr(), nil
	}},
	"a TLS server asked in plain": {"tls", "TLS", func(SpecContext) (string, []string) {
		return nodes(1, redistest.WithTLS(redistest.NewCA(GinkgoTB())))[0].Addr(), nil
	}},
	"a certificate of an unknown authority": {"tls", "certificate", func(SpecContext) (string, []string) {
		n := nodes(1, redistest.WithTLS(redistest.NewCA(GinkgoTB())))[0]
		return n.URL(), []string{"--tls-ca-file=" + redistest.NewCA(GinkgoTB()).File}
	}},
	"a server that is frozen": {"timeout", "", func(SpecContext) (string, []string) {
		n := nodes(1)[0]
		n.Freeze()
		return n.URL(), nil
	}},
	"a server that is down": {"connection", "refused", func(SpecContext) (string, []string) {
		n := nodes(1)[0]
		n.Kill()
		return n.URL(), nil
	}},
}

// secret writes a file with a password.
func secret(password string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "password")
	Expect(os.WriteFile(file, []byte(password+"\n"), 0o600)).To(Succeed())
	return file
}

func replica(primary *redistest.Server) *redistest.Server {
	GinkgoHelper()
	return nodes(1, redistest.WithReplicaOf(primary))[0]
}

// loading starts a server that takes half a minute to load its data: two
// milliseconds for each key, and an eye on clients after each.
func loading(ctx SpecContext) *redistest.Server {
	GinkgoHelper()
	n := redistest.Start(GinkgoTB(), redistest.WithoutWait(), redistest.WithConfig(
		"key-load-delay 2000", "loading-process-events-interval-bytes 1024", "rdbcompression no"))
	n.Ready()
	_, err := n.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 15000 {
			p.Set(ctx, fmt.Sprint("filler:", i), make([]byte, 1024), 0)
		}
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	n.Restart(false)
	Eventually(func() error { return n.Client().Get(ctx, "filler:1").Err() }).WithContext(ctx).Should(MatchError(ContainSubstring("LOADING")))
	return n
}

func start(redis []string, args ...string) *sidecartest.Sidecar {
	GinkgoHelper()
	return program.Start(GinkgoTB(), sidecartest.Options{
		Name: "candidate", Lock: "orders", Redis: redis, Args: append([]string{"--ttl=1s"}, args...),
	})
}

// addr is how a node is named in messages and metrics.
func addr(url string) string {
	for i := len(url) - 1; i > 0; i-- {
		if url[i] == '/' || url[i] == '@' {
			return url[i+1:]
		}
	}
	return url
}

var _ = Describe("A sick node", func() {
	for _, name := range slices.Sorted(maps.Keys(sicknesses)) {
		s := sicknesses[name]
		// The others accept the sick one's credentials: the default user takes any
		// password, and a user named in a URL is that node's own.
		Context("among three: "+name, func() {
			It("is named in plain words, and costs nothing", func(ctx SpecContext) {
				url, args := s.start(ctx)
				healthy := nodes(2, redistest.WithUser("lock", "pw", "~* &* +@all"))
				c := start([]string{url, healthy[0].URL(), healthy[1].URL()}, args...)
				expectActive(ctx, c)
				expectNamed(ctx, c, url, s)
				Expect(c.Ended()).To(BeNil())
			}, SpecTimeout(behaviour.Patience))
		})
		if s.kind == "unfit" {
			continue // a majority of those is exit 3, see below
		}
		Context("on its own: "+name, func() {
			It("is named in the reason, and ends nothing", func(ctx SpecContext) {
				url, args := s.start(ctx)
				c := start([]string{url}, args...)
				Eventually(func(g Gomega) {
					doc, err := c.Leadership(ctx)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(doc.Active).To(BeFalse())
					g.Expect(doc.Reason).NotTo(BeEmpty())
					if s.kind != "" {
						g.Expect(doc.Reason).To(And(HavePrefix("no quorum: 0 of 1 nodes answered"), ContainSubstring(addr(url)), ContainSubstring(s.words)))
					}
				}).WithContext(ctx).Should(Succeed())
				expectNamed(ctx, c, url, s)
				c.Terminate()
				Expect(c.ExitCode(ctx)).To(BeZero())
			}, SpecTimeout(behaviour.Patience))
		})
	}

	DescribeTable("a majority that can never be fit ends it with code 3",
		func(ctx SpecContext, words string, unfit func() *redistest.Server) {
			a, b := unfit(), unfit()
			c := start([]string{a.URL(), b.URL(), nodes(1)[0].URL()})
			Expect(c.ExitCode(ctx)).To(Equal(3), c.Output())
			Expect(c.Output()).To(And(ContainSubstring(words), ContainSubstring(a.Addr()), ContainSubstring(b.Addr())))
		},
		Entry("replicas", SpecTimeout(behaviour.Patience), "replica", func() *redistest.Server { return replica(nodes(1)[0]) }),
		Entry("cluster members", SpecTimeout(behaviour.Patience), "Cluster", func() *redistest.Server {
			return nodes(1, redistest.WithConfig("cluster-enabled yes"))[0]
		}),
	)

	It("that becomes unfit later makes a standby with a reason, and no end", func(ctx SpecContext) {
		n, primary := nodes(3), nodes(1)[0]
		c := start(redistest.URLs(n))
		expectActive(ctx, c)
		for _, s := range n[:2] {
			makeReplica(ctx, s, primary)
		}
		Eventually(func(g Gomega) {
			doc, err := c.Leadership(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(doc.Active).To(BeFalse())
			g.Expect(doc.Reason).To(ContainSubstring("no quorum"))
		}).WithContext(ctx).Should(Succeed())
		for _, s := range n[:2] {
			Expect(s.Client().Do(ctx, "REPLICAOF", "NO", "ONE").Err()).To(Succeed())
		}
		Expect(c.Ended()).To(BeNil())
	}, SpecTimeout(behaviour.Patience))

	It("that is the same server as another has no vote of its own", func(ctx SpecContext) {
		n := nodes(1)[0]
		_, port, _ := strings.Cut(n.Addr(), ":")
		c := start([]string{"127.0.0.1:" + port, "localhost:" + port, nodes(1)[0].URL()})
		Eventually(c.Output).WithContext(ctx).Should(ContainSubstring("same server"))
		expectActive(ctx, c)
		doc, err := c.Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(doc.Quorum.Held).To(Equal(2))
	}, SpecTimeout(behaviour.Patience))
})

func makeReplica(ctx SpecContext, s, primary *redistest.Server) {
	GinkgoHelper()
	host, port, _ := strings.Cut(primary.Addr(), ":")
	Expect(s.Client().Do(ctx, "REPLICAOF", host, port).Err()).To(Succeed())
}

func expectActive(ctx SpecContext, c *sidecartest.Sidecar) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		doc, err := c.Leadership(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(doc.Active).To(BeTrue(), doc.Reason)
	}).WithContext(ctx).Should(Succeed())
}

// expectNamed waits until log and metrics name the node and its sickness.
func expectNamed(ctx SpecContext, c *sidecartest.Sidecar, url string, s sickness) {
	GinkgoHelper()
	if s.kind != "" {
		Eventually(func(g Gomega) {
			errors, _, err := c.Metric(ctx, "podlease_node_errors_total", fmt.Sprintf("node=%q", addr(url)), fmt.Sprintf("kind=%q", s.kind))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(errors).To(BeNumerically(">", 0))
		}).WithContext(ctx).Should(Succeed(), "no error of kind "+s.kind)
	}
	Eventually(func() []string { return linesWith(c.Output(), addr(url)) }).WithContext(ctx).
		Should(ContainElement(ContainSubstring(s.words)), "not in the log")
}

func linesWith(text, part string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

var _ = Describe("A node that is well", func() {
	It("is reached through a Unix socket, TLS with client certificates, and users whose password changes", func(ctx SpecContext) {
		ca := redistest.NewCA(GinkgoTB())
		password := secret("old")
		n := []*redistest.Server{
			nodes(1, redistest.WithUnixSocket(), redistest.WithUser("lock", "old", redistest.MinimalRights))[0],
			nodes(1, redistest.WithTLS(ca), redistest.WithConfig("tls-auth-clients yes"), redistest.WithUser("lock", "old", redistest.MinimalRights))[0],
			nodes(1, redistest.WithUser("lock", "old", redistest.MinimalRights))[0],
		}
		c := start(redistest.URLs(n), "--username=lock", "--password-file="+password,
			"--tls-ca-file="+ca.File, "--tls-cert-file="+ca.CertFile, "--tls-key-file="+ca.KeyFile)
		expectActive(ctx, c)
		expectVotes(ctx, c, 3)

		By("changing the password, and cutting the connections that used the old one")
		for _, s := range n {
			Expect(s.Client().Do(ctx, "ACL", "SETUSER", "lock", "resetpass", ">new").Err()).To(Succeed())
		}
		Expect(os.WriteFile(password, []byte("new"), 0o600)).To(Succeed())
		for _, s := range n {
			Expect(s.Client().Do(ctx, "CLIENT", "KILL", "USER", "lock").Err()).To(Succeed())
		}
		expectVotes(ctx, c, 3)
		expectActive(ctx, c)
	}, SpecTimeout(behaviour.Patience))
})

func expectVotes(ctx SpecContext, c *sidecartest.Sidecar, n int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		doc, err := c.Leadership(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(doc.Quorum.Held).To(Equal(n))
	}).WithContext(ctx).Should(Succeed())
}
