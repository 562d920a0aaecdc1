package annotations

import "strings"

// Prefix begins every key of podlease.
const Prefix = "podlease.io/"

// What users write.
const (
	Inject        = Prefix + "inject"
	Lock          = Prefix + "lock"
	Quorum        = Prefix + "quorum"
	TTL           = Prefix + "ttl"
	RenewInterval = Prefix + "renew-interval"
	StopBudget    = Prefix + "stop-budget"
	NodeTimeout   = Prefix + "node-timeout"
	Priority      = Prefix + "priority"
	Fencing       = Prefix + "fencing"
	LogLevel      = Prefix + "log-level"
	AppHealth     = Prefix + "app-health"
	AppContainer  = Prefix + "app-container"
	Readiness     = Prefix + "readiness"
	OnLoss        = Prefix + "on-loss"
	Wait          = Prefix + "wait"
	HTTPPort      = Prefix + "http-port"
	CPU           = Prefix + "cpu"
	Memory        = Prefix + "memory"
	StepDown      = Prefix + "step-down"
	Paused        = Prefix + "paused"
)

// What podlease writes.
const (
	Injected     = Prefix + "injected"
	Status       = Prefix + "status"
	Role         = Prefix + "role"
	FencingToken = Prefix + "fencing-token"
	ActiveSince  = Prefix + "active-since"
)

// ActiveCondition is the type of the Pod condition that the readiness gate uses.
const ActiveCondition = Prefix + "active"

// Values that more than one package compares with.
const (
	True  = "true"
	False = "false"
	Auto  = "auto"
	Off   = "off"
	None  = "none"

	ReadinessParticipating = "participating"
	ReadinessActive        = "active"
	ReadinessGate          = "gate"

	OnLossRestart = "restart"
	OnLossExit    = "exit"
	OnLossExec    = "exec"

	WaitForever = "forever"

	FencingRedis      = "redis"
	FencingKubernetes = "kubernetes"

	RoleActive  = "active"
	RoleStandby = "standby"
)

// Author says who writes a key.
type Author string

// The authors of keys.
const (
	// User keys are settings, read when the Pod is made.
	User Author = "user"
	// Live keys are read while the Pod runs.
	Live Author = "live"
	// Podlease keys are written by podlease, and are no settings.
	Podlease Author = "podlease"
)

// Key is one annotation or label of podlease.
type Key struct {
	// Name is the whole key.
	Name string
	// Author says who writes it.
	Author Author
	// Label says that the key is read or written as a label.
	Label bool
	// Default says in words what holds without it; for people.
	Default string
	// Meaning says what it does, in words for people.
	Meaning string
	// Allowed says in words what values it takes.
	Allowed string
	// Values lists the allowed values where they can be listed.
	Values []string
	// Pattern is a regular expression for the chart's schema; the check is stricter.
	Pattern string
	// Flag is the sidecar's flag that gets the value; empty where it is none.
	Flag string
	// Chart is the name of the chart's value, under sidecar, that is the default for
	// all Pods; empty where there is none.
	Chart string

	check func(string) error
}

// Short is the key without the prefix.
func (k Key) Short() string { return strings.TrimPrefix(k.Name, Prefix) }

// Check tells what is wrong with a value, as an error that says what is allowed.
func (k Key) Check(value string) error {
	if k.check == nil {
		return nil
	}
	return k.check(value)
}

// Keys are all keys, in the order in which they are documented.
func Keys() []Key { return append([]Key(nil), table...) }

// Find returns the key of that name.
func Find(name string) (Key, bool) {
	for _, k := range table {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

func mustFind(name string) Key {
	k, ok := Find(name)
	if !ok {
		panic("annotations: no such key " + name)
	}
	return k
}
