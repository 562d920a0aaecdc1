package fencing

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// MaxToken is the greatest token that is accepted: podlease's are below 2^53, so that
// every JSON reader keeps them exact. A guard that remembered a greater one, sent by
// mistake, would refuse every holder to come.
const MaxToken = 1<<53 - 1

// Guard remembers the greatest token seen and refuses smaller ones. The zero Guard has
// seen none, accepts any number of writes per term, and is ready for use. It is safe for
// concurrent use and must not be copied.
//
// A Guard lives in memory. One in front of something that outlives the process has to
// be told with [Guard.Remember] what was accepted before, or the first old write after a
// restart lands. Two processes that write to the same thing need the comparison in
// that thing, not a Guard each.
type Guard struct {
	// OncePerTerm refuses a second write with the same token too: for work that must not
	// be done twice by one holder either, such as a retry after a lost answer. A token
	// counts as used even if its write returned an error, which may have come too late.
	OncePerTerm bool

	turn     sync.Mutex // held while a write runs
	greatest atomic.Uint64
}

// StaleError tells that a write was refused because of what was seen before.
type StaleError struct {
	// Token is the one that was refused, Greatest the greatest one seen.
	Token, Greatest uint64
}

// Error says what to do, too.
func (e *StaleError) Error() string {
	if e.Token == e.Greatest {
		return fmt.Sprintf("fencing token %d has been used, and each term may write once: look at what was written instead of writing again", e.Token)
	}
	return fmt.Sprintf("fencing token %d is older than %d, the greatest one seen here: a newer holder has written since; stop, and ask for the leadership again before acting",
		e.Token, e.Greatest)
}

// Do runs write if the token may write, one write at a time: between the comparison
// and the end of the write no newer token is accepted, so that an accepted write cannot
// land after a newer one. It returns a [*StaleError] if a greater token was seen, and
// else what write returns.
func (g *Guard) Do(token uint64, write func() error) error {
	if err := check(token); err != nil {
		return err
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	greatest := g.greatest.Load()
	if token < greatest || token == greatest && g.OncePerTerm {
		return &StaleError{Token: token, Greatest: greatest}
	}
	g.greatest.Store(token)
	return write()
}

// Check is Do without a write: for a writer that holds the token and the data under a
// lock of its own. On its own it decides nothing: a newer token may be accepted, and
// write, before the caller does.
func (g *Guard) Check(token uint64) error {
	return g.Do(token, func() error { return nil })
}

// Remember tells the guard of a token that was accepted earlier, by a former process. A
// token smaller than the greatest one seen changes nothing.
func (g *Guard) Remember(token uint64) {
	g.turn.Lock()
	defer g.turn.Unlock()
	if token > g.greatest.Load() {
		g.greatest.Store(token)
	}
}

// Greatest is the greatest token seen, 0 when none was. It does not wait for a write
// that is running.
func (g *Guard) Greatest() uint64 { return g.greatest.Load() }

func check(token uint64) error {
	if token == 0 || token > MaxToken {
		return fmt.Errorf("fencing token %d: want 1 to %d; 0 is what a sidecar answers that is not active, or has --fencing=off", token, uint64(MaxToken))
	}
	return nil
}
