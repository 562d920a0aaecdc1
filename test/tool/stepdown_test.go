package tool_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func cut(address string) (host, port string, ok bool) { return strings.Cut(address, ":") }

// api is as much of an API server as is asked for Pods.
type api struct {
	mu      sync.Mutex
	pods    []string // namespace/name/lock/role; the lock's slash is a colon
	asked   []string
	patches []string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.asked = append(a.asked, r.Method+" "+r.URL.RequestURI())
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPatch {
		a.patches = append(a.patches, r.Header.Get("Content-Type")+" "+string(body))
		fmt.Fprint(w, `{}`)
		return
	}
	var items []any
	first := r.URL.Query().Get("continue") == ""
	for i, p := range a.pods { // one on the first page, the rest on the second
		f := strings.Split(p, "/")
		if namespace := strings.Split(r.URL.Path, "/"); len(namespace) > 4 && namespace[4] != f[0] || (i == 0) != first {
			continue
		}
		items = append(items, map[string]any{"metadata": map[string]any{
			"namespace": f[0], "name": f[1], "uid": "uid-" + f[1],
			"annotations": map[string]string{"podlease.io/lock": strings.ReplaceAll(f[2], ":", "/")},
			"labels":      map[string]string{"podlease.io/role": f[3]},
		}})
	}
	page := map[string]any{"items": items, "metadata": map[string]any{}}
	if first {
		page["metadata"] = map[string]any{"continue": "more"}
	}
	_ = json.NewEncoder(w).Encode(page)
}

// got returns what it was asked so far, and the patches.
func (a *api) got() (asked, patches []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked), slices.Clone(a.patches)
}

// serve starts it, and returns the flag for reaching it.
func (a *api) serve() string {
	GinkgoHelper()
	server := httptest.NewServer(a)
	DeferCleanup(server.Close)
	return "--kubeconfig=" + file(fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":"shop"}}],
"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"t"}}]}`, server.URL))
}

var _ = Describe("podlease step-down", func() {
	It("annotates the active Pod of the lock, and no other", func(ctx SpecContext) {
		a := &api{pods: []string{"shop/orders-1/shop:orders/standby", "shop/orders-2/shop:orders/active", "shop/cart-1/shop:cart/active", "other/x/shop:orders/active"}}
		kubeconfig := a.serve()
		r := run(ctx, "step-down", kubeconfig, "shop/orders")
		Expect(r.code).To(BeZero(), r.stderr)
		Expect(r.stdout).To(Equal("pod shop/orders-2 was asked to hand over, 1 stand by\n"))
		asked, first := a.got()
		Expect(asked).To(ContainElement("PATCH /api/v1/namespaces/shop/pods/orders-2"))
		Expect(asked[0]).To(And(HavePrefix("GET /api/v1/namespaces/shop/pods?"), ContainSubstring("labelSelector=podlease.io%2Finjected%3Dtrue")))
		Expect(first).To(HaveLen(1))
		Expect(first[0]).To(MatchRegexp(`^application/merge-patch\+json \{"metadata":\{"annotations":\{"podlease.io/step-down":"2[^"]+"\},"uid":"uid-orders-2"\}\}$`))
		again := run(ctx, "step-down", kubeconfig, "shop/orders")
		Expect(again.code).To(BeZero(), again.stderr)
		_, second := a.got()
		Expect(second[1]).NotTo(Equal(first[0]), "only a new value is heard")
		Expect(run(ctx, "step-down", kubeconfig, "-A", "shop/orders").stdout).To(ContainSubstring("other/x"))
	}, SpecTimeout(behaviour.Patience))

	It("says so when no Pod is active, and what is wrong with a command line", func(ctx SpecContext) {
		kubeconfig := (&api{pods: []string{"shop/orders-1/shop:orders/standby"}}).serve()
		r := run(ctx, "step-down", kubeconfig, "shop/orders")
		Expect(r.code).To(Equal(1))
		Expect(r.stderr).To(Equal("podlease: no Pod is active for lock \"shop/orders\": 1 of its Pods stand by\n"))
		for _, args := range [][]string{{}, {"a", "b"}, {"-n=a", "-A", "lock"}} {
			Expect(run(ctx, append([]string{"step-down", kubeconfig}, args...)...).code).To(Equal(2))
		}
		Expect(run(ctx, "step-down", "--kubeconfig=/nowhere", "a").stderr).To(ContainSubstring("/nowhere"))
		Expect(run(ctx, "step-down", "a").stderr).To(And(HavePrefix("podlease: no cluster to ask: "), ContainSubstring(".kube/config"), ContainSubstring("--kubeconfig"), ContainSubstring("KUBECONFIG")))
	}, SpecTimeout(behaviour.Patience))
})

var _ = Describe("podlease status in a cluster", func() {
	It("lists the candidates' Pods, and whether their labels agree with the lock", func(ctx SpecContext) {
		servers := redistest.Cluster(GinkgoTB(), 1)
		holder(ctx, "west/shop/orders-2", "shop/orders", servers)
		a := &api{pods: []string{"shop/orders-1/shop:orders/standby", "shop/orders-2/shop:orders/standby", "shop/orders-3/shop:orders/active", "shop/cart-1/shop:cart/active"}}
		r := run(ctx, "status", redisFlag(servers...), a.serve(), "-n", "shop", "-o", "json", "shop/orders")
		Expect(r.code).To(BeZero(), r.stderr)
		pods := statusReport(r).Locks[0].Pods
		Expect(pods).To(HaveLen(3))
		for i, agrees := range []bool{true, false, false} {
			Expect(pods[i].Agrees).To(Equal(agrees), pods[i].Name)
		}
		Expect(run(ctx, "status", redisFlag(servers...), a.serve(), "-n", "shop", "shop/orders").stdout).To(ContainSubstring("shop/orders-1"))
	}, SpecTimeout(behaviour.Patience))
})
