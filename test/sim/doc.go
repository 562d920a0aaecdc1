// Package sim runs whole elections in virtual time, from a seed: nodes and candidates
// with clocks of their own, a network that delays, drops and reorders, and faults at
// random. The code under test is the real redlock and election. A checker looks at every
// instant at which a candidate becomes active.
//
// A seed that fails prints a timeline; `go test ./test/sim -run TestSeeds -sim.seed=N`
// replays it.
package sim
