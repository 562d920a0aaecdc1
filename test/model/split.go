package model

// Split is the model of candidates that ask for a free lock together, on nodes that grant
// each to whoever comes first.
type Split struct {
	Nodes, Candidates int
	KeepsVotes        bool // an attempt without a quorum does not withdraw
}

// SplitState tells for each node whose it is: 0 for nobody's.
type SplitState [5]int8

// Start is the free lock.
func (m *Split) Start() SplitState { return SplitState{} }

// Wrong says that nothing can happen any more and nobody has a quorum.
func (m *Split) Wrong(s SplitState) string {
	stuck := !m.elected(s)
	m.Steps(s, func(SplitState, Action) { stuck = false })
	if stuck {
		return "the votes are split and stay so"
	}
	return ""
}

func (m *Split) votes(s SplitState, k int) int {
	n := 0
	for _, owner := range s[:m.Nodes] {
		if int(owner) == k+1 {
			n++
		}
	}
	return n
}

func (m *Split) elected(s SplitState) bool {
	for k := range m.Candidates {
		if m.votes(s, k) > m.Nodes/2 {
			return true
		}
	}
	return false
}

// Steps are takes and withdrawals, until somebody is elected.
func (m *Split) Steps(s SplitState, visit func(SplitState, Action)) {
	if m.elected(s) {
		return
	}
	for k := range m.Candidates {
		for i := range m.Nodes {
			if s[i] == 0 {
				n := s
				n[i] = int8(k + 1)
				visit(n, Action{Text: "%s gets node %d", Who: k, Node: i})
			}
		}
		if m.votes(s, k) > 0 && !m.KeepsVotes {
			n := s
			for i := range n {
				if int(n[i]) == k+1 {
					n[i] = 0
				}
			}
			visit(n, Action{Text: "%s withdraws", Who: k})
		}
	}
}
