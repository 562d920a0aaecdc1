package annotations

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

// table is the source of validation, documentation and the chart's schema.
var table = []Key{
	{
		Name: Inject, Author: User, Label: true, Default: "–",
		Meaning: "`\"true\"` injects the sidecar; `\"false\"` always wins. May also be given as a label. Other keys without it do nothing and are a warning.",
		Values:  []string{True, False}, check: oneOf(True, False),
	},
	{
		Name: Lock, Author: User, Default: "`<namespace>/<workload>`",
		Meaning: "The lock's name. By default the namespace and the name of what owns the Pod: the Deployment or Rollout, the StatefulSet, the DaemonSet, the CronJob (else the Job), any other owner; without an owner the Pod's name, or its generateName without the last `-`. Written here at admission. It must lie under the Pod's namespace unless `locks.crossNamespace` is set in the chart.",
		Allowed: "1 to 200 of `A-Z a-z 0-9 . _ / -`, no `//`, no leading or trailing `/`", check: checkLock,
	},
	{
		Name: Quorum, Author: User, Default: "`default`",
		Meaning: "Which Redis nodes hold the lease.",
		Allowed: "a name from the chart's `quorums`", check: checkName,
	},
	{
		Name: TTL, Author: User, Default: "the chart's, else `10s` (`15s` with `on-loss: restart`)", Flag: "ttl", Chart: "ttl",
		Meaning: "How long a lease lasts without renewal. Above 30 s only with a quarantine as long, set in the chart.",
		Allowed: "a duration of at least `500ms` in whole milliseconds, at least 10 × node-timeout", Pattern: durationPattern, check: checkTTL,
	},
	{
		Name: RenewInterval, Author: User, Default: "the chart's, else ttl/5", Flag: "renew-interval", Chart: "renewInterval",
		Meaning: "How often the lease is renewed. 3 × this + node-timeout must fit before the stop budget.",
		Allowed: "a duration above zero", Pattern: durationPattern, check: durationFrom(1),
	},
	{
		Name: StopBudget, Author: User, Default: "the chart's, else ttl/4 (`4s` with `on-loss: restart`)", Flag: "stop-budget", Chart: "stopBudget",
		Meaning: "How long before the lease can be given away the Pod stops being active.",
		Allowed: "a duration, `0s` too; with `on-loss: restart` at least `3.5s`", Pattern: durationPattern, check: durationFrom(0),
	},
	{
		Name: NodeTimeout, Author: User, Default: "the chart's, else ttl/50, within 20 ms and 500 ms", Flag: "node-timeout", Chart: "nodeTimeout",
		Meaning: "How long one Redis node may take for one command.",
		Allowed: "a duration above zero", Pattern: durationPattern, check: durationFrom(1),
	},
	{
		Name: Priority, Author: Live, Default: "the chart's, else `0`", Flag: "priority", Chart: "priority",
		Meaning: "A Pod of lower priority starts contending later by a part of the TTL. It never takes a held lease away. Read live.",
		Allowed: "a whole number from `-100` to `100`", Pattern: `^-?[0-9]{1,3}$`, check: intFrom(-100, 100),
	},
	{
		Name: Fencing, Author: User, Default: "the chart's, else `redis`", Flag: "fencing", Chart: "fencing",
		Meaning: "Where fencing tokens come from: the Redis nodes, a counter in a Lease object, or nowhere.",
		Values:  []string{FencingRedis, FencingKubernetes, Off}, check: oneOf(FencingRedis, FencingKubernetes, Off),
	},
	{
		Name: LogLevel, Author: User, Default: "the chart's, else `info`", Flag: "log-level", Chart: "logLevel",
		Meaning: "How much the sidecar logs.",
		Values:  []string{"debug", "info", "error"}, check: oneOf("debug", "info", "error"),
	},
	{
		Name: AppHealth, Author: User, Default: "`auto`",
		Meaning: "Asked every second; while the app is not healthy the Pod does not contend, and it gives the lease up after three failures. `auto`: the app container's `httpGet` or `tcpSocket` readiness probe.",
		Allowed: "`auto`, `off`, or an `http://`, `https://` or `tcp://` address on loopback with a port", check: checkAppHealth,
	},
	{
		Name: AppContainer, Author: User, Default: "`kubectl.kubernetes.io/default-container`, else the first that is not injected",
		Meaning: "The container that `app-health` and `on-loss` are about.",
		Allowed: "the name of one of the Pod's containers", check: checkName,
	},
	{
		Name: Readiness, Author: User, Default: "`participating`",
		Meaning: "The sidecar's readiness probe. `participating`: able to contend. `active`: only the holder's Pod is Ready. `gate`: the same through the readiness gate `podlease.io/active`. `none`: no probe.",
		Values:  []string{ReadinessParticipating, ReadinessActive, ReadinessGate, None},
		check:   oneOf(ReadinessParticipating, ReadinessActive, ReadinessGate, None),
	},
	{
		Name: OnLoss, Author: User, Default: "`none`",
		Meaning: "What happens when the lease is lost unasked. `restart`: all containers start again (Kubernetes 1.36 and later). `exit`: the sidecar exits with 42. `exec`: the app's command runs under `podlease exec`, only while active.",
		Values:  []string{None, OnLossRestart, OnLossExit, OnLossExec},
		check:   oneOf(None, OnLossRestart, OnLossExit, OnLossExec),
	},
	{
		Name: Wait, Author: User, Default: "`forever`",
		Meaning: "With `on-loss: exec`: how long to wait for the lease before giving up with exit code 75.",
		Allowed: "`forever` or a duration, `0s` too", check: checkWait,
	},
	{
		Name: HTTPPort, Author: User, Default: "`8484`",
		Meaning: "The read-only port; control, on loopback only, is the next one.",
		Allowed: "a whole number from `1024` to `65534`", check: intFrom(1024, 65534),
	},
	{
		Name: CPU, Author: User, Default: "the chart's, else `100m`", Chart: "cpu",
		Meaning: "CPU request and limit of the sidecar, equal.",
		Allowed: "a quantity of at least `1m`", Pattern: `^[0-9.]+m?$`, check: quantityFrom("1m"),
	},
	{
		Name: Memory, Author: User, Default: "the chart's, else `64Mi`", Chart: "memory",
		Meaning: "Memory request and limit of the sidecar, equal.",
		Allowed: "a quantity of at least `16Mi`", Pattern: `^[0-9.]+([KMG]i?|k)?$`, check: quantityFrom("16Mi"),
	},
	{
		Name: StepDown, Author: Live, Default: "–",
		Meaning: "Each new value makes the active Pod hand over once. Read live.",
		Allowed: "anything, for example a time",
	},
	{
		Name: Paused, Author: Live, Default: "`\"false\"`",
		Meaning: "`\"true\"`: the Pod takes no part until it is gone or `\"false\"`. Read live.",
		Values:  []string{True, False}, check: oneOf(True, False),
	},
	{Name: Injected, Author: Podlease, Label: true, Meaning: "`\"true\"` on every Pod that has the sidecar."},
	{Name: Role, Author: Podlease, Label: true, Meaning: "`active` or `standby`; the key is the chart's `roleLabel`. Select on it in a Service."},
	{Name: Status, Author: Podlease, Meaning: "What was injected, as JSON."},
	{Name: FencingToken, Author: Podlease, Meaning: "The token of the term, while active."},
	{Name: ActiveSince, Author: Podlease, Meaning: "When the term began, while active."},
}
