package main

import (
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/podlease/podlease/pkg/settings"
	"github.com/podlease/podlease/pkg/statusapi"
	"github.com/podlease/podlease/pkg/workload"
)

// What --publish, --fencing and --on-loss take.
const (
	publishAuto       = "auto"
	publishKubernetes = "kubernetes"
	publishNone       = "none"

	fencingRedis      = "redis"
	fencingKubernetes = "kubernetes"
	fencingOff        = "off"

	onLossNone = "none"
	onLossExit = "exit"
)

const defaultControlListen = "127.0.0.1:8485"

// options are all that the sidecar is told.
type options struct {
	lease    settings.Lease
	redis    settings.Redis
	identity settings.Identity
	logging  settings.Logging

	listen        string
	controlListen string

	publish       string
	kubeconfig    string
	podinfoDir    string
	roleLabel     string
	readinessGate bool
	fencing       string

	appHealth         string
	appHealthFailures int
	appHealthInterval time.Duration

	onLoss        string
	priority      int
	nativeSidecar bool
	drainTimeout  time.Duration

	// warnings are what people should know of settings that are allowed.
	warnings []string
}

func newOptions() (*options, *settings.Flags) {
	o, f := &options{}, settings.NewFlags(program)
	o.lease.AddFlags(f)
	o.redis.AddFlags(f)
	o.identity.AddFlags(f)
	o.addPodFlags(f)
	o.addWorkloadFlags(f)
	f.String(&o.listen, ":8484", settings.Flag{Name: "listen", Usage: "where the read-only HTTP endpoints are", Allowed: addressAllowed})
	f.String(&o.controlListen, defaultControlListen, controlListenFlag)
	o.logging.AddFlags(f)
	return o, f
}

var controlListenFlag = settings.Flag{
	Name: "control-listen", Usage: "where the control verbs are; loopback only",
	Allowed: "host:port with localhost or a loopback address, such as " + defaultControlListen,
}

const (
	addressAllowed  = "host:port or :port, with a port from 0 to 65535"
	priorityAllowed = "a whole number from -100 to 100"
	failuresAllowed = "a whole number from 1 to 100"
	intervalAllowed = "a duration from 100ms to 1m, such as 1s"
	drainAllowed    = "a duration from 0s to 24h, such as 25s"
	labelAllowed    = "a label's key, such as podlease.io/role"
)

func (o *options) addPodFlags(f *settings.Flags) {
	f.Enum(&o.publish, publishAuto, []string{publishAuto, publishKubernetes, publishNone}, settings.Flag{Name: "publish", Usage: "where the role is published: on the Pod, nowhere, or auto: on the Pod when running in one"})
	f.String(&o.kubeconfig, "", settings.Flag{Name: "kubeconfig", Usage: "how the API server is reached from outside a Pod", Default: "in-cluster", Allowed: "a file that can be read"})
	f.String(&o.podinfoDir, "", settings.Flag{Name: "podinfo-dir", Usage: "a downward-API volume with the files annotations and labels: settings that may change, and the role label as the API server has it", Allowed: "a directory that can be read"})
	f.String(&o.roleLabel, "podlease.io/role", settings.Flag{Name: "role-label", Usage: "the Pod's label that carries the role", Allowed: labelAllowed})
	f.Bool(&o.readinessGate, false, settings.Flag{Name: "readiness-gate", Usage: "also set the Pod's condition podlease.io/active"})
	f.Enum(&o.fencing, fencingRedis, []string{fencingRedis, fencingKubernetes, fencingOff}, settings.Flag{Name: "fencing", Usage: "where fencing tokens come from: a counter on the nodes, a counter in a Lease object, or nowhere"})
}

func (o *options) addWorkloadFlags(f *settings.Flags) {
	f.String(&o.appHealth, "", settings.Flag{Name: "app-health", Usage: "where the app is asked how it is; while it is not healthy the sidecar does not contend, and gives the lease up", Allowed: "http://, https:// or tcp:// with a loopback host and a port, such as http://127.0.0.1:8080/healthz"})
	f.Int(&o.appHealthFailures, workload.DefaultFailures, settings.Flag{Name: "app-health-failures", Usage: "how many bad answers in a row make the app unhealthy", Allowed: failuresAllowed})
	f.Duration(&o.appHealthInterval, workload.DefaultInterval, settings.Flag{Name: "app-health-interval", Usage: "how often the app is asked", Allowed: intervalAllowed})
	f.Enum(&o.onLoss, onLossNone, []string{onLossNone, onLossExit}, settings.Flag{Name: "on-loss", Usage: "what happens when the lease was lost without having been asked to: nothing, or the sidecar exits with code 42"})
	f.Int(&o.priority, 0, settings.Flag{Name: "priority", Usage: "a lower one starts contending later, and never takes a held lease away", Allowed: priorityAllowed})
	f.Bool(&o.nativeSidecar, false, settings.Flag{Name: "native-sidecar", Usage: "SIGTERM means that the workload has already ended, as in an init container that always restarts"})
	f.Duration(&o.drainTimeout, 25*time.Second, settings.Flag{Name: "drain-timeout", Usage: "on SIGTERM without --native-sidecar, how long to wait for the workload to be seen stopped", Allowed: drainAllowed})
}

// parse reads args and env, works out defaults, and checks everything.
func (o *options) parse(f *settings.Flags, args, env []string) error {
	if err := f.Parse(args, env); err != nil {
		return err
	}
	warnings, err := settings.CompleteBoth(&o.lease, &o.redis, f)
	if err != nil {
		return err
	}
	o.warnings = warnings
	for _, complete := range []func(*settings.Flags) error{o.identity.Complete, o.checkAddresses, o.checkPod, o.checkWorkload, o.checkFencing} {
		if err := complete(f); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) checkAddresses(f *settings.Flags) error {
	if !validAddress(o.listen) {
		return f.Reject("listen", o.listen, addressAllowed)
	}
	if err := checkControlListen(f, o.controlListen); err != nil {
		return err
	}
	if _, port, _ := net.SplitHostPort(o.listen); port != "0" && o.listen == o.controlListen {
		return f.Reject("control-listen", o.controlListen, "another port than that of --listen")
	}
	return nil
}

func checkControlListen(f *settings.Flags, address string) error {
	if !validAddress(address) || statusapi.CheckLoopback(address) != nil {
		return f.Reject(controlListenFlag.Name, address, controlListenFlag.Allowed)
	}
	return nil
}

func validAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// labelKey is the grammar of a label's key: an optional DNS prefix, and a name.
var labelKey = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func (o *options) checkPod(f *settings.Flags) error {
	if o.publish == publishAuto {
		o.publish = o.automaticPublish(f)
	}
	switch {
	case o.kubeconfig != "" && !readable(o.kubeconfig, false):
		return f.Reject("kubeconfig", o.kubeconfig, "a file that can be read")
	case o.podinfoDir != "" && !readable(o.podinfoDir, true):
		return f.Reject("podinfo-dir", o.podinfoDir, "a directory that can be read")
	case !labelKey.MatchString(o.roleLabel):
		return f.Reject("role-label", o.roleLabel, labelAllowed)
	case o.publish == publishKubernetes && o.identity.PodName == "":
		return f.Require("pod-name")
	case o.publish == publishKubernetes && o.identity.PodNamespace == "":
		return f.Require("pod-namespace")
	case o.publish == publishKubernetes && o.identity.PodUID == "":
		return f.Require("pod-uid")
	case o.publish == publishNone && o.readinessGate:
		return f.Reject("readiness-gate", "true", "--publish=kubernetes as well: the condition is the Pod's")
	}
	return nil
}

// automaticPublish publishes on the Pod where there is one and its name is known. The
// kubelet sets KUBERNETES_SERVICE_HOST in every container.
func (o *options) automaticPublish(f *settings.Flags) string {
	inPod := f.Env("KUBERNETES_SERVICE_HOST") != ""
	named := o.identity.PodName != "" && o.identity.PodNamespace != "" && o.identity.PodUID != ""
	if inPod && !named {
		o.warnings = append(o.warnings, "the role is not published on the Pod: POD_NAME, POD_NAMESPACE and POD_UID are not all set")
	}
	if inPod && named {
		return publishKubernetes
	}
	return publishNone
}

func readable(path string, dir bool) bool {
	file, err := os.Open(path) //nolint:gosec // the path is a setting
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	return err == nil && info.IsDir() == dir
}

func (o *options) checkWorkload(f *settings.Flags) error {
	if f.Given("app-health") {
		if _, err := workload.ParseTarget(o.appHealth); err != nil {
			return f.Reject("app-health", o.appHealth, "http://, https:// or tcp:// with a loopback host and a port, such as http://127.0.0.1:8080/healthz")
		}
	}
	switch {
	case o.appHealthFailures < 1 || o.appHealthFailures > 100:
		return f.Reject("app-health-failures", strconv.Itoa(o.appHealthFailures), failuresAllowed)
	case o.appHealthInterval < 100*time.Millisecond || o.appHealthInterval > time.Minute:
		return f.Reject("app-health-interval", o.appHealthInterval.String(), intervalAllowed)
	case o.priority < -100 || o.priority > 100:
		return f.Reject("priority", strconv.Itoa(o.priority), priorityAllowed)
	case o.drainTimeout < 0 || o.drainTimeout > 24*time.Hour:
		return f.Reject("drain-timeout", o.drainTimeout.String(), drainAllowed)
	}
	return nil
}

// checkFencing wants a namespace for the Lease object that counts tokens.
func (o *options) checkFencing(f *settings.Flags) error {
	if o.fencing == fencingKubernetes && o.identity.PodNamespace == "" {
		return f.Require("pod-namespace")
	}
	return nil
}
