package tool_test

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// file makes a file that goes with the test.
func file(content string) string {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "podlease-tool-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	path := filepath.Join(dir, "file")
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}

// diagnosis is what podlease doctor -o json tells.
type diagnosis struct {
	Verdict string
	Nodes   []struct {
		Node, Verdict string
		Checks        []finding
	}
	Set []finding
}

type finding struct{ Name, Verdict, Found, Advice string }

func diagnose(r result) diagnosis {
	GinkgoHelper()
	var d diagnosis
	Expect(json.Unmarshal([]byte(r.stdout), &d)).To(Succeed(), r.stdout+r.stderr)
	return d
}

func named(findings []finding, name string) finding {
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	return finding{}
}

// rights are those of docs/sidecar.md.
const rights = "-@all +evalsha +eval +script|load +get +set +pexpire +pttl +del +publish +subscribe +ping +hello +time +info +client|id +client|setname ~podlease:* &podlease:*"

var _ = Describe("podlease doctor", func() {
	It("finds nothing wrong with servers that are as they should be, and leaves nothing there", func(ctx SpecContext) {
		servers := redistest.Cluster(GinkgoTB(), 3, redistest.WithUser("lock", "secret", rights))
		Eventually(func() int { // until their uptime is a quarantine
			return run(ctx, "doctor", redisFlag(servers...), "--username=lock", "--password-file="+file("secret"), "--quarantine=1s", "--node-timeout=10s").code
		}).WithContext(ctx).Should(BeZero())
		for _, s := range servers {
			Expect(s.Client().Keys(ctx, "*").Val()).To(BeEmpty())
		}
	}, SpecTimeout(behaviour.Patience))

	It("warns of what could be better", func(ctx SpecContext) {
		server := redistest.Start(GinkgoTB())
		r := run(ctx, "doctor", redisFlag(server), "-o=json")
		Expect(r.code).To(Equal(1), r.stdout)
		d := diagnose(r)
		Expect(d.Verdict).To(Equal("warning"))
		Expect(named(d.Nodes[0].Checks, "mature").Verdict).To(Equal("warning"))
		Expect(named(d.Nodes[0].Checks, "mature").Advice).To(ContainSubstring("grants new leases in"))
		Expect(named(d.Nodes[0].Checks, "version").Found).To(MatchRegexp(`^(Redis|Valkey) \d`))
		Expect(named(d.Set, "number").Verdict).To(Equal("warning"))
		Expect(run(ctx, "doctor", redisFlag(server)).stdout).To(And(ContainSubstring("verdict: warning"), ContainSubstring(server.Addr())))
	}, SpecTimeout(behaviour.Patience))

	It("names each node that cannot hold leases, and why", func(ctx SpecContext) {
		good := redistest.Start(GinkgoTB())
		replica := redistest.Start(GinkgoTB(), redistest.WithReplicaOf(good))
		evicting := redistest.Start(GinkgoTB(), redistest.WithConfig("maxmemory 100mb", "maxmemory-policy allkeys-lru"))
		locked := redistest.Start(GinkgoTB(), redistest.WithPassword("secret"))
		down := redistest.Start(GinkgoTB())
		down.Kill()
		r := run(ctx, "doctor", redisFlag(good, replica, evicting, locked, down), "-o", "json")
		Expect(r.code).To(Equal(3), r.stdout)
		d := diagnose(r)
		Expect(d.Verdict).To(Equal("unfit"))
		for i, want := range []struct{ check, found string }{
			1: {"independent", "replica"}, 2: {"independent", "may evict"}, 3: {"reachable", "NOAUTH"}, 4: {"reachable", "refused"},
		} {
			if want.check == "" {
				continue
			}
			Expect(d.Nodes[i].Verdict).To(Equal("unfit"), d.Nodes[i].Node)
			Expect(named(d.Nodes[i].Checks, want.check).Found).To(ContainSubstring(want.found), d.Nodes[i].Node)
		}
		Expect(d.Nodes[0].Verdict).To(Equal("warning"))
	}, SpecTimeout(behaviour.Patience))

	It("says that too many nodes are down", func(ctx SpecContext) {
		servers := redistest.Cluster(GinkgoTB(), 3)
		servers[0].Kill()
		servers[2].Kill()
		r := run(ctx, "doctor", redisFlag(servers...))
		Expect(r.code).To(Equal(3), r.stdout)
		Expect(r.stdout).To(MatchRegexp(`(?m)^  unfit +number +3 nodes, of which 1 may fail; down or unfit now: 2\n +→ see to what is unfit above; with fewer than 2 fit nodes nobody is active$`))
		Expect(r.stdout).To(MatchRegexp(`(?m)^  warning +distinct +1 of 3 servers answered`))
	}, SpecTimeout(behaviour.Patience))

	It("notices rights that are missing, and one server under two names", func(ctx SpecContext) {
		server := redistest.Start(GinkgoTB(), redistest.WithUser("lock", "secret", rights+" -set"), redistest.WithUser("deaf", "secret", rights+" -publish"))
		_, port, _ := cut(server.Addr())
		r := run(ctx, "doctor", "--redis="+server.Addr()+",redis://deaf@localhost:"+port, "--username=lock", "--password-file="+file("secret"), "-o=json")
		Expect(r.code).To(Equal(3), r.stdout)
		d := diagnose(r)
		Expect(named(d.Nodes[0].Checks, "rights").Verdict).To(Equal("unfit"), r.stdout)
		Expect(named(d.Nodes[0].Checks, "rights").Advice).To(ContainSubstring("ACL"))
		Expect(named(d.Nodes[1].Checks, "rights").Verdict).To(Equal("warning"), r.stdout)
		Expect(named(d.Set, "distinct").Verdict).To(Equal("unfit"))
	}, SpecTimeout(behaviour.Patience))
})
