package redisnode

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"
)

const (
	// pingAfter is how long a subscription may be silent before it is asked whether
	// it lives. TCP keep-alives find a peer that vanished earlier, without a command.
	pingAfter = 30 * time.Second
	// forbiddenRetry is how often a subscription is tried that the ACL forbids.
	forbiddenRetry = 5 * time.Minute
)

var errSilent = errors.New("the server does not answer a ping")

// Subscribe implements [redlock.Node], on a connection of its own. Where the
// server forbids it, nothing is delivered: notices only make things faster.
func (n *Node) Subscribe(ctx context.Context, channel string, deliver func(redlock.Notice)) {
	if !n.joins() {
		return
	}
	defer n.subs.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()

	var told bool
	for tries := 1; ctx.Err() == nil; tries++ {
		listened, err := n.listen(ctx, channel, deliver)
		if listened {
			tries = 0
		}
		if ctx.Err() != nil {
			return
		}
		wait := backoff(max(tries, 1))
		if kind, hint := n.classify(err); kind == redlock.KindPermission {
			wait = forbiddenRetry
			if !told {
				told = true
				n.cfg.Log.Info("release notices are forbidden", "node", n.Name(), "channel", channel, "reason", err.Error(), "hint", hint)
			}
		}
		sleep(ctx, wait)
	}
}

// joins counts a subscription, unless the node is closed.
func (n *Node) joins() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.subs.Add(1)
	}
	return !n.closed
}

// listen makes one subscription and serves it until it breaks.
func (n *Node) listen(ctx context.Context, channel string, deliver func(redlock.Notice)) (listened bool, err error) {
	dctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout)
	defer cancel()
	l, err := n.dial(dctx)
	if err != nil {
		return false, err
	}
	defer l.close()
	defer context.AfterFunc(ctx, func() { _ = l.raw.Close() })()

	ps := l.client.Subscribe(dctx)
	defer func() { _ = ps.Close() }()
	if err := ps.Subscribe(dctx, channel); err != nil {
		return false, l.early(err)
	}
	sub := &subscription{ps: ps, channel: channel, deliver: deliver}
	err = sub.serve(ctx, n.cfg.DialTimeout)
	if sub.confirmed && ctx.Err() == nil {
		deliver(redlock.Notice{Kind: redlock.NoticeLost})
	}
	return sub.confirmed, err
}

type subscription struct {
	ps        *redis.PubSub
	channel   string
	deliver   func(redlock.Notice)
	confirmed bool
}

// serve delivers until the connection breaks. patience bounds the server's
// answers to SUBSCRIBE and PING.
func (s *subscription) serve(ctx context.Context, patience time.Duration) error {
	wait, asked := patience, true
	for {
		msg, err := s.ps.ReceiveTimeout(context.Background(), wait)
		switch {
		case err == nil:
			s.handle(msg)
			wait, asked = pingAfter, false
		case ctx.Err() != nil || !timedOut(err):
			return err
		case asked:
			return errSilent
		default:
			if err := s.ps.Ping(within(time.Now().Add(patience))); err != nil {
				return err
			}
			wait, asked = patience, true
		}
	}
}

func (s *subscription) handle(msg any) {
	switch m := msg.(type) {
	case *redis.Subscription:
		s.confirmed = true
		s.deliver(redlock.Notice{Kind: redlock.NoticeSubscribed})
	case *redis.Message:
		s.deliver(redlock.Notice{Kind: redlock.NoticeMessage, Message: m.Payload})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
