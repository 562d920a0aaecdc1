package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// supersededAt is the annotation that says since when a configuration trusts an
// authority that is no longer needed.
const supersededAt = "podlease.io/ca-superseded"

// bundles are the caBundle fields of one configuration.
func bundles(object client.Object) []*[]byte {
	var out []*[]byte
	switch c := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			out = append(out, &c.Webhooks[i].ClientConfig.CABundle)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			out = append(out, &c.Webhooks[i].ClientConfig.CABundle)
		}
	}
	return out
}

// trust makes one configuration trust what is wanted, and no longer than the overlap
// what is not.
func (k *Keeper) trust(ctx context.Context, object client.Object, wanted []*x509.Certificate) error {
	if err := k.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return fmt.Errorf("read %s: %w", object.GetName(), err)
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T cannot be copied", object)
	}
	if !update(object, wanted, k.now(), k.Lifetimes.Overlap) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := k.Client.Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("write the authority into %s: %w", object.GetName(), err)
	}
	k.Log.Info("webhook configuration updated with the authority", "name", object.GetName(), "authorities", len(wanted))
	return nil
}

// update changes a configuration in memory and reports whether it did.
func update(object client.Object, wanted []*x509.Certificate, now time.Time, overlap time.Duration) bool {
	since, err := time.Parse(time.RFC3339, object.GetAnnotations()[supersededAt])
	marked := err == nil
	over := marked && !now.Before(since.Add(overlap))
	changed, extra := false, false
	for _, b := range bundles(object) {
		have := readBundle(*b)
		want := wanted
		incoming := missing(have, wanted)
		if incoming {
			marked = false // the overlap begins again with each new authority
		}
		if incoming || !over {
			want = withValid(wanted, have, now)
		}
		extra = extra || len(want) > len(wanted)
		// Order does not matter, so replicas that add in different order do not fight.
		if missing(have, want) || missing(want, have) {
			*b, changed = writeBundle(want), true
		}
	}
	return mark(object, marked, extra, now) || changed
}

func mark(object client.Object, marked, extra bool, now time.Time) bool {
	a := object.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	_, present := a[supersededAt]
	switch {
	case extra && !marked:
		a[supersededAt] = now.UTC().Format(time.RFC3339)
	case !extra && present:
		delete(a, supersededAt)
	default:
		return false
	}
	object.SetAnnotations(a)
	return true
}

func missing(from, wanted []*x509.Certificate) bool {
	return slices.ContainsFunc(wanted, func(c *x509.Certificate) bool { return !contains(from, c) })
}

// withValid adds to wanted what is still valid of what there was.
func withValid(wanted, old []*x509.Certificate, now time.Time) []*x509.Certificate {
	out := slices.Clone(wanted)
	for _, c := range old {
		if !contains(out, c) && now.Before(c.NotAfter) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out[len(wanted):], func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })
	return out
}
