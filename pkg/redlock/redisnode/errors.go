package redisnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
)

// notDoneError marks an error after which the server has not done anything for the
// request: it never got it, or it refused it as a whole.
type notDoneError struct{ error }

func (e notDoneError) Unwrap() []error { return []error{e.error, redlock.ErrNotSent} }

// lateError says in plain words what a request waited for until its time was over.
type lateError struct {
	error
	what string
}

func (e lateError) Error() string { return e.what }

func (e lateError) Unwrap() error { return e.error }

func (n *Node) fault(kind redlock.ErrorKind, hint string, err error) *redlock.NodeError {
	return &redlock.NodeError{Node: n.Name(), Kind: kind, Hint: hint, Err: err}
}

// unreachable is the answer to a request for which there is no connection.
func (n *Node) unreachable(err error) *redlock.NodeError {
	kind, hint := n.classify(err)
	return n.fault(kind, hint, notDoneError{err})
}

// failed is the answer to a request that was sent.
func (n *Node) failed(err error) *redlock.NodeError {
	kind, hint := n.classify(err)
	if refused(err) {
		err = notDoneError{err}
	}
	return n.fault(kind, hint, err)
}

// refused tells whether err says that the script did nothing. All other errors
// leave the outcome open, also an error of the script's own making.
func refused(err error) bool {
	if _, ok := errors.AsType[*refusal](err); ok {
		return true
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return replyKinds[word].kind != "" || word == "NOSCRIPT"
}

type verdict struct {
	kind redlock.ErrorKind
	hint string
}

// replyKinds are the first words of error replies with which Redis refuses a
// command before it runs it. The lock script lets none of its own through.
var replyKinds = map[string]verdict{
	"NOAUTH":      {redlock.KindAuth, "the server wants a password: give user and password"},
	"WRONGPASS":   {redlock.KindAuth, "user or password is wrong, or the user is disabled"},
	"DENIED":      {redlock.KindAuth, "the server is in protected mode: set a password on it, or protected-mode no"},
	"NOPERM":      {redlock.KindPermission, "give the user the commands, keys and channels that the documentation lists"},
	"READONLY":    {redlock.KindReadOnly, "this is a replica: use independent masters"},
	"LOADING":     {redlock.KindLoading, "the server loads its data: it comes by itself"},
	"BUSY":        {redlock.KindLoading, "the server is busy with somebody's script: SCRIPT KILL ends it"},
	"MASTERDOWN":  {redlock.KindReadOnly, "this is a replica without its master: use independent masters"},
	"OOM":         {redlock.KindMemory, "the server is at its maxmemory: raise it or remove data"},
	"MISCONF":     {redlock.KindMemory, "the server cannot write its data to disk, and refuses writes"},
	"NOREPLICAS":  {redlock.KindReadOnly, "min-replicas-to-write stops writes: use independent masters"},
	"WRONGTYPE":   {redlock.KindWrongType, "somebody else uses this key: remove it, or use another key prefix"},
	"MOVED":       {redlock.KindUnfit, "this is a Redis Cluster: use independent servers"},
	"ASK":         {redlock.KindUnfit, "this is a Redis Cluster: use independent servers"},
	"CROSSSLOT":   {redlock.KindUnfit, "this is a Redis Cluster: use independent servers"},
	"CLUSTERDOWN": {redlock.KindUnfit, "this is a Redis Cluster: use independent servers"},
}

// classify tells what kind of error it is and what can be done about it.
func (n *Node) classify(err error) (redlock.ErrorKind, string) {
	if script, ok := errors.AsType[*refusal](err); ok {
		return replyKind(script.msg)
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return replyKind(reply.Error())
	}
	if early, ok := errors.AsType[*earlyError](err); ok {
		return early.classify(n.addr)
	}
	if kind, hint := classifyTLS(err); kind != "" {
		return kind, hint
	}
	return classifyNetwork(err)
}

// replyKind classifies an error reply. Inside a script old servers put their own
// words before the code.
func replyKind(msg string) (redlock.ErrorKind, string) {
	for word := range strings.FieldsSeq(msg) {
		if v, ok := replyKinds[strings.TrimLeft(word, "-")]; ok {
			return v.kind, v.hint
		}
	}
	switch {
	case strings.Contains(msg, "invalid password"), strings.Contains(msg, "AUTH"):
		return redlock.KindAuth, replyKinds["WRONGPASS"].hint
	case strings.Contains(msg, "max number of clients"):
		return redlock.KindConnection, "the server has as many clients as its maxclients allows"
	case strings.Contains(msg, "can't run this command"), strings.Contains(msg, "can't access"):
		return redlock.KindPermission, replyKinds["NOPERM"].hint
	case strings.Contains(msg, "value is not an integer"), strings.Contains(msg, "counter is used up"):
		return redlock.KindWrongType, replyKinds["WRONGTYPE"].hint
	case strings.Contains(msg, "unknown command"):
		return redlock.KindOther, "the server must know EVALSHA and EVAL"
	}
	return redlock.KindOther, ""
}

func classifyTLS(err error) (redlock.ErrorKind, string) {
	var (
		record    tls.RecordHeaderError
		alert     *net.OpError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		material  *tlsMaterialError
	)
	switch {
	case errors.As(err, &record), errors.Is(err, errPlain):
		return redlock.KindTLS, "this port does not speak TLS: use redis:// instead of rediss://, or the TLS port"
	case errors.As(err, &hostname):
		return redlock.KindTLS, "the certificate is for another name: use that name, or set the TLS server name"
	case errors.As(err, &authority):
		return redlock.KindTLS, "the certificate is from an authority that is not trusted: give its CA file"
	case errors.As(err, &invalid):
		return redlock.KindTLS, "the server's certificate is not valid (now)"
	case errors.As(err, &alert) && alert.Op == "remote error": // how crypto/tls reports an alert
		return redlock.KindTLS, "the server refused our side of TLS: it may want a client certificate, or another CA"
	case errors.As(err, &material):
		return redlock.KindTLS, "look at the certificate, key and CA files"
	}
	return "", ""
}

func classifyNetwork(err error) (redlock.ErrorKind, string) {
	var (
		dns     *net.DNSError
		secrets *credentialsError
	)
	switch {
	case errors.As(err, &secrets):
		return redlock.KindAuth, "look at the user and password files"
	case errors.As(err, &dns):
		return redlock.KindConnection, "the name cannot be resolved: look at the address and the DNS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return redlock.KindConnection, "nothing listens there: look at the address, and whether the server runs"
	case errors.Is(err, errGivenUp):
		return redlock.KindConnection, ""
	case timedOut(err):
		return redlock.KindTimeout, "the server, or the network to it, is stuck or too slow"
	case hungUp(err):
		return redlock.KindConnection, "the server closed the connection: it may have been restarted"
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return redlock.KindConnection, ""
	}
	return redlock.KindOther, ""
}

func hungUp(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &ne) && ne.Timeout()
}

type credentialsError struct{ error }

func (e *credentialsError) Unwrap() error { return e.error }

type tlsMaterialError struct{ error }

func (e *tlsMaterialError) Unwrap() error { return e.error }

// earlyError is a connection that broke before the server answered properly.
type earlyError struct {
	first []byte // what it said before
	err   error
}

func (e *earlyError) Error() string {
	if e.said() {
		return strings.TrimSpace(string(e.first[1:]))
	}
	return e.err.Error()
}

func (e *earlyError) Unwrap() error { return e.err }

// said tells whether the server's first word was an error reply.
func (e *earlyError) said() bool { return len(e.first) > 1 && e.first[0] == '-' }

// tlsAlert is the first byte of the record with which a TLS server turns plain
// text away.
const tlsAlert = 0x15

func (e *earlyError) classify(addr Address) (redlock.ErrorKind, string) {
	if e.said() {
		return replyKind(e.Error())
	}
	if kind, hint := classifyTLS(e.err); kind != "" {
		return kind, hint
	}
	switch silent := len(e.first) == 0 && hungUp(e.err); {
	case !addr.TLS && len(e.first) > 0 && e.first[0] == tlsAlert:
		return redlock.KindTLS, "this port speaks TLS: use rediss://"
	case !addr.TLS && silent:
		return redlock.KindTLS, "the server closed the connection without a word, as one does that expects TLS: use rediss://, or look at what listens there"
	case silent:
		return redlock.KindTLS, "the server closed the connection after the TLS handshake, as one does that wants a client certificate: give one, or another"
	}
	return classifyNetwork(e.err)
}
