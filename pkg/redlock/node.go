package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Node is one independent lock server. The algorithm only ever talks to nodes
// through it; [github.com/podlease/podlease/pkg/redlock/redisnode] implements it
// on Redis.
//
// An implementation keeps the requests of one key in order: a release sent after
// a take is never executed before it, unless the connection between them broke.
type Node interface {
	// Name tells the node in messages and metrics. It is unique within a list.
	Name() string
	// Send starts a request and returns at once. It calls done exactly once,
	// possibly before it returns and possibly from another goroutine, with the
	// reply or an error. ctx carries the request's deadline and its Err tells when it
	// has passed, but it may have no Done channel: what has to happen then needs a timer.
	// An implementation may be late to report it, but may not start the request after it.
	//
	// An error is either a *NodeError or wraps one. One that wraps ErrNotSent
	// says that the node cannot have seen the request; after any other error the
	// outcome is unknown: neither yes nor no.
	Send(ctx context.Context, req Request, done func(Reply, error))
	// Subscribe delivers the notices of a channel until ctx ends, and one notice
	// of kind NoticeSubscribed after every (re)subscription. It blocks, and
	// reconnects by itself. Notices sent while it was not connected are lost.
	Subscribe(ctx context.Context, channel string, deliver func(Notice))
}

// Op is what a Request asks for.
type Op uint8

// The operations of a node.
const (
	// OpTake takes, renews or re-takes the key: one idempotent operation, so that
	// asking again after a lost reply is always right.
	OpTake Op = iota
	// OpProbe reads without changing anything.
	OpProbe
	// OpRelease deletes the key if it holds the request's token, and publishes the
	// notice if the request carries one.
	OpRelease
	// OpAnnounce publishes the notice and touches nothing.
	OpAnnounce
)

// String is the name of the operation in messages and metrics.
func (o Op) String() string {
	switch o {
	case OpTake:
		return "take"
	case OpProbe:
		return "probe"
	case OpRelease:
		return "release"
	case OpAnnounce:
		return "announce"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Keys are the names one lock has on every node.
type Keys struct {
	Lock    string // the lease
	Fence   string // the counter of fencing tokens
	Channel string // where releases are announced
}

// Request is one operation on one lock at one node.
type Request struct {
	Op    Op
	Keys  Keys
	Token string        // the attempt's token; for OpProbe it may be empty
	TTL   time.Duration // how long a taken key lives

	// MatureRunID is the run_id that the caller has watched for a quarantine, or
	// empty: on that server an absent key may be set.
	MatureRunID string
	// Unseen says that the caller never saw this node before: then the server's own
	// uptime, less one second because it counts whole ones, may show that it is
	// mature.
	Unseen bool
	// Quarantine is how long a server must have been up to be mature. 0 makes every
	// server mature.
	Quarantine time.Duration
	// Fresh says that the node cannot hold the token, so that it may try to set the key
	// before it looks at it. It changes nothing else.
	Fresh bool
	// HaveVote says that the caller has a valid vote at this node, so that an
	// absent key was its own and may be set again although the server is young.
	HaveVote bool
	// NotAfter is the node's time, in µs since 1970, after which a key that is
	// absent is no longer set; 0 means no limit. It bounds what a delayed request
	// can do. It never stops a renewal.
	NotAfter int64
	// Fence is the proposed fencing token; 0 leaves the counter alone.
	Fence uint64
	// Notice is published on Keys.Channel: with OpRelease when the key was deleted, with
	// OpAnnounce always; empty publishes nothing.
	Notice string
}

// Outcome is what a node did with a Request.
type Outcome uint8

// The outcomes.
const (
	// Taken: the key was absent and now holds the token.
	Taken Outcome = iota + 1
	// Extended: the key held the token already and lives for a TTL again.
	Extended
	// Held: the key holds another token; see Reply.Owner and Reply.PTTL.
	Held
	// Absent: there is no key. To a take, the node is young and refused to set it.
	Absent
	// Late: the key is absent and the node's time is past Request.NotAfter.
	Late
	// Released: the key was deleted.
	Released
	// Gone: there was no such key, or it held another token. For a release that is
	// success as well.
	Gone
)

// grants reports whether the key holds the request's token.
func (o Outcome) grants() bool { return o == Taken || o == Extended }

// String is the name of the outcome in messages.
func (o Outcome) String() string {
	names := [...]string{"none", "taken", "extended", "held", "absent", "late", "released", "gone"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// NoExpiry is the PTTL of a key that never expires. No Redlock client leaves
// such a key behind; somebody has to look at it.
const NoExpiry = time.Duration(-1)

// Reply is a node's answer.
type Reply struct {
	Outcome Outcome
	Owner   string        // with Held: the value of the key
	PTTL    time.Duration // with Held: how long the key lives on, or NoExpiry
	// RunID tells which process answered: it changes with every start of the
	// server. A node whose server may not be asked gives an identifier of the
	// connection, which cannot outlive the server either.
	RunID string
	// Young says that the server granted no new key, or would grant none, because
	// the caller cannot know that it is mature.
	Young bool
	// Uptime is how long the server says it has been up, in whole seconds rounded
	// down; negative when it does not tell.
	Uptime time.Duration
	// Time is the node's clock in µs since 1970.
	Time int64
	// Fence is the number that the node stores for this lock; 0 if there is none.
	Fence uint64
}

// NoticeKind tells what a Notice is about.
type NoticeKind uint8

// The kinds of notices.
const (
	// NoticeSubscribed: notices are delivered from now on; earlier ones may have
	// been missed, so the lock has to be looked at.
	NoticeSubscribed NoticeKind = iota + 1
	// NoticeMessage: a message was published.
	NoticeMessage
	// NoticeLost: the subscription broke.
	NoticeLost
)

// Notice is one event of a subscription.
type Notice struct {
	Kind    NoticeKind
	Message string
}

// ErrNotSent is wrapped by an error after which the node cannot have seen the
// request.
var ErrNotSent = errors.New("not sent")

// ErrorKind classifies what is wrong with a node. The values are used in
// metrics; they do not change.
type ErrorKind string

// The kinds of node errors.
const (
	KindTimeout    ErrorKind = "timeout"    // no answer in time
	KindConnection ErrorKind = "connection" // refused, reset, unknown host
	KindTLS        ErrorKind = "tls"        // one side speaks TLS and the other does not, or a certificate does not fit
	KindAuth       ErrorKind = "auth"       // user or password refused
	KindPermission ErrorKind = "permission" // the ACL forbids a command, key or channel
	KindReadOnly   ErrorKind = "readonly"   // a replica
	KindLoading    ErrorKind = "loading"    // the server still loads its data, or is busy with a script
	KindMemory     ErrorKind = "memory"     // out of memory: no new key can be set
	KindWrongType  ErrorKind = "wrongtype"  // the key, or the fence, is not a string or not a number
	KindUnfit      ErrorKind = "unfit"      // replica, cluster member, evicting: not an independent node
	KindNoExpiry   ErrorKind = "noexpiry"   // the key is another's and never expires
	KindOther      ErrorKind = "other"      // whatever else the server answered
)

// NodeError is a request that failed at one node.
type NodeError struct {
	// Node is the name of the node.
	Node string
	// Kind is what is wrong with it, of few and constant values.
	Kind ErrorKind
	// Hint is what a person can do about it, or empty.
	Hint string
	// Err is what the node or the network said.
	Err error
}

// Error names the node, what it said, and what can be done.
func (e *NodeError) Error() string {
	s := fmt.Sprintf("node %s: %v", e.Node, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *NodeError) Unwrap() error { return e.Err }
