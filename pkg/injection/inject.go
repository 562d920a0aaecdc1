package injection

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/podlease/podlease/pkg/annotations"
)

// Inject decides about one Pod. It does nothing, but warn, for a Pod that does not ask
// for the sidecar.
func Inject(pod *corev1.Pod, req Request, settings Settings) Result {
	settings.Installation.Quorums = slices.Sorted(maps.Keys(settings.Quorums))
	meta := annotations.Metadata{Namespace: req.Namespace, Annotations: pod.Annotations, Labels: pod.Labels}
	wanted, errs := annotations.Wanted(meta)
	if len(errs) > 0 {
		return Result{Refusal: refusal(errs)}
	}
	if !wanted {
		return Result{Warnings: ignored(meta, settings.Installation)}
	}
	set, warnings, errs := annotations.Parse(meta, settings.Installation)
	if set == nil {
		return Result{Warnings: warnings, Refusal: refusal(errs)}
	}
	i := &injector{pod: pod.DeepCopy(), req: req, settings: settings, set: set, warnings: warnings, errs: errs}
	return i.run()
}

// ignored warns of settings without inject, but not where "false" says that this is
// meant.
func ignored(m annotations.Metadata, inst annotations.Installation) []string {
	if m.Annotations[annotations.Inject] != "" || m.Labels[annotations.Inject] != "" {
		return nil
	}
	return annotations.Ignored(m, inst)
}

func refusal(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("podlease: %w", errs.ToAggregate())
}

// injector works on its own copy of one Pod.
type injector struct {
	pod      *corev1.Pod
	req      Request
	settings Settings
	set      *annotations.Set

	lock     string
	app      *corev1.Container // the app container, in pod
	reasons  []string
	warnings []string
	errs     field.ErrorList
}

func (i *injector) run() Result {
	i.chooseLock()
	i.chooseApp()
	i.checkPod()
	if i.set.OnLoss == annotations.OnLossExec && len(i.errs) == 0 {
		i.wrapCommand()
	}
	if len(i.errs) > 0 {
		return Result{Warnings: i.warnings, Refusal: refusal(i.errs)}
	}
	i.addContainers()
	i.addVolumes()
	i.addURL()
	i.addGate()
	i.addMetadata()
	return Result{
		Pod: i.pod, Lock: i.lock, Need: i.need(),
		Reasons: i.reasons, Warnings: i.warnings,
	}
}

func (i *injector) need() Need {
	n := Need{
		Namespace:      i.req.Namespace,
		ServiceAccount: i.pod.Spec.ServiceAccountName,
		Quorum:         i.set.Quorum,
		Leases:         i.set.Fencing == annotations.FencingKubernetes,
	}
	if n.ServiceAccount == "" {
		n.ServiceAccount = "default"
	}
	return n
}

func (i *injector) reason(format string, args ...any) {
	i.reasons = append(i.reasons, fmt.Sprintf(format, args...))
}

func (i *injector) chooseLock() {
	if i.lock = i.set.Lock; i.lock != "" {
		return
	}
	i.lock = LockName(i.pod, i.req)
	i.reason("lock %s: the name of what owns the Pod", i.lock)
	if key, _ := annotations.Find(annotations.Lock); key.Check(i.lock) != nil {
		i.errs = append(i.errs, field.Invalid(annotationPath(annotations.Lock), i.lock,
			"the name made from the Pod's owner is not allowed as a lock; give one: "+key.Allowed))
	}
}

func annotationPath(key string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(key)
}

// addURL tells the other containers where the sidecar answers, unless they say
// themselves.
func (i *injector) addURL() {
	for _, c := range i.others() {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == urlVariable }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: urlVariable, Value: i.url()})
		}
	}
}

func (i *injector) url() string { return fmt.Sprintf("http://127.0.0.1:%d", i.set.HTTPPort) }

// others are the containers that run beside the sidecar: the app's, and other native
// sidecars.
func (i *injector) others() []*corev1.Container {
	var out []*corev1.Container
	for n := range i.pod.Spec.InitContainers {
		if c := &i.pod.Spec.InitContainers[n]; isNativeSidecar(c) && c.Name != ContainerName {
			out = append(out, c)
		}
	}
	for n := range i.pod.Spec.Containers {
		out = append(out, &i.pod.Spec.Containers[n])
	}
	return out
}

func isNativeSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (i *injector) addGate() {
	gate := corev1.PodReadinessGate{ConditionType: annotations.ActiveCondition}
	if i.set.Readiness == annotations.ReadinessGate && !slices.Contains(i.pod.Spec.ReadinessGates, gate) {
		i.pod.Spec.ReadinessGates = append(i.pod.Spec.ReadinessGates, gate)
	}
}

// Status is what the annotation of that name says of an injected Pod.
type Status struct {
	Version string `json:"version"`
	Image   string `json:"image"`
	Lock    string `json:"lock"`
	Quorum  string `json:"quorum"`
	Fencing string `json:"fencing"`
}

// ReadStatus reads the status annotation; ok is false where there is none that can be
// read.
func ReadStatus(of map[string]string) (s Status, ok bool) {
	err := json.Unmarshal([]byte(of[annotations.Status]), &s)
	return s, err == nil && s.Lock != ""
}

func (i *injector) addMetadata() {
	raw, err := json.Marshal(Status{
		Version: i.settings.Version, Image: i.settings.Image, Lock: i.lock, Quorum: i.set.Quorum, Fencing: i.set.Fencing,
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	i.pod.Annotations = with(i.pod.Annotations, annotations.Status, string(raw))
	i.pod.Annotations = with(i.pod.Annotations, annotations.Lock, i.lock)
	i.pod.Labels = with(i.pod.Labels, annotations.Injected, annotations.True)
	i.pod.Labels = with(i.pod.Labels, i.roleLabel(), annotations.RoleStandby)
}

func (i *injector) roleLabel() string {
	if i.settings.RoleLabel == "" {
		return annotations.Role
	}
	return i.settings.RoleLabel
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
