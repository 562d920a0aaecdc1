package model

import "slices"

// The lock model has three nodes and two clients, A and B. Time passes in whole ticks, and
// every timer counts down, so there is no bound on how long a run is. Requests and replies
// take any time or are lost. Nodes restart empty. A token that has ended is gone from all
// nodes at once: what is left of a dead token can only refuse others.
const (
	nodes   = 3
	quorum  = 2
	clients = 2
)

// Retake is the rule by which a holder may set its key again at a young node that lost it.
type Retake uint8

// The rules.
const (
	RetakeOwnVote    Retake = iota // our earlier vote at that node is valid as the reply arrives
	RetakeNever                    // votes of young nodes never count
	RetakeWhileHeld                // as long as the lease is held at all
	RetakeRoundProof               // after a round of renewals that had a quorum (with Rounds)
)

// Rules are what the clients keep to, and what may happen to them. The zero value of each
// field other than TTL, Quarantine and Attempts is the rule of the lock.
type Rules struct {
	TTL        [clients]int8
	Quarantine [clients]int8 // what each client thinks a node must be up for
	StopBudget int8          // a holder is active until its deadline less this
	Restarts   int8          // how often nodes may lose everything
	Attempts   [clients]int8 // how many tokens each client may use
	Holding    bool          // begin with A holding nodes 1 and 2
	// OverlapAllowed only asks that two are not active, not that their leases are apart.
	OverlapAllowed bool

	Retake             Retake
	YoungOwnKeyCounts  bool // own key at a young node counts, whatever became of our vote there
	WithdrawKeepsToken bool // an attempt that withdrew goes on listening to replies
	NoLatch            bool // a lease that stopped making its holder active may do so again

	// Rounds are an older design: a lease is a round in which a quorum confirmed, dated
	// from the round's start.
	Rounds         bool
	DatedFromRetry bool // an attempt is dated from its last request
	// RequestsDie says that a request dies with the process that it was sent to.
	RequestsDie  bool
	NoRenewal    bool
	AttemptLimit int8 // an attempt older than this ends, 0 for no limit
}

// What a request asks for.
const (
	take   int8 = 1 + iota // own key: refresh; absent: set unless the node is young
	extend                 // own key: refresh
	retake                 // as take, and absent is set although the node is young
)

// What a reply says. Refusals change nothing, so they are not sent.
const (
	confirmed      int8 = 1 + iota
	missing             // there was no key to extend
	confirmedYoung      // by a young node
)

// message is a request under way, or the reply to it.
type message struct {
	op    int8 // 0 for no message
	reply int8 // 0 while the request is under way
	left  int8 // of what the confirmation would be worth
}

// What a client is doing.
const (
	idle int8 = iota
	acquiring
	holding
)

type client struct {
	phase    int8
	deadline int8
	round    int8 // with Rounds: what the present round is worth
}

// column is one node, with what each client has to do with it.
type column struct {
	owner int8 // 1 for A's key, 2 for B's, 0 for none
	left  int8 // until the key is gone
	up    int8 // since the restart, at most the longest quarantine
	of    [clients]struct {
		vote             int8 // what is left of it
		msg              message
		said, saidAbsent bool // with Rounds: in the present round
	}
}

type lockState struct {
	node     [nodes]column
	client   [clients]client
	attempts [clients]int8
	restarts int8
	revived  bool
}

// LockKey is a state with its nodes in a fixed order: which is which makes no difference.
type LockKey [nodes + 1]uint64

// Lock is the model of the votes and tokens.
type Lock struct{ Rules }

// Start is the first state.
func (m *Lock) Start() LockKey {
	s := m.first()
	return s.key()
}

func (m *Lock) first() lockState {
	s := lockState{restarts: m.Restarts, attempts: m.Attempts}
	for i := range s.node {
		s.node[i].up = m.longestQuarantine()
	}
	if !m.Holding {
		return s
	}
	s.attempts[0] = 0
	s.client[0] = client{phase: holding, deadline: m.TTL[0]}
	for i := range quorum {
		s.node[i].owner, s.node[i].left = 1, m.TTL[0]
		s.node[i].of[0].vote = m.TTL[0]
	}
	if m.Rounds { // that has just proved them, and found node 3 missing
		s.client[0].round = m.TTL[0]
		for i := range s.node {
			s.node[i].of[0].vote = 0
			s.node[i].of[0].said, s.node[i].of[0].saidAbsent = i < quorum, i >= quorum
		}
	}
	return s
}

func (m *Lock) longestQuarantine() int8 { return max(m.Quarantine[0], m.Quarantine[1]) }

// Wrong says whether both hold.
func (m *Lock) Wrong(k LockKey) string {
	s := k.state()
	if s.revived {
		return "a lease came back to life"
	}
	holds := func(c client) bool {
		if m.OverlapAllowed {
			return c.phase == holding && c.deadline > m.StopBudget
		}
		return c.phase == holding && c.deadline > 0
	}
	if holds(s.client[0]) && holds(s.client[1]) {
		return "both hold the lock"
	}
	return ""
}

// Steps are all that can happen.
func (m *Lock) Steps(k LockKey, visit func(LockKey, Action)) {
	m.steps(k.state(), func(s lockState, a Action) { visit(s.key(), a) })
}

func (m *Lock) steps(s lockState, visit func(lockState, Action)) {
	visit(m.tick(s), Action{Text: "a tick of time passes"})
	for i := range s.node {
		if s.restarts > 0 {
			visit(m.restart(s, i), Action{Text: "node %d restarts empty", Node: i})
		}
	}
	for k := range s.client {
		if s.client[k].phase == idle {
			m.begin(s, k, visit)
			continue
		}
		m.tokenSteps(s, k, visit)
		for i := range s.node {
			m.sends(s, k, i, visit)
			m.arrivals(s, k, i, visit)
		}
	}
}

func (m *Lock) begin(s lockState, k int, visit func(lockState, Action)) {
	if s.attempts[k] == 0 {
		return
	}
	s.attempts[k]--
	s.client[k].phase = acquiring
	if m.Rounds {
		s.client[k].round = m.TTL[k]
	}
	visit(s, Action{Text: "%s begins an attempt", Who: k})
}

// tokenSteps are what a client does with its token as a whole.
func (m *Lock) tokenSteps(s lockState, k int, visit func(lockState, Action)) {
	ended := s
	ended.end(k)
	visit(ended, Action{Text: "%s ends its token", Who: k})
	if s.client[k].phase == acquiring && m.WithdrawKeepsToken {
		visit(s.withdraw(k), Action{Text: "%s withdraws everywhere, but goes on listening", Who: k})
	}
	if s.client[k].phase == holding && m.Rounds && !m.NoRenewal {
		s.client[k].round = m.TTL[k]
		for i := range s.node {
			of := &s.node[i].of[k]
			of.said, of.saidAbsent = false, false
			of.msg = message{op: extend, left: m.TTL[k]}
		}
		visit(s, Action{Text: "%s begins a round of renewals", Who: k})
	}
}

// sends are the requests of client k to node i. A request takes the place of what was
// under way: that is how messages are lost.
func (m *Lock) sends(s lockState, k, i int, visit func(lockState, Action)) {
	c, of := s.client[k], s.node[i].of[k]
	switch {
	case !m.Rounds && of.vote < m.TTL[k], m.Rounds && c.phase == acquiring && !of.said:
		op := take
		if !m.Rounds && (m.Retake == RetakeOwnVote && of.vote > 0 || m.Retake == RetakeWhileHeld && c.phase == holding) {
			op = retake
		}
		if m.DatedFromRetry && c.phase == acquiring {
			s.client[k].round = m.TTL[k]
		}
		s.node[i].of[k].msg = message{op: op, left: m.TTL[k]}
		visit(s, Action{Text: "%s asks node %d", Who: k, Node: i})
	case m.Rounds && m.Retake == RetakeRoundProof && of.saidAbsent && s.said(k) >= quorum && (m.NoLatch || c.deadline > m.StopBudget):
		s.node[i].of[k].msg = message{op: retake, left: m.TTL[k]}
		s.node[i].of[k].saidAbsent = false
		visit(s, Action{Text: "%s re-takes node %d, for its round had a quorum", Who: k, Node: i})
	}
}

// arrivals are the request that reaches node i and the reply that reaches client k.
func (m *Lock) arrivals(s lockState, k, i int, visit func(lockState, Action)) {
	switch msg := s.node[i].of[k].msg; {
	case msg.op == 0:
	case msg.reply == 0:
		visit(m.execute(s, k, i), Action{Text: "%s's request is executed by node %d", Who: k, Node: i})
	default:
		visit(m.hear(s, k, i), Action{Text: "%s hears node %d's reply", Who: k, Node: i})
	}
}

// tick lets time pass.
func (m *Lock) tick(s lockState) lockState {
	for i := range s.node {
		n := &s.node[i]
		if less(&n.left) == 0 {
			n.owner = 0
		}
		n.up = min(n.up+1, m.longestQuarantine())
	}
	for k := range s.client {
		if s.client[k].phase != idle {
			m.age(&s, k)
		}
	}
	return s
}

func (m *Lock) age(s *lockState, k int) {
	c := &s.client[k]
	less(&c.round)
	less(&c.deadline)
	for i := range s.node {
		of := &s.node[i].of[k]
		less(&of.vote)
		if of.msg.op != 0 && less(&of.msg.left) == 0 {
			of.msg = message{} // worthless by now
		}
	}
	if m.AttemptLimit > 0 && c.phase == acquiring && m.Rounds && m.TTL[k]-c.round > m.AttemptLimit {
		s.end(k)
		return
	}
	if c.phase == holding && c.deadline == 0 {
		s.end(k)
		return
	}
	m.settle(s, k)
}

// less counts a timer down, and returns what is left.
func less(timer *int8) int8 {
	if *timer > 0 {
		*timer--
	}
	return *timer
}

func (m *Lock) restart(s lockState, i int) lockState {
	s.restarts--
	n := &s.node[i]
	n.owner, n.left, n.up = 0, 0, 0
	for k := range n.of {
		if m.RequestsDie && n.of[k].msg.reply == 0 {
			n.of[k].msg = message{}
		}
	}
	return s
}

// execute lets node i do what client k asks.
func (m *Lock) execute(s lockState, k, i int) lockState {
	n := &s.node[i]
	msg := &n.of[k].msg
	young := n.up < m.Quarantine[k]
	own, absent := n.owner == int8(k+1), n.owner == 0 //nolint:gosec // two clients
	switch {
	case own, absent && msg.op == retake, absent && msg.op == take && !young:
		n.owner, n.left, msg.reply = int8(k+1), m.TTL[k], confirmed //nolint:gosec // two clients
		if young {
			msg.reply = confirmedYoung
		}
	case absent && msg.op == extend:
		msg.reply = missing
	default:
		*msg = message{}
	}
	return s
}

// hear lets client k count node i's reply.
func (m *Lock) hear(s lockState, k, i int) lockState {
	of := &s.node[i].of[k]
	msg := of.msg
	of.msg = message{}
	if m.Rounds {
		of.saidAbsent = of.saidAbsent || msg.reply == missing
		counts := s.client[k].phase == acquiring || msg.op == extend
		of.said = of.said || counts && msg.reply != missing
	} else if m.counts(s, k, i, msg) {
		of.vote = max(of.vote, msg.left)
	}
	m.settle(&s, k)
	return s
}

// counts reports whether a confirmation is a vote.
func (m *Lock) counts(s lockState, k, i int, msg message) bool {
	c := s.client[k]
	switch {
	case msg.reply == confirmed:
		return true
	case msg.reply != confirmedYoung:
		return false
	case m.YoungOwnKeyCounts && msg.op == take:
		return true
	case m.Retake == RetakeOwnVote:
		return s.node[i].of[k].vote > 0
	case m.Retake == RetakeWhileHeld:
		return c.phase == holding && c.deadline > 0
	}
	return false
}

// settle works out the lease of client k from what it has counted.
func (m *Lock) settle(s *lockState, k int) {
	c := &s.client[k]
	switch {
	case c.phase == idle:
	case !m.Rounds:
		m.settleVotes(s, k)
	case s.said(k) < quorum:
	case c.phase == holding:
		if c.round > c.deadline && (m.NoLatch || c.deadline > m.StopBudget) {
			c.deadline = c.round
		}
	case c.round > m.StopBudget:
		c.phase, c.deadline, c.round = holding, c.round, 0
		for i := range s.node {
			s.node[i].of[k].said, s.node[i].of[k].saidAbsent = false, false
		}
	}
	if c.phase == holding && c.deadline <= 0 {
		s.end(k)
	}
}

func (m *Lock) settleVotes(s *lockState, k int) {
	c := &s.client[k]
	d := s.deadline(k)
	switch {
	case c.phase == holding:
		if c.deadline <= m.StopBudget && d > m.StopBudget {
			s.revived = true
		}
		c.deadline = d
		if d <= m.StopBudget && !m.NoLatch {
			s.end(k)
		}
	case d > m.StopBudget:
		c.phase, c.deadline = holding, d
	}
}

// deadline is the q-th latest vote.
func (s *lockState) deadline(k int) int8 {
	votes := make([]int8, 0, nodes)
	for i := range s.node {
		votes = append(votes, s.node[i].of[k].vote)
	}
	slices.Sort(votes)
	return votes[nodes-quorum]
}

// said counts the nodes that confirmed in the present round.
func (s *lockState) said(k int) int {
	n := 0
	for i := range s.node {
		if s.node[i].of[k].said {
			n++
		}
	}
	return n
}

// end ends client k's token: its keys and messages are gone.
func (s *lockState) end(k int) {
	for i := range s.node {
		n := &s.node[i]
		if n.owner == int8(k+1) { //nolint:gosec // two clients
			n.owner, n.left = 0, 0
		}
		n.of[k].vote, n.of[k].msg, n.of[k].said, n.of[k].saidAbsent = 0, message{}, false, false
	}
	s.client[k] = client{}
}

// withdraw deletes the token everywhere, with the requests that have not arrived.
func (s lockState) withdraw(k int) lockState {
	for i := range s.node {
		n := &s.node[i]
		if n.owner == int8(k+1) { //nolint:gosec // two clients
			n.owner, n.left = 0, 0
		}
		of := &n.of[k]
		if of.msg.reply == 0 {
			of.msg = message{}
		}
		of.vote, of.said, of.saidAbsent = 0, false, false
	}
	return s
}
