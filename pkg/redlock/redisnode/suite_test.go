package redisnode_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onsi/gomega/types"

	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// patience is how long something may take that has no bound of its own, on a
// machine that may be overloaded.
const patience = 20 * time.Second

func TestNode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Redis node")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
})

var keys = redlock.Keys{Lock: "podlease:shop/orders", Fence: "podlease:shop/orders:fence", Channel: "podlease:shop/orders:released"}

// open makes a node that is closed with the spec. Its time limits are generous,
// so that an overloaded machine does not look like a broken server.
func open(cfg redisnode.Config) *redisnode.Node {
	GinkgoHelper()
	if cfg.NodeTimeout == 0 {
		cfg.NodeTimeout = patience
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = patience
	}
	node, err := redisnode.New(cfg)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(node.Close)
	return node
}

type answer struct {
	reply redlock.Reply
	err   error
}

// start sends a request; the answer comes by the channel.
func start(node redlock.Node, timeout time.Duration, req redlock.Request) <-chan answer {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	answers := make(chan answer, 1)
	node.Send(ctx, req, func(reply redlock.Reply, err error) {
		cancel()
		answers <- answer{reply, err}
	})
	return answers
}

func do(node redlock.Node, req redlock.Request) (redlock.Reply, error) {
	a := <-start(node, patience, req)
	return a.reply, a.err
}

func ask(node redlock.Node, req redlock.Request) redlock.Reply {
	GinkgoHelper()
	reply, err := do(node, req)
	Expect(err).NotTo(HaveOccurred())
	return reply
}

func take(token string, change ...func(*redlock.Request)) redlock.Request {
	req := redlock.Request{Op: redlock.OpTake, Keys: keys, Token: token, TTL: time.Minute}
	for _, c := range change {
		c(&req)
	}
	return req
}

func fence(n uint64) func(*redlock.Request) { return func(r *redlock.Request) { r.Fence = n } }
func quarantine(d time.Duration) func(*redlock.Request) {
	return func(r *redlock.Request) { r.Quarantine = d }
}

func probe() redlock.Request { return redlock.Request{Op: redlock.OpProbe, Keys: keys} }

func release(token string) redlock.Request {
	return redlock.Request{Op: redlock.OpRelease, Keys: keys, Token: token, Notice: "bye"}
}

// node errors, by what they say.
func kindOf(err error) redlock.ErrorKind {
	var e *redlock.NodeError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Kind
}

func beKind(kind redlock.ErrorKind) types.GomegaMatcher { return WithTransform(kindOf, Equal(kind)) }

// beRefused is an error of a kind after which the server has done nothing.
func beRefused(kind redlock.ErrorKind) types.GomegaMatcher {
	return And(beKind(kind), MatchError(redlock.ErrNotSent))
}
