package podstatus

import (
	"strconv"

	"github.com/podlease/podlease/pkg/election"
)

// What is written on the Pod beside the role label.
const (
	fencingTokenKey = "podlease.io/fencing-token" //nolint:gosec // a key, not a credential
	activeSinceKey  = "podlease.io/active-since"
	activeCondition = "podlease.io/active"
	deletionCostKey = "controller.kubernetes.io/pod-deletion-cost"
)

// activeCost makes the active Pod the last to be scaled away. No template gives this
// value, the largest there is, to all of its Pods: so when it is seen it is ours,
// left by a previous life of the sidecar.
const activeCost = "2147483647"

// state is what the Pod should say; two equal ones need no patch between them.
type state struct {
	role  election.Role
	token uint64
	since string
}

func (p *Publisher) stateOf(l election.Leadership) state {
	s := state{role: l.Role}
	if l.Active() {
		s.token = l.FencingToken
	}
	if l.Active() || p.cfg.ReadinessGate {
		s.since = l.Since.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return s
}

// patch is the one strategic merge patch of pods/status: the uid guards against a
// new Pod of the same name, and conditions are merged by type, so the kubelet's stay.
func (p *Publisher) patch(want state, cost string) map[string]any {
	annotations := map[string]any{fencingTokenKey: nil, activeSinceKey: nil}
	if want.role == election.Active {
		annotations[activeSinceKey] = want.since
	}
	if want.token != 0 {
		annotations[fencingTokenKey] = strconv.FormatUint(want.token, 10)
	}
	switch cost {
	case costKeep:
	case costRemove:
		annotations[deletionCostKey] = nil
	default:
		annotations[deletionCostKey] = cost
	}
	patch := map[string]any{"metadata": map[string]any{
		"uid":         p.cfg.Pod.UID,
		"labels":      map[string]any{p.cfg.RoleLabel: want.role},
		"annotations": annotations,
	}}
	if p.cfg.ReadinessGate {
		patch["status"] = map[string]any{"conditions": []any{condition(want)}}
	}
	return patch
}

func condition(want state) map[string]any {
	c := map[string]any{"type": activeCondition, "status": "False", "reason": "Standby", "lastTransitionTime": want.since}
	if want.role == election.Active {
		c["status"], c["reason"] = "True", "Active"
	}
	return c
}

// podMetadata is what is read of the answer to a patch.
type podMetadata struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// shown is what the API server has confirmed.
type shown struct {
	state  state // zero when that is open
	stolen bool  // somebody else changed the label since
	cost   deletionCost
}

func (s *shown) tells(r election.Role) bool { return s.state.role == r && !s.stolen }

func (s *shown) differs(role string) bool {
	return s.state.role != "" && string(s.state.role) != role
}

func (s *shown) agrees(want state) bool {
	return s.state == want && !s.stolen && s.cost.next(want) == costKeep
}

func (s *shown) confirm(want state, cost string, answer podMetadata) {
	s.state, s.stolen = want, false
	s.cost.confirm(cost, answer)
}

// What a patch does with the deletion cost, other than to set it to a value.
const (
	costKeep   = ""
	costRemove = "remove"
)

// deletionCost remembers the annotation as the answers to patches show it. Nothing is
// written before the first answer: it tells whether the template sets its own.
type deletionCost struct {
	known   bool
	foreign bool // never to be touched again
	value   string
}

func (c *deletionCost) next(want state) string {
	switch {
	case !c.known || c.foreign:
		return costKeep
	case want.role == election.Active && c.value != activeCost:
		return activeCost
	case want.role != election.Active && c.value == activeCost:
		return costRemove
	}
	return costKeep
}

func (c *deletionCost) confirm(sent string, answer podMetadata) {
	c.known = true
	c.value = answer.Metadata.Annotations[deletionCostKey]
	ours := c.value == "" || c.value == activeCost
	// An answer that does not show what was just sent comes from something that
	// rewrites Pods. Asking for it again and again would not help.
	taken := sent == costKeep || (sent == costRemove) == (c.value == "")
	c.foreign = !ours || !taken
}
