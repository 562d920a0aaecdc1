package model

import "math/bits"

// Apart reports whether a candidate with one list of nodes and one with another can have a
// quorum each without a node in common. Lists are sets of bits; a quorum of 0 means the
// usual one of that list.
func Apart(a, b uint8, quorumA, quorumB int) bool {
	for qa := range subsets(a, quorumA) {
		for qb := range subsets(b, quorumB) {
			if qa&qb == 0 {
				return true
			}
		}
	}
	return false
}

// subsets are those of a list that make a quorum.
func subsets(list uint8, quorum int) func(yield func(uint8) bool) {
	if quorum == 0 {
		quorum = bits.OnesCount8(list)/2 + 1
	}
	return func(yield func(uint8) bool) {
		for s := range 256 {
			if set := uint8(s); set&^list == 0 && bits.OnesCount8(set) >= quorum && !yield(set) {
				return
			}
		}
	}
}
