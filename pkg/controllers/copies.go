package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/podlease/podlease/pkg/annotations"
)

// place is one quorum's copy in one namespace.
type place struct{ namespace, quorum string }

// Copies keeps the copies of Secrets equal to their sources.
type Copies struct {
	*Namespaces
	// Caches are over the Secrets of one name each, by quorum: the controller may read
	// no others.
	Caches map[string]cache.Cache
}

// SetupWithManager registers the controller.
func (c *Copies) SetupWithManager(mgr ctrl.Manager) error {
	b := builder.TypedControllerManagedBy[place](mgr).Named("secret-copies")
	watching := false
	for quorum, s := range c.Secrets {
		if !s.Copy {
			continue
		}
		watching = true
		b = b.WatchesRawSource(source.TypedKind(c.Caches[quorum], client.Object(&corev1.Secret{}),
			handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []place {
				return []place{{o.GetNamespace(), quorum}}
			})))
	}
	if !watching {
		return nil
	}
	b = b.Watches(&corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(c.placesOf), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}))
	return b.Complete(reconcile.TypedFunc[place](c.reconcile))
}

// placesOf are the copies of a source.
func (c *Copies) placesOf(ctx context.Context, o client.Object) []place {
	var out []place
	for quorum, s := range c.Secrets {
		if !s.Copy || s.Source != client.ObjectKeyFromObject(o) {
			continue
		}
		list := &corev1.SecretList{}
		if err := s.Copies.List(ctx, list); err != nil {
			c.Log.Error(err, "copies not listed", "quorum", quorum)
			continue
		}
		for i := range list.Items {
			out = append(out, place{list.Items[i].Namespace, quorum})
		}
	}
	return out
}

// reconcile repairs a copy that is there, and makes one anew that was deleted from
// under running Pods. Other Secrets of the same name are none of our business.
func (c *Copies) reconcile(ctx context.Context, p place) (ctrl.Result, error) {
	have := &corev1.Secret{}
	err := c.Secrets[p.quorum].Copies.Get(ctx, copyKey(p.namespace, p.quorum), have)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read the copy: %w", err)
	}
	if err == nil && !isCopy(have) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		if used, err := c.used(ctx, p); err != nil || !used {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, c.copySecret(ctx, p.namespace, p.quorum)
}

func (c *Copies) used(ctx context.Context, p place) (bool, error) {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(p.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		if annotations.QuorumOf(pods.Items[i].Annotations) == p.quorum && pods.Items[i].DeletionTimestamp == nil {
			return true, nil
		}
	}
	return false, nil
}
