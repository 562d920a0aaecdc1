package podstatus

import (
	"strconv"
	"time"

	"github.com/go-logr/logr"
)

// The annotations that are read while the Pod runs.
const (
	stepDownKey = "podlease.io/step-down"
	pausedKey   = "podlease.io/paused"
	priorityKey = "podlease.io/priority"
)

// stepDownPause is how long a candidate told to step down leaves the lease to others.
const stepDownPause = 30 * time.Second

// Controls is what live settings act on; *election.Candidate is one.
type Controls interface {
	StepDown(pause time.Duration) error
	Pause() error
	Resume() error
	SetPriority(p int)
}

// Settings carries the Pod's live annotations out. It is for one goroutine.
type Settings struct {
	controls Controls
	log      logr.Logger

	base     int // the priority when no annotation gives one
	begun    bool
	stepDown string
	paused   bool
	priority int
	refused  map[string]string // the last bad value by key, logged once
}

// NewSettings makes Settings for controls, whose priority is the given one unless an
// annotation says otherwise.
func NewSettings(controls Controls, priority int, log logr.Logger) *Settings {
	return &Settings{controls: controls, log: log, base: priority, priority: priority, refused: map[string]string{}}
}

// Apply carries out what changed since the call before. A step-down that is there at
// the first call was for a previous life of the sidecar.
func (s *Settings) Apply(annotations map[string]string) {
	s.applyPriority(annotations[priorityKey])
	s.applyPaused(annotations[pausedKey])
	s.applyStepDown(annotations[stepDownKey])
	s.begun = true
}

func (s *Settings) applyStepDown(value string) {
	if s.begun && value != "" && value != s.stepDown {
		s.log.Info("stepping down, the annotation asks for it", "value", value)
		s.report("step-down", s.controls.StepDown(stepDownPause))
	}
	s.stepDown = value
}

func (s *Settings) applyPaused(value string) {
	paused := value == "true"
	if !paused && value != "" && value != "false" {
		s.refuse(pausedKey, value, `"true" or "false"`)
		return
	}
	if paused == s.paused {
		return
	}
	s.paused = paused
	if paused {
		s.log.Info("pausing, the annotation asks for it")
		s.report("pause", s.controls.Pause())
		return
	}
	s.log.Info("resuming, the annotation no longer pauses")
	s.report("resume", s.controls.Resume())
}

func (s *Settings) applyPriority(value string) {
	priority := s.base
	if value != "" {
		p, err := strconv.Atoi(value)
		if err != nil || p < -100 || p > 100 {
			s.refuse(priorityKey, value, "-100 to 100")
			return
		}
		priority = p
	}
	if priority == s.priority {
		return
	}
	s.log.Info("priority changed", "from", s.priority, "to", priority)
	s.priority = priority
	s.controls.SetPriority(priority)
}

func (s *Settings) refuse(key, value, allowed string) {
	if s.refused[key] != value {
		s.log.Info("annotation ignored", "annotation", key, "value", value, "allowed", allowed)
	}
	s.refused[key] = value
}

// report logs a verb that makes no sense now, such as a standby's step-down.
func (s *Settings) report(verb string, err error) {
	if err != nil {
		s.log.Info("annotation had no effect", "verb", verb, "reason", err.Error())
	}
}
