package settings

import (
	"os"
	"regexp"
)

// Identity says who takes part, for people.
type Identity struct {
	// Name is complete after Complete: the cluster's name, if there is one, a slash
	// and the own name.
	Name string

	Cluster      string
	PodName      string
	PodNamespace string
	PodUID       string
}

// AddFlags adds the identity's flags to f.
func (i *Identity) AddFlags(f *Flags) {
	i.AddNameFlags(f)
	i.addPodFlags(f)
}

// AddNameFlags adds only those about the name, for programs that publish nothing.
func (i *Identity) AddNameFlags(f *Flags) {
	f.String(&i.Name, "", Flag{Name: "identity", Usage: "who holds the lease, for people; it is not a secret", Default: "$POD_NAMESPACE/$POD_NAME, else the host name", Allowed: printableAllowed(MaxIdentity)})
	f.String(&i.Cluster, "", Flag{Name: "cluster-name", Usage: "put before the identity, with a slash, where candidates of one lock run in several clusters", Allowed: clusterAllowed})
}

func (i *Identity) addPodFlags(f *Flags) {
	f.String(&i.PodName, "", Flag{Name: "pod-name", Usage: "the Pod to label", Default: "$POD_NAME", Allowed: nameAllowed})
	f.String(&i.PodNamespace, "", Flag{Name: "pod-namespace", Usage: "the namespace of the Pod to label", Default: "$POD_NAMESPACE", Allowed: nameAllowed})
	f.String(&i.PodUID, "", Flag{Name: "pod-uid", Usage: "the uid of the Pod to label, so that a new Pod of the same name is not touched", Default: "$POD_UID", Allowed: "1 to 64 of A-Z a-z 0-9 -"})
}

const (
	clusterAllowed = "1 to 63 of A-Z a-z 0-9 . _ -"
	nameAllowed    = "the name of a Kubernetes object: 1 to 253 of a-z 0-9 . -"
)

var (
	clusterName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	objectName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	objectUID   = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

// Complete fills in the defaults and checks everything.
func (i *Identity) Complete(f *Flags) error {
	i.fromDownwardAPI(f)
	for _, check := range []struct {
		flag, value string
		pattern     *regexp.Regexp
	}{
		{"cluster-name", i.Cluster, clusterName},
		{"pod-name", i.PodName, objectName},
		{"pod-namespace", i.PodNamespace, objectName},
		{"pod-uid", i.PodUID, objectUID},
	} {
		if check.value == "" && !f.Given(check.flag) {
			continue
		}
		if !check.pattern.MatchString(check.value) {
			return f.Reject(check.flag, check.value, f.allowed[check.flag])
		}
	}
	return i.name(f)
}

// fromDownwardAPI takes the variables that a Pod's template usually sets.
func (i *Identity) fromDownwardAPI(f *Flags) {
	for name, p := range map[string]*string{"POD_NAME": &i.PodName, "POD_NAMESPACE": &i.PodNamespace, "POD_UID": &i.PodUID} {
		if *p == "" {
			*p = f.Env(name)
		}
	}
}

func (i *Identity) name(f *Flags) error {
	if i.Name == "" && !f.Given("identity") {
		i.Name = i.defaultName()
	}
	if !printable(i.Name, MaxIdentity) {
		return f.Reject("identity", i.Name, printableAllowed(MaxIdentity))
	}
	if i.Cluster != "" {
		i.Name = i.Cluster + "/" + i.Name
	}
	return nil
}

func (i *Identity) defaultName() string {
	if i.PodName != "" && i.PodNamespace != "" {
		return i.PodNamespace + "/" + i.PodName
	}
	host, err := os.Hostname()
	if err != nil {
		return "" // then --identity is asked for
	}
	return host
}
