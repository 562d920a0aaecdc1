package controllers

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podlease/podlease/pkg/injection"
)

// Names of the ClusterRoles, and of the RoleBindings that the namespaces of injected
// Pods get. They are never bound for the whole cluster.
const (
	SidecarRole = "podlease-sidecar"
	LeasesRole  = "podlease-sidecar-leases"
)

// managedBy marks what podlease may change and delete.
const (
	managedBy      = "app.kubernetes.io/managed-by"
	managedByValue = "podlease-controller"
)

// Namespaces prepares namespaces for injected Pods.
type Namespaces struct {
	// Client writes, and reads the RoleBindings named [SidecarRole] and the Secrets of
	// the own namespace from a cache.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// ManageRBAC is false where people make the RoleBindings themselves.
	ManageRBAC bool
	// Secrets are those of the quorums that have one, by the quorum's name.
	Secrets map[string]QuorumSecret
	Log     logr.Logger

	// writing keeps the requests of one process from racing with each other: many Pods
	// of a new namespace come at the same time.
	writing sync.Mutex
}

// races is how often a write is tried that another replica comes in the way of.
var races = wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond, Factor: 1.5, Jitter: 0.5}

// QuorumSecret is where a quorum's credentials are.
type QuorumSecret struct {
	// Source is the Secret in the own namespace.
	Source types.NamespacedName
	// Copy is false where people put the Secret into the namespaces themselves.
	Copy bool
	// Copies reads the Secrets of the quorum's name in all namespaces.
	Copies client.Reader
}

// SecretKeys are the keys of the Secret that Pods of that namespace mount for a quorum;
// none when the quorum has no Secret.
func (n *Namespaces) SecretKeys(ctx context.Context, namespace, quorum string) ([]string, error) {
	s, ok := n.Secrets[quorum]
	if !ok {
		return nil, nil
	}
	var secret *corev1.Secret
	var err error
	if s.Copy {
		secret, err = n.source(ctx, quorum)
	} else {
		secret, err = n.provided(ctx, namespace, quorum)
	}
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(secret.Data)), nil
}

func (n *Namespaces) source(ctx context.Context, quorum string) (*corev1.Secret, error) {
	secret, key := &corev1.Secret{}, n.Secrets[quorum].Source
	err := n.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the Secret %s of quorum %q is missing: make it, or wait until the controller has", key, quorum)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s of quorum %q: %w", key, quorum, err)
	}
	return secret, nil
}

func (n *Namespaces) provided(ctx context.Context, namespace, quorum string) (*corev1.Secret, error) {
	secret, key := &corev1.Secret{}, copyKey(namespace, quorum)
	err := n.Secrets[quorum].Copies.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the Secret %s is missing: make it with the credentials of quorum %q, or set quorums.%s.copySecret=true in the chart", key, quorum, quorum)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return secret, nil
}

func copyKey(namespace, quorum string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: injection.SecretName(quorum)}
}

// Prepare makes what is missing for an injected Pod, or says what is where people make
// it themselves.
func (n *Namespaces) Prepare(ctx context.Context, need injection.Need) error {
	if err := n.bind(ctx, n.Client, need, SidecarRole); err != nil {
		return err
	}
	if need.Leases {
		if err := n.bind(ctx, n.Live, need, LeasesRole); err != nil {
			return err
		}
	}
	if s, ok := n.Secrets[need.Quorum]; ok && s.Copy {
		return n.copySecret(ctx, need.Namespace, need.Quorum)
	}
	return nil
}

// bind makes sure that the ServiceAccount has the role in its namespace.
func (n *Namespaces) bind(ctx context.Context, reader client.Reader, need injection.Need, role string) error {
	binding := &rbacv1.RoleBinding{}
	key := types.NamespacedName{Namespace: need.Namespace, Name: role}
	err := reader.Get(ctx, key, binding)
	switch {
	case err == nil && names(binding, need):
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("read RoleBinding %s: %w", key, err)
	case !n.ManageRBAC:
		return fmt.Errorf("the RoleBinding %s with ServiceAccount %q and ClusterRole %q is missing: make it, or set rbac.manage=true in the chart",
			key, need.ServiceAccount, role)
	}
	return n.addSubject(ctx, key, need)
}

// addSubject works on what the API server has, because others add at the same time.
func (n *Namespaces) addSubject(ctx context.Context, key types.NamespacedName, need injection.Need) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: need.Namespace, Name: need.ServiceAccount}
	err := retry.OnError(races, isRace, func() error {
		binding := &rbacv1.RoleBinding{}
		err := n.Live.Get(ctx, key, binding)
		if apierrors.IsNotFound(err) {
			return n.Client.Create(ctx, newBinding(key, subject))
		}
		if err != nil || names(binding, need) {
			return err
		}
		if binding.RoleRef.Name != key.Name || binding.RoleRef.Kind != "ClusterRole" {
			return fmt.Errorf("it is for %s %q: delete it", binding.RoleRef.Kind, binding.RoleRef.Name)
		}
		binding.Subjects = append(binding.Subjects, subject)
		return n.Client.Update(ctx, binding)
	})
	if err != nil {
		return fmt.Errorf("add ServiceAccount %q to RoleBinding %s: %w", need.ServiceAccount, key, err)
	}
	n.Log.Info("namespace prepared", "namespace", need.Namespace, "roleBinding", key.Name, "serviceAccount", need.ServiceAccount)
	return nil
}

func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func newBinding(key types.NamespacedName, subject rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: ownLabels()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: key.Name},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func ownLabels() map[string]string {
	return map[string]string{managedBy: managedByValue, "app.kubernetes.io/part-of": "podlease"}
}

// names reports whether a binding gives the ServiceAccount its role, by its own name or
// by a group it is always in.
func names(b *rbacv1.RoleBinding, need injection.Need) bool {
	if b.RoleRef.Kind != "ClusterRole" || b.RoleRef.Name != b.Name {
		return false
	}
	return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return s.Name == need.ServiceAccount && (s.Namespace == need.Namespace || s.Namespace == "")
		case rbacv1.GroupKind:
			return s.Name == "system:serviceaccounts" || s.Name == "system:serviceaccounts:"+need.Namespace
		}
		return false
	})
}

// copySecret makes the copy equal to the source, and makes it where it is missing.
func (n *Namespaces) copySecret(ctx context.Context, namespace, quorum string) error {
	source, err := n.source(ctx, quorum)
	if err != nil {
		return err
	}
	key := copyKey(namespace, quorum)
	if key == n.Secrets[quorum].Source {
		return nil
	}
	have := &corev1.Secret{}
	err = n.Secrets[quorum].Copies.Get(ctx, key, have)
	if err == nil && isCopy(have) && reflect.DeepEqual(have.Data, source.Data) {
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read Secret %s: %w", key, err)
	}
	return n.writeCopy(ctx, key, quorum, source)
}

// writeCopy works on what the API server has, because another replica may write at the
// same time.
func (n *Namespaces) writeCopy(ctx context.Context, key types.NamespacedName, quorum string, source *corev1.Secret) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	err := retry.OnError(races, isRace, func() error {
		have := &corev1.Secret{}
		err := n.Live.Get(ctx, key, have)
		if apierrors.IsNotFound(err) {
			return n.Client.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: ownLabels()},
				Data:       source.Data,
			})
		}
		if err != nil || reflect.DeepEqual(have.Data, source.Data) {
			return err
		}
		if !isCopy(have) {
			return fmt.Errorf("it is not podlease's: delete it, or set quorums.%s.copySecret=false in the chart", quorum)
		}
		have.Data = source.Data
		return n.Client.Update(ctx, have)
	})
	if err != nil {
		return fmt.Errorf("copy the credentials of quorum %q to Secret %s: %w", quorum, key, err)
	}
	n.Log.Info("credentials copied", "quorum", quorum, "secret", key)
	return nil
}

func isCopy(s *corev1.Secret) bool { return s.Labels[managedBy] == managedByValue }
