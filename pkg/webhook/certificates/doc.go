// Package certificates keeps the webhook server's certificate, and the authority that the
// API server checks it with.
//
// All replicas share one Secret. Either podlease fills it itself, by compare-and-swap
// (hashicorp/vault-helm#580 shows what comes of each replica making its own), or
// somebody else does, such as cert-manager. In both cases every replica reads it again
// every few seconds, makes the webhook configurations trust the authority first, and only
// then serves the certificate. Authorities overlap: an old one stays trusted for a while
// after a new one has come, so no request is lost between replicas that are at different
// points.
package certificates
