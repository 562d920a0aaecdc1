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

func TestCutHoldsBackAndMendDelivers(t *testing.T) {
	l := link.Start(t, echo(t))
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange := func(text string, patience time.Duration) error {
		_ = c.SetDeadline(time.Now().Add(patience))
		if text != "" {
			if _, err := io.WriteString(c, text); err != nil {
				return err
			}
		}
		buf := make([]byte, 3)
		_, err := io.ReadFull(c, buf)
		if err == nil && string(buf) != "one" {
			t.Errorf("read %q", buf)
		}
		return err
	}
	if err := exchange("one", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	if err := exchange("one", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("through a cut link: %v, want nothing in time", err)
	}
	l.Mend()
	if err := exchange("", 10*time.Second); err != nil {
		t.Fatalf("what was held back did not come: %v", err)
	}
}
