package model

import (
	"fmt"
	"strconv"
	"strings"
)

// System is something that takes discrete steps. S is its state, in a form that is equal
// for states that need not be told apart.
type System[S comparable] interface {
	Start() S
	// Steps calls visit for every state that one step leads to.
	Steps(s S, visit func(next S, a Action))
	// Wrong says what must not be in s, or nothing.
	Wrong(s S) string
}

// Action is what happens in a step: a sentence about somebody and a node.
type Action struct {
	Text string // with %s in the place of the actor and %d in the place of the node
	Who  int
	Node int
}

func (a Action) String() string {
	return strings.NewReplacer("%s", "ABCDE"[a.Who:a.Who+1], "%d", strconv.Itoa(a.Node+1)).Replace(a.Text)
}

// Found is the result of a search.
type Found[S comparable] struct {
	States int
	// Wrong says what must not be and was found; empty if nothing was.
	Wrong string
	// Path leads from the start to the wrong state.
	Path []S
	// Complete says that every state was seen: there are no others.
	Complete bool
}

func (f Found[S]) String() string {
	switch {
	case f.Wrong != "":
		return fmt.Sprintf("after %d steps: %s (%d states seen)", len(f.Path)-1, f.Wrong, f.States)
	case f.Complete:
		return fmt.Sprintf("exhausted, %d states, nothing wrong", f.States)
	}
	return fmt.Sprintf("stopped at %d states, nothing wrong so far", f.States)
}

// Search follows all courses, the shortest first, until something is wrong, everything is
// seen, or there are limit states.
func Search[S comparable](sys System[S], limit int) Found[S] {
	start := sys.Start()
	seen := map[S]struct{}{start: {}}
	states, parents := []S{start}, []uint32{0}
	wrong := sys.Wrong(start)
	for head := 0; head < len(states) && wrong == ""; head++ {
		if len(states) > limit {
			return Found[S]{States: len(states)}
		}
		sys.Steps(states[head], func(next S, _ Action) {
			if _, known := seen[next]; known || wrong != "" {
				return
			}
			seen[next] = struct{}{}
			states, parents = append(states, next), append(parents, uint32(head)) //nolint:gosec // limited by memory long before
			wrong = sys.Wrong(next)
		})
	}
	f := Found[S]{States: len(states), Wrong: wrong, Complete: wrong == ""}
	if wrong != "" {
		f.Path = path(states, parents)
	}
	return f
}

// path leads to the last state.
func path[S comparable](states []S, parents []uint32) []S {
	var back []S
	for i := len(states) - 1; ; i = int(parents[i]) {
		back = append(back, states[i])
		if i == 0 {
			break
		}
	}
	out := make([]S, len(back))
	for i, s := range back {
		out[len(back)-1-i] = s
	}
	return out
}

// story tells the steps of a path, in which key may have changed which node is which:
// here they keep their numbers.
func story[R any, S comparable](now R, steps func(R, func(R, Action)), key func(R) S, path []S) []string {
	if len(path) == 0 {
		return nil
	}
	var out []string
	for _, want := range path[1:] {
		told, from := false, now
		steps(from, func(next R, a Action) {
			if !told && key(next) == want {
				out, now, told = append(out, a.String()), next, true
			}
		})
	}
	return out
}
