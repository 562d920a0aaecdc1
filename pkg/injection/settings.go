package injection

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/podlease/podlease/pkg/annotations"
)

// Settings are what one installation injects, the same for all Pods.
type Settings struct {
	// Installation has the defaults and limits for annotations. Its Quorums are filled
	// in from Quorums below.
	annotations.Installation
	// Image is the sidecar's.
	Image string
	// ToolImage holds the podlease program, for on-loss: exec.
	ToolImage string
	// PullPolicy of both; empty means IfNotPresent.
	PullPolicy corev1.PullPolicy
	// ClusterName is put before the sidecar's identity; may be empty.
	ClusterName string
	// Quorums are the sets of Redis nodes by name.
	Quorums map[string]Quorum
	// Version of podlease, for the status annotation.
	Version string
}

// Quorum is one set of Redis nodes.
type Quorum struct {
	// Nodes are addresses as the sidecar's flag --redis takes them.
	Nodes []string
	// KeyPrefix is put before keys and channels; empty leaves the sidecar's default.
	KeyPrefix string
	// Username to log in with where the Secret has none.
	Username string
	// SecretKeys are the keys of the Secret named by [SecretName] in the Pod's
	// namespace; empty means that there is no Secret. Known keys: see secretFlags.
	SecretKeys []string
}

// SecretName is the name of the quorum's Secret in the namespaces of injected Pods.
func SecretName(quorum string) string { return "podlease-" + quorum }

// Request is what is known of the Pod's surroundings at admission, where the Pod itself
// does not say it.
type Request struct {
	// Namespace of the Pod; at admission the Pod's own may be empty.
	Namespace string
	// CronJob is the name of what owns the Pod's Job; empty when nothing does.
	CronJob string
}

// Need is what an injected Pod needs its namespace to have.
type Need struct {
	Namespace      string
	ServiceAccount string
	Quorum         string
	// Leases says that fencing tokens come from Lease objects.
	Leases bool
}

// Result tells what came of a Pod.
type Result struct {
	// Pod is the changed copy; nil when nothing is to be changed.
	Pod *corev1.Pod
	// Lock is the injected Pod's.
	Lock string
	// Need is the injected Pod's.
	Need Need
	// Reasons say what was decided and why, for the log.
	Reasons []string
	// Warnings are for the person who made the Pod.
	Warnings []string
	// Refusal is not nil when the Pod must not be admitted.
	Refusal error
}

// WithQuorum is a copy with one quorum replaced.
func (s Settings) WithQuorum(name string, q Quorum) Settings {
	s.Quorums = maps.Clone(s.Quorums)
	s.Quorums[name] = q
	return s
}
