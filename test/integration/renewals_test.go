package integration_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A lease", func() {
	It("is never lost in a thousand renewals with each of three nodes frozen in turn", func(ctx SpecContext) {
		servers := nodes(3)
		locker := newLocker(servers, redlock.Options{TTL: time.Second, KeyPrefix: "podlease:", Identity: "library"})
		lease, err := locker.Acquire(ctx, "orders")
		Expect(err).NotTo(HaveOccurred())
		for i, frozen := range servers {
			frozen.Freeze()
			var took time.Duration
			late := 0
			for renewed := 0; renewed < 1000; {
				began := time.Now()
				err := lease.Renew(ctx)
				took += time.Since(began)
				Expect(errors.Is(err, redlock.ErrLost)).To(BeFalse(), "renewal %d with node %d frozen: %v", renewed, i, err)
				Expect(lease.Holding()).To(BeTrue())
				if err != nil { // a busy machine let a node's time pass; the lease has more of it
					late++
					continue
				}
				renewed++
				time.Sleep(2 * time.Millisecond) // so that all of them take longer than the lease lasts
			}
			AddReportEntry(fmt.Sprintf("node %d frozen: %d rounds too late, a renewal took on average", i, late), took/1000)
			frozen.Thaw()
		}
		Expect(lease.Release(ctx)).To(Succeed())
		for _, n := range servers {
			Eventually(func() bool { return exists(ctx, n, "podlease:orders") }).WithContext(ctx).Should(BeFalse())
		}
	}, SpecTimeout(2*behaviour.Patience))
})

// newLocker is a locker of this process.
func newLocker(servers []*redistest.Server, opt redlock.Options) *redlock.Locker {
	GinkgoHelper()
	var list []redlock.Node
	for _, s := range servers {
		n, err := redisnode.New(redisnode.Config{Address: s.URL(), NodeTimeout: opt.TTL / 50})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(n.Close)
		list = append(list, n)
	}
	locker, err := redlock.New(list, opt)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(locker.Close)
	return locker
}
