package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// account writes the running account: one line for each thing that happens.
type account struct {
	out   io.Writer
	color bool
}

// The ANSI colours of the lines.
const (
	plain  = ""
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
)

func (a *account) say(format string, args ...any) {
	fmt.Fprintf(a.out, format+"\n", args...)
}

// prologue says what runs, where it can be asked and how to read the lines.
func (a *account) prologue(s *stage) {
	a.say("podlease demo: one lock, %d embedded Redis nodes (miniredis) and %d candidates in this process.", nodes, candidates)
	a.say("Quarantine is off here: a node that lost its keys may grant the lock at once, which is not safe outside a demo.")
	a.say("Lease %v, something happens every %v; Ctrl-C ends it.\n", s.opt.TTL, s.opt.Interval)
	a.say("Redis nodes   %s", strings.Join(s.addresses(), "  "))
	for _, m := range s.members {
		a.say("%-12s  %s/v1/leadership", m.name, m.url())
	}
	url := s.members[0].url()
	a.say("\nTry, in another terminal, with the address of any candidate:")
	a.say("  curl -i %s/leader                      # 200 while active, else 503", url)
	a.say("  curl %s/v1/leadership                  # who holds the lock, with the fencing token", url)
	a.say("  curl -N '%s/v1/leadership?watch=true'  # a line for every change", url)
	a.say("  for a in %s; do curl -sfX POST \"$a/v1/step-down?for=2s\" && break; done  # whoever is active hands over", strings.Join(s.endpoints(), " "))
	a.say("\nactive: it alone may act; whatever it writes to should refuse smaller tokens than the largest seen.")
	a.say("hand-over: the holder is asked to release the lock, does so and tells the others; the time is how long nobody was active.")
	a.say("fail-over: the holder is gone without a word; its keys run out after at most the lease of %v.", s.opt.TTL)
	a.say("take-over: the lease ended in some other way, such as that too few nodes answered in time.\n")
}

func (a *account) active(l election.Leadership, cause string) {
	a.line(l.Since, green, l.Identity, "active", fmt.Sprintf("token %d  (%s)", l.FencingToken, cause))
}

func (a *account) standby(l election.Leadership) {
	a.line(l.Since, plain, l.Identity, "standby", "("+l.Reason+")")
}

func (a *account) crash(name string) {
	a.line(time.Now(), red, name, "crashes", "(connections cut, nothing released)")
}

func (a *account) note(name, what, why string) {
	a.line(time.Now(), yellow, name, what, "("+why+")")
}

func (a *account) line(at time.Time, color, name, what, rest string) {
	text := fmt.Sprintf("%s  %-12s  %-12s  %s", at.Format("15:04:05.000"), name, what, rest)
	if a.color && color != plain {
		text = color + text + "\x1b[0m"
	}
	a.say("%s", text)
}

// span prints a duration the way a person reads it.
func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
