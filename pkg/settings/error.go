package settings

import "fmt"

// Error is a wrong setting. Its text is one line that names the flag, the value and
// what is allowed.
type Error struct {
	Flag string // without dashes; empty where no known flag is concerned
	Text string
}

func (e *Error) Error() string { return e.Text }

// Reject makes the error about a flag's value; allowed completes "want …". It names
// the environment variable if the value came from there.
func (f *Flags) Reject(name, value, allowed string) error {
	origin := ""
	if f.fromEnv[name] {
		origin = " (from " + Variable(name) + ")"
	}
	return &Error{Flag: name, Text: fmt.Sprintf("--%s %q%s is not allowed: want %s", name, value, origin, allowed)}
}

// Require makes the error about a flag that has to be given and was not.
func (f *Flags) Require(name string) error {
	return &Error{Flag: name, Text: fmt.Sprintf("--%s (or %s) is required: want %s", name, Variable(name), f.allowed[name])}
}
