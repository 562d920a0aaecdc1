package redlock

import "time"

// Options configure a Locker.
type Options struct {
	// TTL is how long a lease lasts without renewal, at least 500 ms.
	TTL time.Duration
	// RenewInterval is how often a held lease is renewed; 0 means TTL/5.
	RenewInterval time.Duration
	// StopBudget is how long before the lease can be given away its holder stops
	// holding it. A negative value is meant for tests that show the harm.
	StopBudget time.Duration
	// NodeTimeout bounds one request at one node; 0 means TTL/50, within 20 ms to
	// 500 ms.
	NodeTimeout time.Duration
	// Quarantine is how long a node must be up before it grants a new lease; 0 means
	// no quarantine.
	Quarantine time.Duration
	// KeyPrefix is put before keys and channels.
	KeyPrefix string
	// BareKey uses the lock's name itself as its key.
	BareKey bool
	// Identity tells people who holds a lease.
	Identity string
	// NoFencing leaves the counter of fencing tokens alone.
	NoFencing bool
	// Clock is a monotonic clock that counts suspends; nil means boottime.Now.
	Clock func() time.Duration
}

// Locker takes leases on a fixed list of nodes.
type Locker struct{}
