package main

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRound is for profiles: go test -bench Round/podlease -cpuprofile cpu.out.
func BenchmarkRound(b *testing.B) {
	for _, nodes := range []int{3, 5} {
		r := &rig{}
		b.Cleanup(r.close)
		servers := r.servers(nodes)
		for _, c := range contenders(r, servers, 10*time.Second) {
			b.Run(fmt.Sprintf("%s/%d", c.name, nodes), func(b *testing.B) {
				var t timings
				for i := range b.N {
					t.round(b.Context(), c, fmt.Sprintf("round-%d-%d", b.N, i))
				}
				b.ReportMetric(ms(t.acquire.quantile(0.5))*1000, "µs-acquire-p50")
				b.ReportMetric(ms(t.renew.quantile(0.5))*1000, "µs-renew-p50")
			})
		}
	}
}
