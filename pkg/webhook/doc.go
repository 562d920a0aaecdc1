// Package webhook answers the API server at admission: it puts the sidecar into Pods
// that ask for it, and tells people who apply a workload what would be refused later.
// What is injected is decided by package injection; here is only what that needs to
// know of the cluster.
package webhook
