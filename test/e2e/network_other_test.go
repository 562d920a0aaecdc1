//go:build !linux

package e2e_test

import (
	"context"
	"net"

	"github.com/podlease/podlease/test/recorder"
)

// dialIn dials from where the test runs: only Linux makes clusters of its own.
func dialIn(_, addr string) recorder.Dial {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", addr) }
}
