// Package recipes shows how storage refuses the writes of an old holder of a podlease
// lock: a row and a transaction in SQL, an HTTP service, a Redis key, and the term as a
// value to compare. docs/fencing.md explains them; the tests try each on the real thing,
// with a holder that is paused and writes too late.
package recipes

import "errors"

// ErrStale is what a recipe returns for a write that was refused: the caller's term is
// over, or, where a term may write once, used up. Nothing was written.
var ErrStale = errors.New("refused: the term of this write is over, or has written already; ask for the leadership again before acting")
