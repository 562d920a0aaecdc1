package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/pkg/settings"
)

// required is the shortest complete command line.
var required = []string{"--lock=orders", "--redis=a:6379,b:6379,c:6379"}

// parseOptions gives args after the required ones, of which it may repeat some.
func parseOptions(t *testing.T, env []string, args ...string) (*options, error) {
	t.Helper()
	o, f := newOptions()
	return o, o.parse(f, append(append([]string{}, required...), args...), env)
}

func mustParse(t *testing.T, env []string, args ...string) *options {
	t.Helper()
	o, err := parseOptions(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Each flag's wrong values: what has to be in the message besides the flag.
func TestWrongValueIsOneLineAndExitCode2(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	tests := map[string]struct {
		args []string
		flag string
		want string // a part of what is allowed
	}{
		"lock with a space":              {[]string{"--lock=a b"}, "--lock", "A-Z a-z 0-9 . _ / -"},
		"lock with a double slash":       {[]string{"--lock=a//b"}, "--lock", "without //"},
		"lock with a leading slash":      {[]string{"--lock=/a"}, "--lock", "either end"},
		"lock with a trailing slash":     {[]string{"--lock=a/"}, "--lock", "either end"},
		"lock too long":                  {[]string{"--lock=" + strings.Repeat("a", 201)}, "--lock", "1 to 200"},
		"bare key with a space":          {[]string{"--bare-key", "--lock=a b"}, "--lock", "printable"},
		"bare key with a control letter": {[]string{"--bare-key", "--lock=a\x01"}, "--lock", "printable"},
		"bare key that is no text":       {[]string{"--bare-key", "--lock=a\xff"}, "--lock", "printable"},
		"bare-key":                       {[]string{"--bare-key=maybe"}, "--bare-key", "true or false"},
		"key prefix empty":               {[]string{"--key-prefix="}, "--key-prefix", "1 to 200 printable"},
		"key prefix with a newline":      {[]string{"--key-prefix=a\nb"}, "--key-prefix", "printable"},

		"redis without a port":     {[]string{"--redis=host"}, "--redis", "host:port"},
		"redis with an empty part": {[]string{"--redis=d:1,,e:1"}, "--redis", "host:port"},
		"redis port out of range":  {[]string{"--redis=d:65536"}, "--redis", "host:port"},
		"redis with another URL":   {[]string{"--redis=http://d:1"}, "--redis", "rediss://"},
		"redis with a bad number":  {[]string{"--redis=redis://d:1/x"}, "--redis", "[/db]"},
		"redis twice":              {[]string{"--redis=d:1,d:1"}, "--redis", "d:1 is listed twice"},
		"redis twice by case":      {[]string{"--redis=d:1,redis://D:1"}, "--redis", "d:1 is listed twice"},
		"redis with a password":    {[]string{"--redis=redis://u:hunter2@d:1"}, "--redis", "--password-file"},
		"allow-unfit-nodes":        {[]string{"--allow-unfit-nodes=2"}, "--allow-unfit-nodes", "true or false"},
		"username twice":           {[]string{"--username=a", "--username-file=" + empty}, "--username", "no --username-file"},
		"username with a space":    {[]string{"--username=a b"}, "--username", "printable"},
		"username file missing":    {[]string{"--username-file=" + missing}, "--username-file", "a file that can be read"},
		"password file empty":      {[]string{"--password-file=" + empty}, "--password-file", "not empty"},
		"password file missing":    {[]string{"--password-file=" + missing}, "--password-file", "a file that can be read"},
		"CA without TLS":           {[]string{"--tls-ca-file=" + empty}, "--tls-ca-file", "rediss://"},
		"CA without certificates":  {[]string{"--redis=rediss://d:1", "--tls-ca-file=" + empty}, "--tls-ca-file", "PEM"},
		"CA missing":               {[]string{"--redis=rediss://d:1", "--tls-ca-file=" + missing}, "--tls-ca-file", "PEM"},
		"certificate without key":  {[]string{"--redis=rediss://d:1", "--tls-cert-file=" + empty}, "--tls-cert-file", "want --tls-key-file as well"},
		"key without certificate":  {[]string{"--redis=rediss://d:1", "--tls-key-file=" + empty}, "--tls-key-file", "--tls-cert-file"},
		"server name":              {[]string{"--redis=rediss://d:1", "--tls-server-name=a b"}, "--tls-server-name", "a host name"},

		"ttl without a unit":          {[]string{"--ttl=10"}, "--ttl", "a duration"},
		"ttl too short":               {[]string{"--ttl=499ms"}, "--ttl", "at least 500ms"},
		"ttl in microseconds":         {[]string{"--ttl=1000001us"}, "--ttl", "whole milliseconds"},
		"ttl long without quarantine": {[]string{"--ttl=31s"}, "--ttl", "--quarantine"},
		"renew interval zero":         {[]string{"--renew-interval=0s"}, "--renew-interval", "above 0s"},
		"renew interval too long":     {[]string{"--renew-interval=3s"}, "--renew-interval", "to fit into"},
		"stop budget negative":        {[]string{"--stop-budget=-1s"}, "--stop-budget", "from 0s"},
		"stop budget of a ttl":        {[]string{"--stop-budget=10s"}, "--stop-budget", "below --ttl"},
		"stop budget too long":        {[]string{"--stop-budget=4s"}, "--stop-budget", "to fit into"},
		"node timeout zero":           {[]string{"--node-timeout=0s"}, "--node-timeout", "at least 1ms"},
		"node timeout too long":       {[]string{"--node-timeout=1001ms"}, "--node-timeout", "a tenth of --ttl"},
		"node timeout overflowing":    {[]string{"--node-timeout=2000000h"}, "--node-timeout", "a tenth of --ttl"},
		"quarantine below ttl":        {[]string{"--quarantine=9s"}, "--quarantine", "at least --ttl"},
		"quarantine negative":         {[]string{"--quarantine=-1s"}, "--quarantine", "or 0s"},

		"identity with a newline":   {[]string{"--identity=a\nb"}, "--identity", "printable"},
		"identity empty":            {[]string{"--identity="}, "--identity", "1 to 400"},
		"identity too long":         {[]string{"--identity=" + strings.Repeat("a", 401)}, "--identity", "1 to 400"},
		"cluster name with a slash": {[]string{"--cluster-name=a/b"}, "--cluster-name", "1 to 63"},
		"pod name":                  {[]string{"--pod-name=A"}, "--pod-name", "Kubernetes object"},
		"pod namespace":             {[]string{"--pod-namespace=a/b"}, "--pod-namespace", "Kubernetes object"},
		"pod uid":                   {[]string{"--pod-uid=a b"}, "--pod-uid", "1 to 64"},

		"listen without a port":     {[]string{"--listen=127.0.0.1"}, "--listen", "host:port"},
		"listen port out of range":  {[]string{"--listen=:70000"}, "--listen", "0 to 65535"},
		"control on all addresses":  {[]string{"--control-listen=:8485"}, "--control-listen", "loopback"},
		"control on the Pod's IP":   {[]string{"--control-listen=10.0.0.1:8485"}, "--control-listen", "loopback"},
		"control under a name":      {[]string{"--control-listen=example.org:8485"}, "--control-listen", "loopback"},
		"control on the same":       {[]string{"--listen=127.0.0.1:1", "--control-listen=127.0.0.1:1"}, "--control-listen", "another port"},
		"publish":                   {[]string{"--publish=yes"}, "--publish", "auto, kubernetes or none"},
		"publish without a name":    {[]string{"--publish=kubernetes"}, "--pod-name", "is required"},
		"publish without namespace": {[]string{"--publish=kubernetes", "--pod-name=a"}, "--pod-namespace", "is required"},
		"publish without uid":       {[]string{"--publish=kubernetes", "--pod-name=a", "--pod-namespace=b"}, "--pod-uid", "is required"},
		"kubeconfig missing":        {[]string{"--kubeconfig=" + missing}, "--kubeconfig", "a file that can be read"},
		"podinfo dir is a file":     {[]string{"--podinfo-dir=" + empty}, "--podinfo-dir", "a directory"},
		"role label":                {[]string{"--role-label=a b"}, "--role-label", "podlease.io/role"},
		"readiness gate, no Pod":    {[]string{"--publish=none", "--readiness-gate"}, "--readiness-gate", "--publish=kubernetes"},
		"readiness gate":            {[]string{"--readiness-gate=x"}, "--readiness-gate", "true or false"},
		"fencing":                   {[]string{"--fencing=on"}, "--fencing", "redis, kubernetes or off"},
		"fencing without namespace": {[]string{"--fencing=kubernetes"}, "--pod-namespace", "is required"},

		"app health elsewhere":     {[]string{"--app-health=http://10.0.0.1:80/"}, "--app-health", "loopback"},
		"app health empty":         {[]string{"--app-health="}, "--app-health", "loopback"},
		"app health, other scheme": {[]string{"--app-health=ftp://127.0.0.1:80/"}, "--app-health", "http://, https:// or tcp://"},
		"app health, no port":      {[]string{"--app-health=tcp://127.0.0.1"}, "--app-health", "a port"},
		"app health failures":      {[]string{"--app-health-failures=0"}, "--app-health-failures", "1 to 100"},
		"app health interval":      {[]string{"--app-health-interval=99ms"}, "--app-health-interval", "100ms to 1m"},
		"on-loss":                  {[]string{"--on-loss=restart"}, "--on-loss", "none or exit"},
		"priority":                 {[]string{"--priority=101"}, "--priority", "-100 to 100"},
		"priority, no number":      {[]string{"--priority=high"}, "--priority", "-100 to 100"},
		"native-sidecar":           {[]string{"--native-sidecar=1.5"}, "--native-sidecar", "true or false"},
		"drain timeout":            {[]string{"--drain-timeout=-1s"}, "--drain-timeout", "0s to 24h"},
		"log level":                {[]string{"--log-level=warn"}, "--log-level", "debug, info or error"},
		"log format":               {[]string{"--log-format=xml"}, "--log-format", "json or text"},
		"no value":                 {[]string{"--ttl"}, "--ttl", "has no value"},
		"unknown flag":             {[]string{"--lokc=a"}, "--lokc", "unknown flag"},
		"unknown short flag":       {[]string{"-x"}, "-x", "unknown flag"},
		"an argument":              {[]string{"orders"}, "orders", "flags only"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args := withoutRepeated(tt.args)
			code, stdout, stderr := runWith(t, nil, args...)
			assertUsageError(t, code, stdout, stderr)
			if !strings.Contains(stderr, tt.flag) || !strings.Contains(stderr, tt.want) {
				t.Errorf("message %q does not name %q and %q", stderr, tt.flag, tt.want)
			}
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("message %q shows the password", stderr)
			}
		})
	}
	for _, name := range flagNames() {
		covered := false
		for _, tt := range tests {
			covered = covered || tt.flag == "--"+name
		}
		if !covered && name != "version" {
			t.Errorf("no wrong value of --%s is tried", name)
		}
	}
}

// withoutRepeated puts args after those required ones that they do not give.
func withoutRepeated(args []string) []string {
	var all []string
	for _, r := range required {
		name, _, _ := strings.Cut(r, "=")
		if !strings.Contains(strings.Join(args, " "), name+"=") {
			all = append(all, r)
		}
	}
	return append(all, args...)
}

func assertUsageError(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
	if stdout != "" {
		t.Errorf("standard output has %q", stdout)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") {
		t.Errorf("message is not one line: %q", stderr)
	}
}

func runWith(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, env, &out, &err)
	return code, out.String(), err.String()
}

func flagNames() []string {
	_, f := newOptions()
	return f.Names()
}

func TestRequiredFlagsAreAskedFor(t *testing.T) {
	for _, name := range []string{"lock", "redis"} {
		var args []string
		for _, r := range required {
			if !strings.HasPrefix(r, "--"+name) {
				args = append(args, r)
			}
		}
		code, stdout, stderr := runWith(t, nil, args...)
		assertUsageError(t, code, stdout, stderr)
		if !strings.Contains(stderr, "--"+name) || !strings.Contains(stderr, settings.Variable(name)) {
			t.Errorf("message %q does not ask for --%s", stderr, name)
		}
	}
}

func TestWrongVariableIsNamed(t *testing.T) {
	code, stdout, stderr := runWith(t, []string{"PODLEASE_TTL=soon"}, required...)
	assertUsageError(t, code, stdout, stderr)
	for _, want := range []string{"PODLEASE_TTL", "--ttl", `"soon"`} {
		if !strings.Contains(stderr, want) {
			t.Errorf("message %q does not contain %s", stderr, want)
		}
	}
}

func TestDefaultsFollowTheTTL(t *testing.T) {
	tests := map[string]struct {
		args                                 []string
		renew, stop, nodeTimeout, quarantine time.Duration
	}{
		"none given": {nil, 2 * time.Second, 2500 * time.Millisecond, 200 * time.Millisecond, 31 * time.Second},
		"shortest":   {[]string{"--ttl=500ms"}, 100 * time.Millisecond, 125 * time.Millisecond, 20 * time.Millisecond, 31 * time.Second},
		"long":       {[]string{"--ttl=60s", "--quarantine=90s"}, 12 * time.Second, 15 * time.Second, 500 * time.Millisecond, 90 * time.Second},
		"switched off": {
			[]string{"--stop-budget=0s", "--quarantine=0s"}, 2 * time.Second, 0, 200 * time.Millisecond, 0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := mustParse(t, nil, tt.args...).lease
			got := []time.Duration{l.RenewInterval, l.StopBudget, l.NodeTimeout, l.Quarantine}
			want := []time.Duration{tt.renew, tt.stop, tt.nodeTimeout, tt.quarantine}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("renew, stop, node timeout, quarantine: got %v, want %v", got, want)
				}
			}
		})
	}
}

func TestDefaultsOfTheContract(t *testing.T) {
	o := mustParse(t, nil)
	got := []any{
		o.lease.TTL, o.lease.KeyPrefix, o.listen, o.controlListen, o.publish, o.roleLabel, o.fencing,
		o.appHealthFailures, o.appHealthInterval, o.onLoss, o.priority, o.drainTimeout, o.logging.Level, o.logging.Format,
		o.nativeSidecar, o.readinessGate, o.redis.AllowUnfit, o.lease.BareKey,
	}
	want := []any{
		10 * time.Second, "podlease:", ":8484", "127.0.0.1:8485", "none", "podlease.io/role", "redis",
		3, time.Second, "none", 0, 25 * time.Second, "info", "json",
		false, false, false, false,
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("default %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	env := []string{
		"PODLEASE_TTL=5s", "PODLEASE_STOP_BUDGET=1s", "PODLEASE_REDIS=x:1", "PODLEASE_KEY_PREFIX=",
		"PODLEASE_PORT=tcp://10.0.0.1:80", "PODLEASE_SERVICE_HOST=10.0.0.1", "PODLEASE_VERSION=1.2.3",
	}
	o := mustParse(t, env, "--ttl=6s")
	if o.lease.TTL != 6*time.Second || o.lease.StopBudget != time.Second {
		t.Errorf("ttl %v, stop budget %v: want that of the flag, 6s, and that of the variable, 1s", o.lease.TTL, o.lease.StopBudget)
	}
	if len(o.redis.Nodes) != 3 {
		t.Errorf("%d nodes: those of the variable were added to those of the flag", len(o.redis.Nodes))
	}
	if o.lease.KeyPrefix != "podlease:" {
		t.Errorf("key prefix %q: an empty variable counts", o.lease.KeyPrefix)
	}
}

func TestEveryFlagCanBeAVariable(t *testing.T) {
	o, f := newOptions()
	err := o.parse(f, nil, []string{"PODLEASE_LOCK=orders", "PODLEASE_REDIS=a:1, b:1,c:1", "PODLEASE_NATIVE_SIDECAR=true", "PODLEASE_PRIORITY=-5"})
	if err != nil {
		t.Fatal(err)
	}
	if o.lease.Lock != "orders" || len(o.redis.Nodes) != 3 || !o.nativeSidecar || o.priority != -5 {
		t.Errorf("variables were not taken over: %+v", o)
	}
}

func TestRedisMayBeRepeated(t *testing.T) {
	o, f := newOptions()
	if err := o.parse(f, []string{"--lock=a", "--redis=a:1", "--redis=rediss://user@B:2/3,unix:///run/redis.sock"}, nil); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range o.redis.Nodes {
		names = append(names, n.Name)
	}
	if got, want := strings.Join(names, " "), "a:1 b:2/3 unix:///run/redis.sock"; got != want {
		t.Errorf("nodes %q, want %q", got, want)
	}
}

func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		env  []string
		args []string
		want string
	}{
		"one node":          {nil, []string{"--redis=d:1"}, "one node"},
		"even":              {nil, []string{"--redis=d:1,e:1"}, "of 2 nodes 0 may fail, as of 1; of 3 it is 1"},
		"no quarantine":     {nil, []string{"--quarantine=0s"}, "quarantine is off"},
		"unknown Pod":       {[]string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, nil, "not published"},
		"negative, testing": {[]string{"PODLEASE_UNSAFE_TESTING=1"}, []string{"--stop-budget=-1s"}, "two holders"},
		"nothing to say":    {nil, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, f := newOptions()
			if err := o.parse(f, withoutRepeated(tt.args), tt.env); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(o.warnings, "; ")
			if !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("warnings %q, want %q", got, tt.want)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	pod := []string{"POD_NAME=orders-1", "POD_NAMESPACE=shop", "POD_UID=u-1"}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		env  []string
		args []string
		want string
	}{
		"host name":            {nil, nil, host},
		"Pod":                  {pod, nil, "shop/orders-1"},
		"Pod of flags":         {pod, []string{"--pod-name=other"}, "shop/other"},
		"given":                {pod, []string{"--identity=me"}, "me"},
		"with a cluster":       {pod, []string{"--cluster-name=east"}, "east/shop/orders-1"},
		"given with a cluster": {nil, []string{"--identity=me", "--cluster-name=east"}, "east/me"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mustParse(t, tt.env, tt.args...).identity.Name; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestPublishAuto(t *testing.T) {
	pod := []string{"POD_NAME=orders-1", "POD_NAMESPACE=shop", "POD_UID=u-1"}
	tests := map[string]struct {
		env  []string
		want string
	}{
		"not in a Pod":       {pod, publishNone},
		"in a Pod":           {append(pod, "KUBERNETES_SERVICE_HOST=10.0.0.1"), publishKubernetes},
		"in an unknown Pod":  {[]string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, publishNone},
		"told not to":        {append(pod, "KUBERNETES_SERVICE_HOST=10.0.0.1", "PODLEASE_PUBLISH=none"), publishNone},
		"told to, elsewhere": {append(pod, "PODLEASE_PUBLISH=kubernetes"), publishKubernetes},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mustParse(t, tt.env).publish; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNegativeStopBudgetNeedsItsVariable(t *testing.T) {
	for _, value := range []string{"", "0", "true"} {
		if _, err := parseOptions(t, []string{"PODLEASE_UNSAFE_TESTING=" + value}, "--stop-budget=-1s"); err == nil {
			t.Errorf("a negative stop budget was allowed with PODLEASE_UNSAFE_TESTING=%q", value)
		}
	}
	o := mustParse(t, []string{"PODLEASE_UNSAFE_TESTING=1"}, "--stop-budget=-1s")
	if o.lease.StopBudget != -time.Second || !o.lease.Unsafe {
		t.Errorf("stop budget %v, unsafe %v", o.lease.StopBudget, o.lease.Unsafe)
	}
}

func TestHelpListsEveryFlag(t *testing.T) {
	code, stdout, stderr := runWith(t, nil, "--help")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, name := range flagNames() {
		if !strings.Contains(stdout, "--"+name) {
			t.Errorf("--%s is not listed", name)
		}
		if name != "version" && !strings.Contains(stdout, settings.Variable(name)+"\n") {
			t.Errorf("the variable of --%s is not listed", name)
		}
	}
	for flag, allowed := range map[string]string{
		"log-level": "debug, info or error", "log-format": "json or text", "publish": "auto, kubernetes or none",
		"fencing": "redis, kubernetes or off", "on-loss": "none or exit", "priority": "a whole number from -100 to 100",
	} {
		_, about, _ := strings.Cut(stdout, "--"+flag+" ")
		about, _, _ = strings.Cut(about, "\n  --")
		if !strings.Contains(about, allowed) {
			t.Errorf("the help of --%s does not say %q:\n%s", flag, allowed, about)
		}
	}
	// The names that users and charts rely on.
	for name := range strings.FieldsSeq(`lock redis key-prefix bare-key ttl renew-interval stop-budget node-timeout
		quarantine allow-unfit-nodes identity cluster-name listen control-listen publish kubeconfig pod-name pod-namespace
		pod-uid podinfo-dir role-label readiness-gate fencing app-health app-health-failures app-health-interval on-loss
		priority native-sidecar drain-timeout username username-file password-file tls-ca-file tls-cert-file tls-key-file
		tls-server-name log-level log-format version help`) {
		if !strings.Contains(stdout, "--"+name+" ") && !strings.Contains(stdout, "--"+name+"\n") {
			t.Errorf("there is no --%s", name)
		}
	}
	if strings.Contains(stdout, "UNSAFE") {
		t.Error("the help shows what only tests may use")
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := runWith(t, nil, "--version")
	if code != 0 || !strings.HasPrefix(stdout, "podlease-sidecar ") {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
}

// Every Pod that holds a lease pays for what the sidecar links.
func TestLinksNoLargeLibraries(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, large := range []string{"k8s.io/client-go/kubernetes/", "k8s.io/api/", "sigs.k8s.io/controller-runtime/"} {
			if strings.HasPrefix(dep+"/", large) {
				t.Errorf("the sidecar links %s", dep)
			}
		}
	}
}
