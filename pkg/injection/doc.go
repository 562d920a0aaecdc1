// Package injection puts the podlease sidecar into a Pod: a pure function from a Pod and
// an installation's settings to a changed copy, with reasons, warnings or a refusal. It
// asks nobody, reads no clock and never changes what it was given.
//
// It may run more than once on one Pod and beside other injectors in any order: what it
// adds it finds by name and brings to the desired state, so Inject(Inject(p)) is
// Inject(p) (istio/istio#25931, istio/istio#54562).
package injection
