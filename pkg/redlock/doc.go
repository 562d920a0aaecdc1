// Package redlock holds leases on N independent nodes: the Redlock algorithm of
// the Redis documentation, with renewal, loss told in time, wake-up by push and
// fencing tokens.
//
// A [Locker] knows the nodes; those that are Redis servers are made by package redisnode. [Locker.Acquire] waits for a lease, [Locker.TryAcquire]
// asks once. A [Lease] is valid for as long as [Lease.Holding] says so, which is a
// function of the clock and nothing else; [Lease.Keep] renews it.
//
// # What is promised
//
// No two leases on one lock are holding at the same instant, provided that every
// clock runs within 0.5 % of true time and node clocks do not step by more than a
// hundredth of the TTL; that a node forgets only by restarting; that all candidates
// use the same quarantine, which covers the longest TTL any of them uses; and that
// their lists of nodes are at most one added or removed node apart.
//
// # What is not promised
//
// A process may be paused after it asked whether it is holding and before it acts.
// No lock that expires can prevent that. Every lease therefore carries a fencing
// token that grows with each term (see [Lease.FencingToken]); storage that refuses a
// smaller token than it has seen is safe whatever happens (Kleppmann, "How to do
// distributed locking", 2016).
//
// # How it works
//
// Each node has one vote. A vote is dated from the moment its request was sent and is
// valid for a TTL less one hundredth. The lease's deadline is the q-th latest vote,
// where q is the majority of the configured nodes. The one invariant is that on one
// node valid votes of two tokens never overlap; docs/architecture.md has the rules.
package redlock
