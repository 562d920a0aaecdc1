//go:build !unix

package redisnode

import (
	"net"
	"syscall"
)

func syscallConn(net.Conn) syscall.RawConn { return nil }

func (s *session) gone() error { return nil }
