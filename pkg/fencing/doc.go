// Package fencing is for what an active process writes to, and for the process itself:
// it keeps the writes of a holder that was paused, and does not know that its term is
// over, from landing.
//
// Each term of a podlease lock has a token, a number that grows from term to term. The
// holder sends its token with each write ([Sidecar] asks the sidecar for it, [SetHeader]
// puts it into a request). What it writes to keeps the greatest token that it has seen
// and refuses smaller ones: a database row does that in its UPDATE, a service with a
// [Guard].
//
// Tokens of one lock are comparable, those of two locks are not: what several locks
// protect needs a Guard for each. A token is not a credential: whoever may send one
// can send a large one and so shut the holder out. Authenticate callers.
//
// docs/fencing.md has recipes for databases, services and Redis, and what tokens do
// not promise.
package fencing
