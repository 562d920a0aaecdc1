package annotations

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Built-in defaults of settings that are no flags of the sidecar.
const (
	defaultQuorum   = "default"
	defaultHTTPPort = 8484
	defaultCPU      = "100m"
	defaultMemory   = "64Mi"
)

// Installation is what one installation of podlease sets and allows for all Pods.
type Installation struct {
	// Defaults are values by key (see [Key.Chart]) for Pods that do not give them.
	Defaults map[string]string
	// Quorums are the names of the Redis quorums there are.
	Quorums []string
	// Quarantine is the one all sidecars have; nil leaves it to the flag's default,
	// zero turns it off.
	Quarantine *time.Duration
	// CrossNamespaceLocks allows locks outside the Pod's namespace.
	CrossNamespaceLocks bool
	// RestartAllContainers says that the cluster has the restart rule of that name,
	// that is Kubernetes 1.36 or later.
	RestartAllContainers bool
	// RoleLabel is the key of the role label; empty means [Role].
	RoleLabel string
}

// Metadata is what is read of a Pod or a Pod template.
type Metadata struct {
	Namespace   string
	Annotations map[string]string
	Labels      map[string]string
	// Path is where the metadata lies, for messages; nil means "metadata".
	Path *field.Path
}

// Set is what one Pod is to get: its own values over the installation's over the
// built-in ones.
type Set struct {
	// Lock is the given name, or empty where it is to be derived.
	Lock         string
	Quorum       string
	AppHealth    string
	AppContainer string // empty where it is to be chosen
	Readiness    string
	OnLoss       string
	Wait         string
	Fencing      string
	// HTTPPort is the read-only port; the control port is the next one.
	HTTPPort    int32
	CPU, Memory resource.Quantity
	Timing      Timing

	values map[string]string
}

// Flags are the sidecar's flags that differ from their defaults because the Pod or
// the installation says so, in the order of the documentation.
func (s *Set) Flags() []string {
	var out []string
	for _, k := range table {
		if v, ok := s.values[k.Name]; ok && k.Flag != "" {
			out = append(out, "--"+k.Flag+"="+v)
		}
	}
	return out
}

// Wanted reports whether metadata asks for the sidecar. A value that is neither
// "true" nor "false" is an error; "false" anywhere wins over "true".
func Wanted(m Metadata) (bool, field.ErrorList) {
	key := mustFind(Inject)
	var errs field.ErrorList
	if m.Annotations[Inject] == False || m.Labels[Inject] == False {
		return false, nil
	}
	wanted := false
	for _, at := range []struct {
		where  string
		values map[string]string
	}{{"annotations", m.Annotations}, {"labels", m.Labels}} {
		v, ok := at.values[Inject]
		if !ok {
			continue
		}
		if key.Check(v) != nil {
			errs = append(errs, field.NotSupported(m.path().Child(at.where).Key(Inject), v, key.Values))
		}
		wanted = wanted || v == True
	}
	return wanted, errs
}

// Parse checks metadata that asks for the sidecar and returns what it is to get. The
// set is whole only when there are no errors; warnings come in either case.
func Parse(m Metadata, inst Installation) (*Set, []string, field.ErrorList) {
	p := parser{Metadata: m, inst: inst, values: map[string]string{}}
	p.collect()
	if len(p.errs) > 0 {
		return nil, Unknown(m, inst), p.errs
	}
	set := p.build()
	p.checkPlaces(set)
	p.checkTiming(set)
	p.checkLoss(set)
	return set, append(Unknown(m, inst), p.warnings...), p.errs
}

// Ignored warns of settings that do nothing because the Pod does not ask for the
// sidecar.
func Ignored(m Metadata, inst Installation) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m.Annotations)) {
		if k, ok := Find(name); ok && k.Author != Podlease && name != Inject {
			out = append(out, fmt.Sprintf("%s does nothing without %s: \"true\"", name, Inject))
		}
	}
	return append(out, Unknown(m, inst)...)
}

type parser struct {
	Metadata
	inst     Installation
	values   map[string]string // given by the Pod or the installation
	warnings []string
	errs     field.ErrorList
}

func (m Metadata) path() *field.Path {
	if m.Path == nil {
		return field.NewPath("metadata")
	}
	return m.Path
}

func (m Metadata) at(key string) *field.Path { return m.path().Child("annotations").Key(key) }

// collect checks each value on its own.
func (p *parser) collect() {
	for _, k := range table {
		if k.Author == Podlease {
			continue
		}
		if v, ok := p.inst.Defaults[k.Name]; ok && v != "" && k.Chart != "" {
			p.values[k.Name] = v
		}
		v, given := p.Annotations[k.Name]
		if !given {
			continue
		}
		p.values[k.Name] = v
		if err := k.Check(v); err != nil {
			p.errs = append(p.errs, p.wrong(k, v, err))
		}
	}
}

func (p *parser) wrong(k Key, v string, err error) *field.Error {
	if k.Values != nil {
		return field.NotSupported(p.at(k.Name), v, k.Values)
	}
	return field.Invalid(p.at(k.Name), v, err.Error())
}

func (p *parser) build() *Set {
	if p.values[OnLoss] == OnLossRestart {
		p.applyRestartDefaults()
	}
	port, _ := strconv.ParseInt(p.or(HTTPPort, strconv.Itoa(defaultHTTPPort)), 10, 32)
	return &Set{
		Lock:         p.values[Lock],
		Quorum:       p.or(Quorum, defaultQuorum),
		AppHealth:    p.or(AppHealth, Auto),
		AppContainer: p.values[AppContainer],
		Readiness:    p.or(Readiness, ReadinessParticipating),
		OnLoss:       p.or(OnLoss, None),
		Wait:         p.or(Wait, WaitForever),
		Fencing:      p.or(Fencing, FencingRedis),
		HTTPPort:     int32(port),
		CPU:          quantity(p.or(CPU, defaultCPU), defaultCPU),
		Memory:       quantity(p.or(Memory, defaultMemory), defaultMemory),
		Timing:       timing(p.values),
		values:       p.values,
	}
}

func (p *parser) or(key, fallback string) string {
	if v, ok := p.values[key]; ok {
		return v
	}
	return fallback
}

// quantity reads what was checked; the installation's own value may be wrong, and
// then the built-in one holds.
func quantity(v, fallback string) resource.Quantity {
	q, err := resource.ParseQuantity(v)
	if err != nil {
		return resource.MustParse(fallback)
	}
	return q
}

func (p *parser) given(key string) bool {
	_, ok := p.Annotations[key]
	return ok
}

// checkPlaces checks what points elsewhere: the quorum and the lock's namespace.
func (p *parser) checkPlaces(s *Set) {
	if !slices.Contains(p.inst.Quorums, s.Quorum) {
		p.errs = append(p.errs, field.NotSupported(p.at(Quorum), s.Quorum, p.inst.Quorums))
	}
	if s.Lock == "" || p.inst.CrossNamespaceLocks || strings.HasPrefix(s.Lock, p.Namespace+"/") {
		return
	}
	p.errs = append(p.errs, field.Invalid(p.at(Lock), s.Lock,
		fmt.Sprintf("must lie under the Pod's namespace, for example %q, unless the chart sets locks.crossNamespace", p.Namespace+"/"+lastPart(s.Lock))))
}

func lastPart(lock string) string { return lock[strings.LastIndex(lock, "/")+1:] }

// checkLoss checks what happens on loss.
func (p *parser) checkLoss(s *Set) {
	if s.OnLoss == OnLossRestart && !p.inst.RestartAllContainers {
		p.errs = append(p.errs, field.Invalid(p.at(OnLoss), s.OnLoss,
			`needs Kubernetes 1.36 or later; allowed here: "none", "exit", "exec"`))
	}
	if s.OnLoss != OnLossExec && p.given(Wait) {
		p.warnings = append(p.warnings, fmt.Sprintf("%s does nothing without %s: %q", Wait, OnLoss, OnLossExec))
	}
}

// QuorumOf is the quorum that a Pod with these annotations uses.
func QuorumOf(given map[string]string) string {
	if q, ok := given[Quorum]; ok {
		return q
	}
	return defaultQuorum
}
