package recorder

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Sample is one answer, by the times of CLOCK_BOOTTIME just before the question was
// sent and just after the answer was read. What the answer says was true at some
// instant between the two.
type Sample struct {
	Sent, Received time.Duration
}

// Run is a row of consecutive answers of one candidate that all said "active" with
// the same fencing token; any other answer, or none, ends it.
//
// A candidate that was active at two instants of one term was active in between.
// So it certainly was from First.Received to Last.Sent; how long before and after is
// not known.
type Run struct {
	Who         string
	Token       uint64
	First, Last Sample
	// Then is the first answer "not active" after the run, maybe after a silence; zero
	// while there is none.
	Then    Sample
	Answers int
}

func (r Run) String() string {
	return fmt.Sprintf("%s (token %d, %d answers) from %v to %v", r.Who, r.Token, r.Answers, r.First.Received, r.Last.Sent)
}

// certain is the time in which the candidate was active without doubt. For a run of
// one answer there is none: it starts after it ends.
func (r Run) certain() (from, to time.Duration) { return r.First.Received, r.Last.Sent }

// overlaps reports whether two runs prove that both were active at one instant:
// their certain times meet, or the only answer of one was asked for and read within
// the certain time of the other.
func (r Run) overlaps(o Run) bool {
	if r.Answers == 1 && o.Answers == 1 {
		return false // two instants, each somewhere in its own window
	}
	if r.Answers == 1 {
		r, o = o, r
	}
	from, to := r.certain()
	if o.Answers == 1 {
		return from <= o.First.Sent && o.First.Received <= to
	}
	oFrom, oTo := o.certain()
	return from <= oTo && oFrom <= to
}

// sentInside reports whether an active answer of one was asked for between the first
// and last question of the other's run. Without a doubt about where in its window an
// answer was made, that would be an overlap; an answer that took long can do it
// innocently.
func (r Run) sentInside(o Run) bool {
	return r.First.Sent <= o.Last.Sent && o.First.Sent <= r.Last.Sent
}

// Pair is two runs that should not be.
type Pair struct{ A, B Run }

func (p Pair) String() string { return fmt.Sprintf("%v\n  and %v", p.A, p.B) }

// Overlaps are the pairs of runs that prove two active candidates at one instant.
func Overlaps(runs []Run) []Pair { return pairs(runs, ofOthers(Run.overlaps)) }

// SentInside are the pairs in which an active answer of one candidate was asked for
// inside the other's run. Every overlap is one.
func SentInside(runs []Run) []Pair { return pairs(runs, ofOthers(Run.sentInside)) }

// Regressions are the pairs in which B began after A had ended, but carries no
// greater token; one candidate may fall silent and go on with the same. A token that two
// candidates share is one, whenever that was.
func Regressions(runs []Run) []Pair {
	return pairs(runs, func(a, b Run) bool {
		if a.Token == b.Token {
			return a.Who != b.Who
		}
		return a.Last.Received < b.First.Sent && b.Token < a.Token || b.Last.Received < a.First.Sent && a.Token < b.Token
	})
}

// ofOthers restricts a judgement to runs of different candidates.
func ofOthers(bad func(a, b Run) bool) func(a, b Run) bool {
	return func(a, b Run) bool { return a.Who != b.Who && bad(a, b) }
}

// pairs compares each run with each later one.
func pairs(runs []Run, bad func(a, b Run) bool) []Pair {
	var found []Pair
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b Run) int { return cmp.Compare(a.First.Sent, b.First.Sent) })
	for i, a := range sorted {
		for _, b := range sorted[i+1:] {
			if bad(a, b) {
				found = append(found, Pair{a, b})
			}
		}
	}
	return found
}
