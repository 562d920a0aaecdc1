// Package model checks the rules of the lock on explicit states: small systems whose every
// course is followed, whatever is lost, late or restarted. It has none of the product's
// code; test/sim runs that. What each model leaves out, its bounds and its results are in
// docs/model.md.
//
// Each rule can be switched off. The search then has to find the course of events that
// the rule is there to prevent: a model that finds nothing without the rules proves
// nothing with them.
package model
