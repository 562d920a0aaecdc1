package tool_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// report is what podlease status -o json tells.
type report struct {
	Locks []struct {
		Lock         string
		Holder       string
		HolderKnown  bool
		TermToken    uint64
		FencingToken uint64
		Quorum       struct{ Size, Needed, Held int }
		Nodes        []struct {
			Node, HeldBy, Error string
			ExpiresInMs         int64
			LatencyMs           float64
		}
		Pods []struct {
			Namespace, Name, Role string
			Agrees                bool
		}
	}
}

func statusReport(r result) report {
	GinkgoHelper()
	var out report
	Expect(json.Unmarshal([]byte(r.stdout), &out)).To(Succeed(), r.stdout+r.stderr)
	return out
}

var _ = Describe("podlease status", func() {
	It("tells who holds a lock, and what each node says", func(ctx SpecContext) {
		servers := redistest.Cluster(GinkgoTB(), 3)
		s := holder(ctx, "shop/orders-1", "shop/orders", servers)
		doc, err := s.Leadership(ctx)
		Expect(err).NotTo(HaveOccurred())
		servers[2].Kill()

		r := run(ctx, "status", redisFlag(servers...), "-o=json", "shop/orders", "shop/none")
		Expect(r.code).To(BeZero(), r.stderr)
		locks := statusReport(r).Locks
		Expect(locks).To(HaveLen(2))
		Expect(locks[0].Holder).To(Equal("shop/orders-1"))
		Expect(locks[0].TermToken).To(Equal(doc.FencingToken))
		Expect(locks[0].Quorum.Held).To(Equal(2))
		Expect(locks[0].Quorum.Size).To(Equal(3))
		for _, n := range locks[0].Nodes[:2] {
			Expect(n.HeldBy).To(Equal("shop/orders-1"))
			Expect(n.ExpiresInMs).To(And(BeNumerically(">", 0), BeNumerically("<=", 10_000)))
		}
		Expect(locks[0].Nodes[2].Error).To(ContainSubstring("refused"))
		Expect(locks[1].Lock).To(Equal("shop/none"))
		Expect(locks[1].Holder).To(BeEmpty())
		Expect(locks[1].HolderKnown).To(BeTrue())
		Expect(locks[1].Quorum.Held).To(BeZero())

		table := run(ctx, "status", redisFlag(servers...), "shop/orders").stdout
		Expect(table).To(And(HavePrefix(fmt.Sprintf("LOCK shop/orders: held by shop/orders-1, 2 of 3 nodes, fencing token %d\n", doc.FencingToken)), ContainSubstring(servers[0].Addr()), ContainSubstring("refused")))
		Expect(run(ctx, "status", redisFlag(servers...), "-o", "yaml", "shop/orders").stdout).To(ContainSubstring("holder: shop/orders-1\n"))
	}, SpecTimeout(behaviour.Patience))

	It("lists the locks that there are, also those that nobody holds", func(ctx SpecContext) {
		servers := redistest.Cluster(GinkgoTB(), 1)
		s := holder(ctx, "one", "a/first", servers)
		holder(ctx, "two", "b/second", servers)
		s.Terminate()
		Expect(s.ExitCode(ctx)).To(BeZero())
		Expect(servers[0].Client().Set(ctx, "something:else", 1, 0).Err()).To(Succeed())
		locks := statusReport(run(ctx, "status", redisFlag(servers...), "--output=json")).Locks
		Expect(locks).To(HaveLen(2))
		Expect(locks[0].Lock).To(Equal("a/first"))
		Expect(locks[0].Holder).To(BeEmpty())
		Expect(locks[0].FencingToken).NotTo(BeZero(), "the counter outlives the term")
		Expect(locks[1].Holder).To(Equal("two"))
	}, SpecTimeout(behaviour.Patience))

	It("fails without a quorum, and says to name the locks where they may not be listed", func(ctx SpecContext) {
		servers := redistest.Cluster(GinkgoTB(), 3)
		servers[0].Kill()
		servers[1].Kill()
		a := &api{pods: []string{"shop/orders-1/orders/standby", "shop/orders-2/orders/active"}}
		r := run(ctx, "status", redisFlag(servers...), a.serve(), "-n", "shop", "orders")
		Expect(r.code).To(Equal(1))
		Expect(r.stdout).To(HavePrefix("LOCK orders: not known who holds it, 1 of 3 nodes answered\n"))
		Expect(r.stdout).To(MatchRegexp(`(?m)^  shop/orders-1 +standby +not known\n  shop/orders-2 +active +not known$`))
		Expect(r.stderr).To(ContainSubstring("1 of 3 nodes answered"))
		limited := redistest.Start(GinkgoTB(), redistest.WithUser("lock", "secret", "-@all +evalsha +eval +script|load +get +pttl +time +info +ping +hello ~podlease:*"))
		r = run(ctx, "status", redisFlag(limited), "--username=lock", "--password-file="+file("secret"))
		Expect(r.code).To(Equal(1))
		Expect(r.stderr).To(And(ContainSubstring("name the locks"), ContainSubstring("scan")))
		r = run(ctx, "status", redisFlag(limited), "--username=lock", "--password-file="+file("secret"), "orders")
		Expect(r.code).To(BeZero(), r.stderr)
	}, SpecTimeout(behaviour.Patience))

	It("shares a lock's name with other Redlock clients", func(ctx SpecContext) {
		server := redistest.Start(GinkgoTB())
		Expect(server.Client().Set(ctx, "orders", "of somebody else", 0).Err()).To(Succeed())
		r := run(ctx, "status", redisFlag(server), "--bare-key", "orders")
		Expect(r.stdout).To(And(HavePrefix("LOCK orders: no lease can be had: its key never expires, 1 of 1 nodes;"), MatchRegexp(`another Redlock client +never`)))
		Expect(server.Client().Expire(ctx, "orders", time.Hour).Err()).To(Succeed())
		r = run(ctx, "status", redisFlag(server), "--bare-key", "orders")
		Expect(r.stdout).To(HavePrefix("LOCK orders: held by another Redlock client, 1 of 1 nodes"))
	}, SpecTimeout(behaviour.Patience))
})
