// Package demo plays an election on a small stage: three embedded Redis nodes and
// three candidates in one process, with hand-overs and crashes.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/redlock"
)

// What a demo does unless told otherwise.
const (
	DefaultTTL      = 3 * time.Second
	DefaultInterval = 4 * time.Second
)

// The limits of the options, and how they are put to people.
const (
	MinTTL          = redlock.MinTTL
	MaxTTL          = 30 * time.Second
	AllowedTTL      = "a duration from 500ms to 30s"
	MinInterval     = 100 * time.Millisecond
	AllowedInterval = "a duration of at least 100ms"
	AllowedFor      = "a duration such as 30s, or 0s for no end"
)

const (
	lock       = "demo"
	nodes      = 3
	candidates = 3
)

// Options say how the demo is played.
type Options struct {
	// TTL is how long a lease lasts without renewal, MinTTL to MaxTTL.
	TTL time.Duration
	// Interval is how long it is quiet before something happens, at least MinInterval.
	Interval time.Duration
	// For is how long to go on; 0 means until the context ends.
	For time.Duration
	// Once ends the demo after one election, one hand-over and one crash.
	Once bool
	// Color marks the lines for a terminal.
	Color bool
	// Out is where the account is written.
	Out io.Writer
}

// Run plays the demo until ctx ends or the options say that it is over.
func Run(ctx context.Context, opt Options) error {
	ctx, cancel := opt.bound(ctx)
	defer cancel()
	stage, err := newStage(ctx, opt)
	if err != nil {
		return err
	}
	defer stage.close()
	stage.account.prologue(stage)
	err = stage.play(ctx)
	if err == nil || errors.Is(err, ctx.Err()) {
		stage.account.say("The demo ends: whoever holds the lock releases it.")
		err = nil
	}
	cancel() // all at once, so that nobody takes over from the first to go
	return err
}

func (o Options) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.For > 0 {
		return context.WithTimeout(ctx, o.For)
	}
	return context.WithCancel(ctx)
}

// play lets something happen after each quiet interval.
func (s *stage) play(ctx context.Context) error {
	if err := s.awaitTermAfter(ctx, ""); err != nil {
		return err
	}
	for {
		for _, happening := range []func() error{s.handOver, s.crash} {
			if err := s.after(ctx, happening); err != nil {
				return err
			}
		}
		if err := s.watch(ctx, s.opt.Interval/2, never); err != nil || s.opt.Once {
			return err
		}
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
}

// after lets something happen to whoever is active after a quiet interval, and waits
// until another term has begun.
func (s *stage) after(ctx context.Context, happening func() error) error {
	if err := s.watch(ctx, s.opt.Interval, never); err != nil {
		return err
	}
	for s.leader == nil { // lost meanwhile, for example because the machine slept
		if err := s.awaitTermAfter(ctx, s.term); err != nil {
			return err
		}
	}
	term := s.term
	if err := happening(); err != nil {
		return err
	}
	return s.awaitTermAfter(ctx, term)
}

func never() bool { return false }

// awaitTermAfter waits until somebody is active in another term. A crashed holder's
// keys run out after a TTL at the latest; much more means that something broke.
func (s *stage) awaitTermAfter(ctx context.Context, term string) error {
	limit := 3*s.opt.TTL + 30*time.Second
	begun := func() bool { return s.leader != nil && s.term != term }
	if err := s.watch(ctx, limit, begun); err != nil {
		return err
	}
	if !begun() {
		return fmt.Errorf("no candidate became active within %v: %s", limit, s.reasons())
	}
	return nil
}

// reasons is why no candidate is active; a visitor may have asked for it.
func (s *stage) reasons() string {
	var list []string
	for _, m := range s.members {
		list = append(list, m.name+" is "+m.leadership().Reason)
	}
	return strings.Join(list, ", ")
}

// watch tells what is seen until done says so or limit has gone by.
func (s *stage) watch(ctx context.Context, limit time.Duration, done func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !done() {
		select {
		case seen := <-s.sightings:
			s.observe(seen)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
