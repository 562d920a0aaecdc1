package settings

import (
	"fmt"
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/podlease/podlease/pkg/redlock"
)

// The bounds of a lease's settings. docs/architecture.md has the reasons.
const (
	MinTTL = 500 * time.Millisecond
	// LongTTL is the longest TTL that the default quarantine covers.
	LongTTL = 30 * time.Second
	// MaxName is how many characters the name of a lock, a prefix or an identity has
	// at most. A Pod's namespace and name together have up to 317.
	MaxName     = 200
	MaxIdentity = 400
)

// UnsafeVariable is the variable that, set to 1, lets the stop budget be negative, for
// tests that show what the budget is good for. Nothing else looks at it.
const UnsafeVariable = EnvPrefix + "UNSAFE_TESTING"

// Lease is what every program that holds a lease is told about it.
type Lease struct {
	Lock      string
	KeyPrefix string
	BareKey   bool

	TTL           time.Duration
	RenewInterval time.Duration
	StopBudget    time.Duration
	NodeTimeout   time.Duration
	Quarantine    time.Duration

	// Unsafe says that the stop budget is negative, so that two holders may be
	// active at once.
	Unsafe bool
}

// AddFlags adds the lease's flags to f.
func (l *Lease) AddFlags(f *Flags) {
	f.String(&l.Lock, "", Flag{Name: "lock", Usage: "the lock's name", Default: "none, it is required", Allowed: lockAllowed})
	f.String(&l.KeyPrefix, "podlease:", Flag{Name: "key-prefix", Usage: "put before every key and channel", Allowed: printableAllowed(MaxName)})
	f.Bool(&l.BareKey, false, Flag{Name: "bare-key", Usage: "use the lock's name itself as the key, to share a lock with other Redlock clients"})
	f.Duration(&l.TTL, 10*time.Second, Flag{Name: "ttl", Usage: "how long a lease lasts without renewal", Allowed: ttlAllowed})
	f.Duration(&l.RenewInterval, 0, Flag{Name: "renew-interval", Usage: "how often a held lease is renewed", Default: "ttl/5", Allowed: "a duration above 0s, such as 2s"})
	f.Duration(&l.StopBudget, 0, Flag{Name: "stop-budget", Usage: "how long before the lease can be given away its holder stops being active", Default: "ttl/4", Allowed: stopAllowed})
	f.Duration(&l.NodeTimeout, 0, Flag{Name: "node-timeout", Usage: "how long one command at one node may take", Default: "ttl/50, within 20ms to 500ms", Allowed: "a duration of at least 1ms and at most a tenth of --ttl, such as 200ms"})
	f.Duration(&l.Quarantine, 0, Flag{Name: "quarantine", Usage: "how long a node must be up before it grants a new lease; the same for all candidates of a lock, and at least the longest TTL any of them uses", Default: "the larger of ttl and 30s, plus 1s", Allowed: quarantineAllowed})
}

const (
	lockAllowed       = "1 to 200 of A-Z a-z 0-9 . _ / -, without // and without / at either end"
	ttlAllowed        = "a duration of at least 500ms in whole milliseconds, such as 10s; above 30s only together with --quarantine"
	stopAllowed       = "a duration from 0s to below --ttl, such as 2500ms"
	quarantineAllowed = "a duration of at least --ttl, such as 31s, or 0s to turn it off"
)

func printableAllowed(limit int) string {
	return fmt.Sprintf("1 to %d printable characters without spaces", limit)
}

// Complete works out the defaults that depend on other settings, and checks
// everything. The strings it returns are warnings for people.
func (l *Lease) Complete(f *Flags) (warnings []string, err error) {
	if err := l.checkNames(f); err != nil {
		return nil, err
	}
	if l.TTL < MinTTL || l.TTL%time.Millisecond != 0 || (l.TTL > LongTTL && !f.Given("quarantine")) {
		return nil, f.Reject("ttl", l.TTL.String(), ttlAllowed)
	}
	l.setDefaults(f)
	if err := l.checkTimes(f); err != nil {
		return nil, err
	}
	return l.warnings(), nil
}

// CompleteBoth completes the lease's settings and then the nodes', and returns the
// warnings of both.
func CompleteBoth(l *Lease, r *Redis, f *Flags) (warnings []string, err error) {
	ofLease, err := l.Complete(f)
	if err != nil {
		return nil, err
	}
	ofNodes, err := r.Complete(f)
	if err != nil {
		return nil, err
	}
	return append(ofLease, ofNodes...), nil
}

// Options are the settings of a lock's candidate of that identity, after Complete.
func (l *Lease) Options(identity string) redlock.Options {
	return redlock.Options{
		TTL: l.TTL, RenewInterval: l.RenewInterval, StopBudget: l.StopBudget, NodeTimeout: l.NodeTimeout,
		Quarantine: l.Quarantine, KeyPrefix: l.KeyPrefix, BareKey: l.BareKey, Identity: identity,
	}
}

func (l *Lease) setDefaults(f *Flags) {
	set := func(name string, p *time.Duration, def time.Duration) {
		if !f.Given(name) {
			*p = def
		}
	}
	set("renew-interval", &l.RenewInterval, l.TTL/5)
	set("stop-budget", &l.StopBudget, l.TTL/4)
	set("node-timeout", &l.NodeTimeout, min(max(l.TTL/50, 20*time.Millisecond), 500*time.Millisecond))
	set("quarantine", &l.Quarantine, max(l.TTL, LongTTL)+time.Second)
}

var lockName = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

func (l *Lease) checkNames(f *Flags) error {
	switch {
	case l.Lock == "":
		return f.Require("lock")
	case l.BareKey && !printable(l.Lock, MaxName):
		return f.Reject("lock", l.Lock, "with --bare-key "+printableAllowed(MaxName))
	case !l.BareKey && (len(l.Lock) > MaxName || !lockName.MatchString(l.Lock)):
		return f.Reject("lock", l.Lock, lockAllowed)
	case !printable(l.KeyPrefix, MaxName):
		return f.Reject("key-prefix", l.KeyPrefix, printableAllowed(MaxName))
	}
	return nil
}

func (l *Lease) checkTimes(f *Flags) error {
	l.Unsafe = l.StopBudget < 0
	switch {
	case l.RenewInterval <= 0:
		return f.Reject("renew-interval", l.RenewInterval.String(), f.allowed["renew-interval"])
	case l.NodeTimeout < time.Millisecond || l.NodeTimeout > l.TTL/10:
		return f.Reject("node-timeout", l.NodeTimeout.String(), f.allowed["node-timeout"])
	case l.StopBudget >= l.TTL || (l.Unsafe && f.Env(UnsafeVariable) != "1"):
		return f.Reject("stop-budget", l.StopBudget.String(), stopAllowed)
	case l.Quarantine != 0 && l.Quarantine < l.TTL:
		return f.Reject("quarantine", l.Quarantine.String(), quarantineAllowed)
	}
	return l.checkFit(f)
}

// checkFit makes sure that three renewals can be tried before the holder stops being
// active: one lost packet must not cost a lease.
func (l *Lease) checkFit(f *Flags) error {
	window := l.TTL - l.TTL/100 - l.StopBudget
	if l.RenewInterval <= (window-l.NodeTimeout)/3 {
		return nil
	}
	name, value := "renew-interval", l.RenewInterval
	if !f.Given(name) {
		name, value = "stop-budget", l.StopBudget
	}
	return f.Reject(name, value.String(), fmt.Sprintf(
		"3 × renew interval (%v) + node timeout (%v) to fit into ttl - ttl/100 - stop budget (%v)", l.RenewInterval, l.NodeTimeout, window))
}

func (l *Lease) warnings() []string {
	var w []string
	if l.Quarantine == 0 {
		w = append(w, "quarantine is off: a node that lost its data grants the lock again at once, so two holders are possible after a restart of nodes")
	}
	if l.Unsafe {
		w = append(w, "the stop budget is negative: two holders will be active at once; this is for tests only")
	}
	return w
}

// printable reports whether s has 1 to limit characters that can be seen.
func printable(s string, limit int) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > limit {
		return false
	}
	for _, r := range s {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			return false
		}
	}
	return true
}
