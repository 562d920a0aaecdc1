package redisnode_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/test/redistest"

	_ "embed"
)

//go:embed lock.lua
var lockSource string

var benchKeys = redlock.Keys{Lock: "bench:l", Fence: "bench:l:fence", Channel: "bench:l:released"}

// BenchmarkBareEvalsha is what the same script costs on a connection of its own.
func BenchmarkBareEvalsha(b *testing.B) {
	server := redistest.Start(b)
	ctx := context.Background()
	conn := server.Client().Conn()
	defer func() { _ = conn.Close() }()
	script := redis.NewScript(lockSource)
	args := []any{"take", "token", "10000", "1", "0", "1764495600123457", benchKeys.Channel, ""}
	keys := []string{benchKeys.Lock, benchKeys.Fence}
	if err := script.Run(ctx, conn, keys, args...).Err(); err != nil {
		b.Fatal(err)
	}
	measure(b, func() error { return script.EvalSha(ctx, conn, keys, args...).Err() })
}

// BenchmarkSend is a Send and its answer.
func BenchmarkSend(b *testing.B) {
	server := redistest.Start(b)
	node, err := redisnode.New(redisnode.Config{Address: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	answered := make(chan error, 1)
	done := func(_ redlock.Reply, err error) { answered <- err }
	req := redlock.Request{Op: redlock.OpTake, Keys: benchKeys, Token: "token", TTL: 10 * time.Second, Fence: 1764495600123457}
	send := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		node.Send(ctx, req, done)
		return <-answered
	}
	if err := send(); err != nil {
		b.Fatal(err)
	}
	measure(b, send)
}

// measure reports the median and the 99th percentile beside the mean.
func measure(b *testing.B, run func() error) {
	b.Helper()
	b.ReportAllocs()
	took := make([]time.Duration, 0, 1<<16)
	for b.Loop() {
		start := time.Now()
		if err := run(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
