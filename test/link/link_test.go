package link_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/podlease/podlease/test/link"
)

// echo serves what it reads.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

// patience is for what comes at once on an idle machine.
const patience = 10 * time.Second

// client is a connection through a link to an echo server.
type client struct {
	net.Conn
	t *testing.T
}

func dial(t *testing.T, l *link.Link) client {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c, t}
}

func (c client) say(text string) error {
	_, err := io.WriteString(c, text)
	return err
}

// hear expects the three letters that were said.
func (c client) hear(within time.Duration) error {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 3)
	_, err := io.ReadFull(c, buf)
	if err == nil && string(buf) != "one" {
		c.t.Errorf("read %q", buf)
	}
	return err
}

func (c client) exchange() error {
	c.t.Helper()
	if err := c.say("one"); err != nil {
		return err
	}
	return c.hear(patience)
}

func TestCutHoldsBackAndMendDelivers(t *testing.T) {
	for name, cut := range map[string]func(*link.Link){
		"both ways": (*link.Link).Cut,
		"requests":  func(l *link.Link) { l.CutWay(link.Requests) },
		"replies":   func(l *link.Link) { l.CutWay(link.Replies) },
	} {
		t.Run(name, func(t *testing.T) {
			l := link.Start(t, echo(t))
			c := dial(t, l)
			if err := c.exchange(); err != nil {
				t.Fatal(err)
			}
			cut(l)
			if err := c.say("one"); err != nil {
				t.Fatal(err)
			}
			if err := c.hear(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("through a cut link: %v, want nothing in time", err)
			}
			l.Mend()
			if err := c.hear(patience); err != nil {
				t.Fatalf("what was held back did not come: %v", err)
			}
		})
	}
}

func TestBreakLosesWhatWasHeldBack(t *testing.T) {
	l := link.Start(t, echo(t))
	c := dial(t, l)
	if err := c.exchange(); err != nil {
		t.Fatal(err)
	}
	l.CutWay(link.Replies)
	if err := c.say("one"); err != nil {
		t.Fatal(err)
	}
	l.Break()
	l.Mend()
	if err := c.hear(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("on a broken connection: %v, want its end", err)
	}
	if err := dial(t, l).exchange(); err != nil {
		t.Fatalf("a new connection: %v", err)
	}
}

func TestAbandonedConnectionsSayNothing(t *testing.T) {
	l := link.Start(t, echo(t))
	c := dial(t, l)
	if err := c.exchange(); err != nil {
		t.Fatal(err)
	}
	l.Abandon()
	for range 3 {
		if err := c.say("one"); err != nil {
			t.Fatalf("the client was told: %v", err)
		}
		if err := c.hear(20 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("on a half-open connection: %v, want nothing in time", err)
		}
	}
	if err := dial(t, l).exchange(); err != nil {
		t.Fatalf("a new connection: %v", err)
	}
}

func TestSlowDelaysEachWay(t *testing.T) {
	l := link.Start(t, echo(t))
	c := dial(t, l)
	l.Slow(50*time.Millisecond, 10*time.Millisecond)
	began := time.Now()
	if err := c.exchange(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("there and back took %v, want at least 100ms", took)
	}
}

func TestTrapSpringsOnceBeforeTheRequestPasses(t *testing.T) {
	l := link.Start(t, echo(t))
	c := dial(t, l)
	sprung, goOn := make(chan struct{}, 2), make(chan struct{})
	l.Trap(func() {
		sprung <- struct{}{}
		<-goOn
	})
	if err := c.say("one"); err != nil {
		t.Fatal(err)
	}
	<-sprung
	if err := c.hear(20 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("in the trap: %v, want nothing in time", err)
	}
	close(goOn)
	if err := c.hear(patience); err != nil {
		t.Fatal(err)
	}
	if err := c.exchange(); err != nil {
		t.Fatal(err)
	}
	if len(sprung) != 0 {
		t.Error("sprung twice")
	}
}
