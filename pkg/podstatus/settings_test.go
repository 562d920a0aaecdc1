package podstatus

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/podlease/podlease/pkg/election"
)

var (
	_ Controls = (*election.Candidate)(nil)
	_ Source   = (*election.Candidate)(nil)
)

// verbs notes what it is told.
type verbs struct {
	told []string
	err  error
}

func (v *verbs) StepDown(d time.Duration) error { return v.tell(fmt.Sprint("step-down ", d)) }
func (v *verbs) Pause() error                   { return v.tell("pause") }
func (v *verbs) Resume() error                  { return v.tell("resume") }
func (v *verbs) SetPriority(p int)              { _ = v.tell(fmt.Sprint("priority ", p)) }

func (v *verbs) tell(what string) error {
	v.told = append(v.told, what)
	return v.err
}

func TestLiveSettings(t *testing.T) {
	type values = map[string]string
	for name, tc := range map[string]struct {
		seen []values
		want []string
	}{
		"step-down at the start is not new": {
			[]values{{stepDownKey: "a"}, {stepDownKey: "a"}, {}}, nil,
		},
		"each new step-down hands over once": {
			[]values{{}, {stepDownKey: "a"}, {stepDownKey: "a"}, {stepDownKey: "b"}, {}, {stepDownKey: "b"}},
			[]string{"step-down 30s", "step-down 30s", "step-down 30s"},
		},
		"paused from the start": {
			[]values{{pausedKey: "true"}, {pausedKey: "true"}, {pausedKey: "false"}, {}},
			[]string{"pause", "resume"},
		},
		"not paused needs no resume": {
			[]values{{}, {pausedKey: "false"}, {}}, nil,
		},
		"a bad paused changes nothing": {
			[]values{{pausedKey: "true"}, {pausedKey: "yes"}}, []string{"pause"},
		},
		"priority": {
			[]values{{}, {priorityKey: "-100"}, {priorityKey: "-100"}, {priorityKey: "101"}, {priorityKey: "1.5"}, {}},
			[]string{"priority -100", "priority 5"},
		},
		"priority of the start": {
			[]values{{priorityKey: "5"}, {priorityKey: "7"}}, []string{"priority 7"},
		},
		"other annotations": {
			[]values{{}, {"podlease.io/fencing-token": "1"}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verbs{err: &election.RefusedError{Reason: "standby"}}
			s := NewSettings(v, 5, logr.Discard())
			for _, a := range tc.seen {
				s.Apply(a)
			}
			if !slices.Equal(v.told, tc.want) {
				t.Errorf("told %q, want %q", v.told, tc.want)
			}
		})
	}
}

func TestBadLiveSettingIsLoggedOnce(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	s := NewSettings(&verbs{}, 0, log)
	for range 3 {
		s.Apply(map[string]string{priorityKey: "high", pausedKey: "maybe"})
	}
	if len(lines) != 2 {
		t.Errorf("logged %q", lines)
	}
}
