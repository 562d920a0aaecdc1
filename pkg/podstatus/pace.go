package podstatus

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/apiserver"
)

// How long to wait for an answer. A server that accepts and never answers is given up
// for a fresh connection after as long as a candidate waits for its label at the end of
// a term; one that says itself that it was too slow gets longer.
const (
	tryTimeout     = time.Second
	patientTimeout = 4 * time.Second
)

// How long to wait between tries.
const (
	firstRetry = 100 * time.Millisecond
	// maxRetry is the longest wait while the API server is away, so that labels are
	// right within 2 s of its return.
	maxRetry = time.Second
	// maxUnauthorized is the longest wait for the kubelet to renew the token.
	maxUnauthorized = 5 * time.Second
	// maxRefused is the longest wait when it answers and refuses: that takes somebody
	// to change something.
	maxRefused = 30 * time.Second
)

// recheckAfter is when a confirmed patch is sent again after tries without an answer:
// a server that was frozen carries those out when it thaws, perhaps after the one it
// confirmed.
var recheckAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

// pace spaces the tries.
type pace struct {
	streak    int   // failures of one kind in a row
	code      int   // that kind
	tried     state // what the last failed try was to show
	notBefore time.Time
	firm      bool // notBefore holds whatever is to be shown: the server asked for it
	rechecks  int  // how many of recheckAfter are to come
	recheck   bool // one is due at notBefore
}

// due tells in how long the next try is due, if ever.
func (p *pace) due(want state, agrees bool) (time.Duration, bool) {
	wait := time.Until(p.notBefore)
	switch {
	case agrees && !p.recheck:
		return 0, false
	case agrees, p.streak > 0 && (p.firm || want == p.tried):
		return wait, true
	}
	return 0, true
}

func (p *pace) succeeded() {
	p.streak, p.firm, p.recheck = 0, false, p.rechecks > 0
	if p.recheck {
		p.notBefore = time.Now().Add(recheckAfter[len(recheckAfter)-p.rechecks])
		p.rechecks--
	}
}

func (p *pace) failed(want state, err error) {
	if isOpen(err) {
		p.rechecks = len(recheckAfter)
	}
	// An API server that has just come back refuses everybody until it has read who
	// may do what: its first refusal after a silence says little.
	if code := kind(err); code != p.code {
		p.streak, p.code = 0, code
	}
	wait := min(longest(err), firstRetry<<min(p.streak, 20))
	wait = wait/2 + rand.N(wait/2+1)
	refusal := apiserver.Refused(err)
	p.firm = refusal != nil && refusal.RetryAfter > 0
	if p.firm {
		wait += min(refusal.RetryAfter, maxRefused)
	}
	p.streak++
	p.tried, p.notBefore = want, time.Now().Add(wait)
}

func longest(err error) time.Duration {
	switch code := kind(err); {
	case code == 0, code >= 500, code == http.StatusConflict, code == http.StatusTooManyRequests:
		return maxRetry
	case code == http.StatusUnauthorized:
		return maxUnauthorized
	}
	return maxRefused
}

// isGone reports whether the API server itself says that there is no such Pod, or
// that the one of that name has another uid.
func isGone(err error) bool {
	r := apiserver.Refused(err)
	return r != nil && (r.Code == http.StatusNotFound && r.Reason == "NotFound" || isOtherUID(r))
}

// isOpen reports whether what was asked for may have been done, or may yet be.
func isOpen(err error) bool {
	code := kind(err)
	return code == 0 || code >= 500
}

// kind tells failures apart for the log: the HTTP status, or 0 without an answer.
func kind(err error) int {
	if r := apiserver.Refused(err); r != nil {
		return r.Code
	}
	return 0
}

// isOtherUID knows both answers to a patch with another uid: today's, that the field is
// immutable, and a failed precondition.
func isOtherUID(r *apiserver.StatusError) bool {
	switch r.Code {
	case http.StatusUnprocessableEntity:
		return slices.Contains(r.Fields, "metadata.uid")
	case http.StatusConflict:
		return strings.Contains(r.Message, "UID in precondition")
	}
	return false
}
