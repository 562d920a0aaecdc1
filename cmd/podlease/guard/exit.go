// Package guard runs a command only while a lease is held.
//
// What the command may do is decided from the clock and from answers that are dated with
// the time at which the question was sent, never from silence: when nobody answers, the
// time of the last answer runs out and with it the command. The command's processes are
// dead before the lease can be given to somebody else.
package guard

// The exit codes of the guard's own. Those of the command are passed on.
const (
	ExitLost   = 42 // the lease was lost while the command ran, and that was to be the end
	ExitGaveUp = 75 // the lease was not to be had in time (EX_TEMPFAIL)
)

// ExitError is an end of the guard's own making.
type ExitError struct {
	Code int
	Text string
}

func (e *ExitError) Error() string { return e.Text }
