package boottime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// CLOCK_BOOTTIME exists since Linux 2.6.39. Without a clock nothing can be
		// said about a lease, and saying something wrong is the one thing not to do.
		panic(fmt.Sprintf("boottime: read CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}
