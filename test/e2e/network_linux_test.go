package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/podlease/podlease/test/recorder"
)

// dialIn dials from inside a network namespace, so that a Pod answers also when its
// node is cut off; from where the test runs if the namespace is empty.
func dialIn(network, addr string) recorder.Dial {
	if network == "" {
		return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", addr) }
	}
	return func(ctx context.Context) (conn net.Conn, err error) {
		// The namespace is the thread's. If it cannot be left again the thread stays
		// locked, and ends with its goroutine.
		runtime.LockOSThread()
		leave, err := enter(network)
		if err != nil {
			runtime.UnlockOSThread()
			return nil, err
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if failed := leave(); failed != nil {
			return conn, failed
		}
		runtime.UnlockOSThread()
		return conn, err
	}
}

// enter puts the calling thread into a network namespace.
func enter(network string) (leave func() error, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	target, err := os.Open(network)
	if err != nil {
		_ = home.Close()
		return nil, err
	}
	defer func() { _ = target.Close() }()
	if err := setns(target); err != nil {
		_ = home.Close()
		return nil, fmt.Errorf("enter %s: %w", network, err)
	}
	return func() error {
		defer func() { _ = home.Close() }()
		return setns(home)
	}, nil
}

func setns(f *os.File) error { return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) }
