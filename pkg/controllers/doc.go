// Package controllers looks after what injected Pods need outside of themselves: the
// rights and Secrets of their namespaces, role labels that nobody takes off any more,
// and the hand-over to a new revision where only the active Pod is Ready. None of it is
// in the way of an election: leadership lives on the Redis nodes.
package controllers
