//go:build !linux

package boottime

import "time"

// epoch lies an hour back so that values are never zero.
var epoch = time.Now().Add(-time.Hour)

// now falls back to Go's monotonic clock, which may stand still during a
// suspend. The programs are shipped for Linux only; elsewhere this serves tests
// and the demo.
func now() time.Duration { return time.Since(epoch) }
