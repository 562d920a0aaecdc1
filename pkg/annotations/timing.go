package annotations

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of on-loss: restart. The kubelet takes up to 3 s to kill all containers, so
// the budget must be longer than that.
const (
	restartTTL           = 15 * time.Second
	restartStopBudget    = 4 * time.Second
	restartMinStopBudget = 3500 * time.Millisecond
)

// maxTTL is the longest TTL that the sidecar's own default quarantine covers.
const maxTTL = 30 * time.Second

// Timing is the lease's arithmetic as the sidecar will have it.
type Timing struct {
	TTL, RenewInterval, StopBudget, NodeTimeout time.Duration
}

// timing fills in what is not given in the way the sidecar's flags do.
func timing(values map[string]string) Timing {
	t := Timing{TTL: duration(values, TTL, 10*time.Second)}
	t.RenewInterval = duration(values, RenewInterval, t.TTL/5)
	t.StopBudget = duration(values, StopBudget, t.TTL/4)
	t.NodeTimeout = duration(values, NodeTimeout, min(max(t.TTL/50, 20*time.Millisecond), 500*time.Millisecond))
	return t
}

func duration(values map[string]string, key string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(values[key]); err == nil {
		return d
	}
	return fallback
}

// applyRestartDefaults raises what the Pod does not give itself to what the kubelet
// needs for the restart.
func (p *parser) applyRestartDefaults() {
	raise := func(key string, to time.Duration) {
		if !p.given(key) && duration(p.values, key, 0) < to {
			p.values[key] = to.String()
		}
	}
	raise(TTL, restartTTL)
	raise(StopBudget, restartStopBudget)
}

// checkTiming checks the settings that depend on each other.
func (p *parser) checkTiming(s *Set) {
	t := s.Timing
	if t.TTL < 10*t.NodeTimeout {
		p.refuse(t, []string{NodeTimeout, TTL}, fmt.Sprintf(
			"ttl %v must be at least 10 × node-timeout %v", t.TTL, t.NodeTimeout))
	}
	left := t.TTL - t.TTL/100 - t.StopBudget
	if need := 3*t.RenewInterval + t.NodeTimeout; need > left {
		p.refuse(t, []string{RenewInterval, StopBudget, NodeTimeout, TTL}, fmt.Sprintf(
			"3 × renew-interval %v + node-timeout %v = %v must be at most ttl %v - 1%% - stop-budget %v = %v",
			t.RenewInterval, t.NodeTimeout, need, t.TTL, t.StopBudget, left))
	}
	if s.OnLoss == OnLossRestart && t.StopBudget < restartMinStopBudget {
		p.refuse(t, []string{StopBudget}, fmt.Sprintf(
			"must be at least %v with %s: %q, because the kubelet takes up to 3s to end all containers", restartMinStopBudget, OnLoss, OnLossRestart))
	}
	p.checkQuarantine(t)
}

func (p *parser) checkQuarantine(t Timing) {
	switch q := p.inst.Quarantine; {
	case q == nil && t.TTL > maxTTL:
		p.refuse(t, []string{TTL}, fmt.Sprintf("must be at most %v, unless the chart sets sidecar.quarantine to at least the longest ttl", maxTTL))
	case q != nil && *q != 0 && t.TTL > *q:
		p.refuse(t, []string{TTL}, fmt.Sprintf("must be at most the chart's sidecar.quarantine, %v", *q))
	}
}

// refuse puts the blame on the first of the keys that the Pod gives, else on the last.
func (p *parser) refuse(t Timing, keys []string, message string) {
	key := keys[len(keys)-1]
	for _, k := range keys {
		if p.given(k) {
			key = k
			break
		}
	}
	value := map[string]time.Duration{
		TTL: t.TTL, RenewInterval: t.RenewInterval, StopBudget: t.StopBudget, NodeTimeout: t.NodeTimeout,
	}[key].String()
	if p.given(key) {
		value = p.Annotations[key]
	}
	p.errs = append(p.errs, field.Invalid(p.at(key), value, message))
}
