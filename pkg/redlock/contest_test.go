package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// mute is a node that never answers.
type mute struct{ asked int }

func (m *mute) Name() string { return "node-1" }

func (m *mute) Send(ctx context.Context, _ Request, done func(Reply, error)) {
	m.asked++
	context.AfterFunc(ctx, func() { done(Reply{}, &NodeError{Node: m.Name(), Kind: KindTimeout, Err: ctx.Err()}) })
}

func (m *mute) Subscribe(context.Context, string, func(Notice)) {}

func TestAnnouncementThatHasComeIsHeardBeforeContending(t *testing.T) {
	for range 20 { // where two things can be done, Go chooses at random
		synctest.Test(t, func(t *testing.T) {
			start, node := time.Now(), &mute{}
			l, err := New([]Node{node}, Options{TTL: time.Second, Clock: func() time.Duration { return time.Since(start) + time.Hour }})
			if err != nil {
				t.Fatal(err)
			}
			c := l.Contest("orders")
			c.sights[0] = sight{at: time.Hour, freeAt: time.Hour} // free now
			c.events = make(chan event, 1)
			c.events <- event{notice: Notice{Kind: NoticeMessage, Message: noticePriority + "100"}}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := c.await(ctx); err == nil || node.asked > 0 {
				t.Fatalf("asked %d times within a tenth of a TTL, error %v: want it to wait for the preferred candidate", node.asked, err)
			}
		})
	}
}
