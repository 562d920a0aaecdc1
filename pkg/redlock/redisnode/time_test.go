package redisnode_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
)

type dialFunc func(ctx context.Context, network, endpoint string) (net.Conn, error)

// inTime runs a test of a node on simulated time.
func inTime(t *testing.T, dial dialFunc, test func(t *testing.T, node *redisnode.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node, err := redisnode.New(redisnode.Config{
			Address: "node:6379", NodeTimeout: 200 * time.Millisecond, DialTimeout: 2 * time.Second, Dial: dial,
		})
		if err != nil {
			t.Fatal(err)
		}
		test(t, node)
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
}

// timed sends a request and tells how long its answer took.
func timed(node redlock.Node, timeout time.Duration, req redlock.Request) (answer, time.Duration) {
	begin := time.Now()
	a := <-start(node, timeout, req)
	return a, time.Since(begin)
}

func TestRequestWaitsForFirstConnectionUntilItsDeadline(t *testing.T) {
	never := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	inTime(t, never, func(t *testing.T, node *redisnode.Node) {
		for _, timeout := range []time.Duration{100 * time.Millisecond, 30 * time.Millisecond} {
			a, took := timed(node, timeout, take("a"))
			if !errors.Is(a.err, redlock.ErrNotSent) || kindOf(a.err) != redlock.KindTimeout || took != timeout {
				t.Errorf("got %v after %v, want a timeout after %v", a.err, took, timeout)
			}
		}
		long, short := start(node, 90*time.Millisecond, take("a")), start(node, 10*time.Millisecond, take("b"))
		if <-short; len(long) != 0 {
			t.Error("the longer deadline was answered with the shorter")
		}
		<-long
	})
}

func TestRequestFailsAtOnceWhileConnectingFails(t *testing.T) {
	var dials atomic.Int32
	refused := errors.New("no route to host")
	dial := func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, refused
	}
	inTime(t, dial, func(t *testing.T, node *redisnode.Node) {
		for range 100 {
			a, took := timed(node, time.Second, take("a"))
			if !errors.Is(a.err, refused) || !errors.Is(a.err, redlock.ErrNotSent) || took != 0 {
				t.Fatalf("got %v after %v, want %v at once", a.err, took, refused)
			}
		}
		time.Sleep(10 * time.Minute)
		if n := dials.Load(); n < 600 || n > 1300 {
			t.Errorf("%d attempts in ten minutes, want one in half a second to a second", n)
		}
	})
}

func TestFrozenServerCostsNothingForHours(t *testing.T) {
	frozen := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, server) }() // reads, never answers, until the client closes
		return client, nil
	}
	inTime(t, frozen, func(t *testing.T, node *redisnode.Node) {
		most := 0
		for range 10_000 {
			a, took := timed(node, 200*time.Millisecond, take("a"))
			if !errors.Is(a.err, redlock.ErrNotSent) || took > 200*time.Millisecond {
				t.Fatalf("got %v after %v", a.err, took)
			}
			time.Sleep(time.Second)
			most = max(most, runtime.NumGoroutine())
		}
		if most > 40 {
			t.Errorf("%d goroutines", most)
		}
	})
}

func TestKeyLivesForItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		node, err := redisnode.New(redisnode.Config{Address: "node:6379", Dial: func(context.Context, string, string) (net.Conn, error) {
			return server.Dial()
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = node.Close() }()
		expect := func(token string, want redlock.Outcome) {
			t.Helper()
			if a, _ := timed(node, time.Second, take(token)); a.err != nil || a.reply.Outcome != want {
				t.Fatalf("take by %s: got %v, %v, want %v", token, a.reply.Outcome, a.err, want)
			}
		}
		expect("a", redlock.Taken)
		time.Sleep(59 * time.Second)
		expect("b", redlock.Held)
		expect("a", redlock.Extended)
		time.Sleep(59 * time.Second)
		expect("b", redlock.Held)
		time.Sleep(time.Second)
		expect("b", redlock.Taken)
	})
}

// muted is a connection that can be made to hear nothing any more.
type muted struct {
	net.Conn
	on *atomic.Bool
}

func (m muted) Read(p []byte) (int, error) {
	for {
		n, err := m.Conn.Read(p)
		if err != nil || !m.on.Load() {
			return n, err
		}
	}
}

func TestSilentSubscriptionIsAskedRarelyAndReplacedWhenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mute atomic.Bool
		server := miniredis.NewMiniRedis()
		defer server.Close()
		node, err := redisnode.New(redisnode.Config{Address: "node:6379", Dial: func(context.Context, string, string) (net.Conn, error) {
			conn, err := server.Dial()
			return muted{conn, &mute}, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = node.Close() }()
		notices := make(chan redlock.Notice, 10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go node.Subscribe(ctx, keys.Channel, func(n redlock.Notice) { notices <- n })
		expect := func(kind redlock.NoticeKind) {
			t.Helper()
			if n := <-notices; n.Kind != kind {
				t.Fatalf("got %+v, want kind %d", n, kind)
			}
		}
		expect(redlock.NoticeSubscribed)

		before := server.CommandCount()
		time.Sleep(20 * time.Minute)
		if len(notices) != 0 {
			t.Fatalf("%d notices while nothing happened", len(notices))
		}
		// Twice a minute a ping, and once or twice the three questions of INFO.
		if n := server.CommandCount() - before; n > 20*(2+2*3) {
			t.Errorf("%d commands in 20 minutes", n)
		}

		mute.Store(true)
		begin := time.Now()
		expect(redlock.NoticeLost)
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("noticed after %v", took)
		}
		mute.Store(false)
		expect(redlock.NoticeSubscribed)
	})
}

// The alarm that an earlier request has set may ring in the middle of a later one's
// answer, which still has its time.
func TestAnAlarmInTheMiddleOfAnAnswerEndsNothing(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go halting(server)
		return client, nil
	}
	inTime(t, dial, func(t *testing.T, node *redisnode.Node) {
		if a, _ := timed(node, redisnode.DefaultNodeTimeout, take("a")); a.err != nil {
			t.Fatal(a.err)
		}
		time.Sleep(redisnode.DefaultNodeTimeout - 30*time.Millisecond) // with the 20 ms of the first answer it rings in 10 ms
		if a, took := timed(node, redisnode.DefaultNodeTimeout, take("a")); a.err != nil {
			t.Errorf("after %v: %v", took, a.err)
		}
	})
}

// halting answers, and pauses in the middle of each answer to a script.
func halting(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		reply := answering(func([]string) string { return outcome(1) })(command)
		if command[0] == "evalsha" {
			_, _ = io.WriteString(conn, reply[:10])
			time.Sleep(20 * time.Millisecond)
			reply = reply[10:]
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}
