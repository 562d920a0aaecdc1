//go:build unix

package redisnode

import (
	"errors"
	"io"
	"net"
	"syscall"
)

func syscallConn(conn net.Conn) syscall.RawConn {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// gone tells, without sending anything, why an idle connection cannot be used any
// more, or nil. Data that nobody asked for is a TLS goodbye, or means that
// question and answer are out of step.
func (s *session) gone() error {
	if s.sys == nil {
		return nil
	}
	var state error
	// Not Read: the goroutine that waits for answers has the right to read.
	err := s.sys.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		case err != nil:
			state = err
		case n == 0:
			state = io.EOF
		default:
			state = errUnasked
		}
	})
	if err != nil {
		return err
	}
	return state
}
