package fencing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Header carries the token in HTTP: in requests of a holder, and in the answers of an
// active sidecar.
const Header = "Podlease-Fencing-Token"

// SetHeader puts a token into a request's header.
func SetHeader(h http.Header, token uint64) { h.Set(Header, strconv.FormatUint(token, 10)) }

// FromHeader reads the token of a request. One that is missing, twice there or no
// number from 1 to [MaxToken] is an error that says so.
func FromHeader(h http.Header) (uint64, error) {
	values := h.Values(Header)
	if len(values) != 1 {
		return 0, fmt.Errorf("header %s: there are %d of them, want one: the fencing token of the sender's term", Header, len(values))
	}
	token, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("header %s: %q is no fencing token, want an integer from 1 to %d", Header, values[0], uint64(MaxToken))
	}
	if err := check(token); err != nil {
		return 0, fmt.Errorf("header %s: %w", Header, err)
	}
	return token, nil
}

type tokenKey struct{}

// FromContext is the token of the request that a handler behind [RequireToken] or
// [Guard.Handler] serves; 0 elsewhere.
func FromContext(ctx context.Context) uint64 {
	token, _ := ctx.Value(tokenKey{}).(uint64)
	return token
}

// RequireToken hands requests that carry a token to next, and the token with them
// ([FromContext]), for storage that compares it in the transaction of the write. Others
// are answered 400 Bad Request: the sender does not take part in the protocol, which no
// retry mends.
func RequireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := FromHeader(r.Header)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
	})
}

// Handler hands requests to next whose token g accepts: all others get no further than
// this. A header that is missing or malformed is answered 400, as by [RequireToken]; a
// token that is too old 412 Precondition Failed. Not 409 Conflict, which invites the
// sender to resolve the conflict and send again (RFC 9110, 15.5.10): the term is over,
// and no repetition of this request can ever be right.
//
// Requests are served one at a time, since a write that was accepted must not land
// after a newer one. Wrap the routes that write and not those that read, have the server
// bound how long a request may take to arrive (http.Server.ReadTimeout), or use
// RequireToken and compare in the storage.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return RequireToken(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := g.Do(FromContext(r.Context()), func() error {
			next.ServeHTTP(w, r)
			return nil
		})
		if stale, ok := errors.AsType[*StaleError](err); ok {
			http.Error(w, stale.Error(), http.StatusPreconditionFailed)
		}
	}))
}
