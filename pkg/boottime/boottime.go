// Package boottime reads a clock that goes on while the machine is suspended.
//
// Go's own monotonic clock is CLOCK_MONOTONIC on Linux, which stands still
// during a suspend (golang/go#24595): a lease measured with it would still look
// valid after hours of sleep. CLOCK_BOOTTIME counts that time. Neither counts a
// pause by a hypervisor that stops the guest's clocks as well; only a fencing
// token covers that.
package boottime

import "time"

// Now returns the time since an arbitrary fixed origin (on Linux the boot of the
// machine), suspends included. It never goes backwards and is the same for all
// processes of one machine, so values of two processes can be compared. They
// mean nothing on another machine or after a reboot.
func Now() time.Duration { return now() }
