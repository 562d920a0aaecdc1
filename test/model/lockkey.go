package model

import "slices"

// All numbers of a state lie below 16, so that a node fits into one word.

func (s *lockState) key() LockKey {
	var k LockKey
	for i := range s.node {
		k[i] = s.node[i].word()
	}
	slices.Sort(k[:nodes])
	w := word(0)
	for i := range s.client {
		c := s.client[i]
		w.put(c.phase, c.deadline, c.round, s.attempts[i])
	}
	w.put(s.restarts, flags(s.revived, false))
	k[nodes] = uint64(w)
	return k
}

func (k LockKey) state() lockState {
	var s lockState
	for i := range s.node {
		s.node[i] = columnOf(k[i])
	}
	w := word(k[nodes])
	var f int8
	w.get(&f, &s.restarts)
	s.revived = f&1 != 0
	for i := len(s.client) - 1; i >= 0; i-- {
		c := &s.client[i]
		w.get(&s.attempts[i], &c.round, &c.deadline, &c.phase)
	}
	return s
}

func (c *column) word() uint64 {
	w := word(0)
	w.put(c.owner, c.left, c.up)
	for _, of := range c.of {
		w.put(of.vote, of.msg.op, of.msg.reply, of.msg.left, flags(of.said, of.saidAbsent))
	}
	return uint64(w)
}

func columnOf(packed uint64) column {
	var c column
	w := word(packed)
	for k := len(c.of) - 1; k >= 0; k-- {
		of := &c.of[k]
		var f int8
		w.get(&f, &of.msg.left, &of.msg.reply, &of.msg.op, &of.vote)
		of.said, of.saidAbsent = f&1 != 0, f&2 != 0
	}
	w.get(&c.up, &c.left, &c.owner)
	return c
}

func flags(a, b bool) int8 {
	f := int8(0)
	if a {
		f |= 1
	}
	if b {
		f |= 2
	}
	return f
}

// word packs numbers below 16, and gives them back in the opposite order.
type word uint64

func (w *word) put(numbers ...int8) {
	for _, n := range numbers {
		*w = *w<<4 | word(n&15)
	}
}

func (w *word) get(numbers ...*int8) {
	for _, n := range numbers {
		*n = int8(*w & 15)
		*w >>= 4
	}
}

// Story tells the steps of a path.
func (m *Lock) Story(path []LockKey) []string {
	return story(m.first(), m.steps, func(s lockState) LockKey { return s.key() }, path)
}
