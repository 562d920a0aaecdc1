package guard

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// BootAlarm is an Alarm on CLOCK_BOOTTIME. It costs nothing until its time, and where
// the machine was suspended past that, it rings as soon as the machine runs on; Go's own
// timers stand still meanwhile (golang/go#24595).
type BootAlarm struct {
	file  *os.File
	fd    int
	rings chan struct{}
}

// NewBootAlarm makes an alarm that is not set.
func NewBootAlarm() (*BootAlarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer that counts suspends: %w", err)
	}
	a := &BootAlarm{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd, rings: make(chan struct{}, 1)}
	go a.listen()
	return a, nil
}

// listen passes on each ring until the alarm is closed.
func (a *BootAlarm) listen() {
	var times [8]byte
	for {
		if _, err := a.file.Read(times[:]); err != nil {
			return
		}
		if binary.NativeEndian.Uint64(times[:]) > 0 {
			select {
			case a.rings <- struct{}{}:
			default:
			}
		}
	}
}

// Set implements Alarm.
func (a *BootAlarm) Set(at time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at, 1).Nanoseconds())} // zero would turn it off
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		a.rings <- struct{}{} // look at the clock at once rather than never
	}
}

// Rings implements Alarm.
func (a *BootAlarm) Rings() <-chan struct{} { return a.rings }

// Close frees the timer.
func (a *BootAlarm) Close() error { return a.file.Close() }
