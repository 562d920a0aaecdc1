package model

// terms is how many terms the fence model has at most.
const terms = 3

// FenceRules are what nodes and holders keep to with fencing tokens, and what may happen.
// The zero value is the rule of the lock.
type FenceRules struct {
	Terms   int         // how many there are
	Largest int8        // number that is looked at
	Losses  int8        // how often a node may lose its counter, with its key
	Skew    [terms]int8 // what each candidate takes the nodes' time to be ahead by

	StaleAnswers bool // a number counts though the vote that carried it has run out
	ReaskRaises  bool // a node counts its number up for its own key's owner as well
	Unchecked    bool // storage does not compare tokens
}

// Fence is the model of fencing tokens. It has no time: a key may vanish from a node at
// any moment, whoever it belongs to, and its vote with it. A term that was elected writes
// to storage at any later moment: nothing says how long a process may be paused between
// asking whether it holds the lock and writing (Kleppmann, How to do distributed locking).
type Fence struct{ FenceRules }

// FenceState is a state of the model.
type FenceState struct {
	node    [nodes]fenceNode
	term    [terms]fenceTerm
	clock   int8 // of the nodes
	losses  int8
	elected int8 // how many terms have been

	highest int8 // number that storage has accepted
	last    int8 // which elected term that was, from 1
	wrong   int8
}

type fenceNode struct {
	owner  int8 // the term, from 1
	stored int8
	young  bool
}

type fenceTerm struct {
	proposal int8
	rounds   int8
	answer   [nodes]int8
	valid    [nodes]bool
	final    int8
	rank     int8 // the how manieth to be elected
	over     bool
}

// What can be wrong.
const (
	fine int8 = iota
	notGrowing
	oldWrite
	unsteady
)

// Start is the first state.
func (m *Fence) Start() FenceState { return FenceState{losses: m.Losses, clock: 1} }

// Wrong says what the last step did wrong.
func (m *Fence) Wrong(s FenceState) string {
	switch s.wrong {
	case notGrowing:
		return "a term has a number that is not above all earlier ones"
	case oldWrite:
		return "storage accepted a write of a term that another one had followed"
	case unsteady:
		return "a node answered its own key's owner with another number than before"
	}
	return ""
}

// Steps are all that can happen.
func (m *Fence) Steps(s FenceState, visit func(FenceState, Action)) {
	m.steps(s, func(n FenceState, a Action) { visit(n.sorted(), a) })
}

// Story tells the steps of a path.
func (m *Fence) Story(path []FenceState) []string {
	return story(m.Start(), m.steps, FenceState.sorted, path)
}

func (m *Fence) steps(s FenceState, visit func(FenceState, Action)) {
	for i := range s.node {
		m.nodeSteps(s, i, visit)
	}
	for k := range m.Terms {
		switch t := s.term[k]; {
		case t.over:
		case t.final != 0:
			m.write(s, k, visit)
		case t.proposal == 0:
			m.proposals(s, k, visit)
		default:
			m.attempt(s, k, visit)
		}
	}
}

func (m *Fence) nodeSteps(s FenceState, i int, visit func(FenceState, Action)) {
	n := s.node[i]
	if n.owner != 0 {
		gone := s
		gone.drop(i, m.StaleAnswers)
		m.pass(&gone)
		visit(gone, Action{Text: "the key at node %d runs out", Node: i})
	}
	if n.young {
		visit(m.mature(s, i), Action{Text: "node %d has been up for a quarantine", Node: i})
	}
	if s.losses > 0 && n.stored > 0 {
		lost := s
		lost.losses--
		lost.drop(i, m.StaleAnswers)
		lost.node[i] = fenceNode{young: true}
		visit(lost, Action{Text: "node %d restarts without its counter", Node: i})
	}
}

// mature ends a quarantine. Attempts do not last that long.
func (m *Fence) mature(s FenceState, i int) FenceState {
	s.node[i].young = false
	m.pass(&s)
	for k := range s.term {
		if t := &s.term[k]; t.proposal != 0 && t.final == 0 {
			t.over = true
			for j := range s.node {
				if s.node[j].owner == int8(k+1) {
					s.node[j].owner = 0
				}
			}
			t.answer, t.valid = [nodes]int8{}, [nodes]bool{}
		}
	}
	return s
}

// pass lets the nodes' time go on: between two proposals, and while a key runs out. So it
// is ahead of a number that was made of it and counted up, once for each key taken.
func (m *Fence) pass(s *FenceState) { s.clock = min(s.clock+1, m.Largest+1) }

// drop takes the key off node i, and the vote with it.
func (s *FenceState) drop(i int, keepAnswer bool) {
	o := s.node[i].owner
	if o == 0 {
		return
	}
	s.node[i].owner = 0
	t := &s.term[o-1]
	if t.valid[i] = false; !keepAnswer {
		t.answer[i] = 0
	}
}

// proposals are what term k may propose: it has seen some of the numbers, or none.
func (m *Fence) proposals(s FenceState, k int, visit func(FenceState, Action)) {
	seen := [nodes + 1]int8{}
	for i, n := range s.node {
		seen[i+1] = n.stored
	}
	for _, number := range seen {
		n := s
		t := &n.term[k]
		t.proposal, t.rounds = max(number+1, s.clock+m.Skew[k]), 1
		if t.proposal > m.Largest {
			continue
		}
		m.pass(&n)
		visit(n, Action{Text: "%s proposes a number", Who: k})
	}
}

func (m *Fence) attempt(s FenceState, k int, visit func(FenceState, Action)) {
	t := s.term[k]
	for i, n := range s.node {
		if n.owner == 0 && !n.young || n.owner == int8(k+1) { //nolint:gosec // three terms
			m.ask(s, k, i, visit)
		}
	}
	exact, highest := m.exact(t)
	if exact >= quorum {
		visit(m.elect(s, k), Action{Text: "%s is elected", Who: k})
	}
	if highest > t.proposal && highest < m.Largest && t.rounds < 2 {
		s.term[k].proposal, s.term[k].rounds = highest+1, t.rounds+1
		visit(s, Action{Text: "%s proposes a number above the answers", Who: k})
	}
}

func (m *Fence) exact(t fenceTerm) (exact int, highest int8) {
	for i, a := range t.answer {
		if (t.valid[i] || m.StaleAnswers) && a == t.proposal {
			exact++
		}
		highest = max(highest, a)
	}
	return exact, highest
}

// ask lets node i answer term k; the answer may be lost.
func (m *Fence) ask(s FenceState, k, i int, visit func(FenceState, Action)) {
	n, t := &s.node[i], &s.term[k]
	own := n.owner == int8(k+1) //nolint:gosec // three terms
	number := max(n.stored+1, t.proposal)
	if own && !m.ReaskRaises {
		number = max(n.stored, t.proposal)
	}
	if own && n.stored == t.proposal && number != n.stored {
		s.wrong = unsteady
	}
	if number > m.Largest {
		return
	}
	n.owner, n.stored = int8(k+1), number //nolint:gosec // three terms
	visit(s, Action{Text: "%s takes node %d, and the answer is lost", Who: k, Node: i})
	t.answer[i], t.valid[i] = number, true
	visit(s, Action{Text: "%s takes node %d", Who: k, Node: i})
}

func (m *Fence) elect(s FenceState, k int) FenceState {
	t := &s.term[k]
	for _, other := range s.term {
		if other.final >= t.proposal {
			s.wrong = notGrowing
		}
	}
	s.elected++
	t.final, t.rank = t.proposal, s.elected
	t.answer, t.valid, t.rounds = [nodes]int8{}, [nodes]bool{}, 0
	return s
}

// write is a write of term k to storage, which arrives whenever it does.
func (m *Fence) write(s FenceState, k int, visit func(FenceState, Action)) {
	t := s.term[k]
	if !m.Unchecked && t.final < s.highest {
		return // refused
	}
	if t.rank < s.last {
		s.wrong = oldWrite
	}
	s.highest, s.last = max(s.highest, t.final), max(s.last, t.rank)
	visit(s, Action{Text: "a write of %s reaches storage", Who: k})
}

// sorted puts the nodes into a fixed order: which is which makes no difference.
func (s FenceState) sorted() FenceState {
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 1}} {
		if i, j := pair[0], pair[1]; s.column(j) < s.column(i) {
			s.node[i], s.node[j] = s.node[j], s.node[i]
			for k := range s.term {
				t := &s.term[k]
				t.answer[i], t.answer[j] = t.answer[j], t.answer[i]
				t.valid[i], t.valid[j] = t.valid[j], t.valid[i]
			}
		}
	}
	return s
}

// column is all there is of node i.
func (s *FenceState) column(i int) word {
	var w word
	w.put(s.node[i].owner, s.node[i].stored, flags(s.node[i].young, false))
	for _, t := range s.term {
		w.put(t.answer[i], flags(t.valid[i], false))
	}
	return w
}
