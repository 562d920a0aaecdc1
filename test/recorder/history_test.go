package recorder_test

import (
	"testing"
	"time"

	"github.com/podlease/podlease/test/recorder"
)

// at makes a sample of milliseconds.
func at(sent, received int) recorder.Sample {
	return recorder.Sample{Sent: time.Duration(sent) * time.Millisecond, Received: time.Duration(received) * time.Millisecond}
}

func run(who string, token uint64, samples ...recorder.Sample) recorder.Run {
	return recorder.Run{Who: who, Token: token, First: samples[0], Last: samples[len(samples)-1], Answers: len(samples)}
}

func TestHistoriesAreJudged(t *testing.T) {
	a := run("a", 1, at(0, 1), at(100, 101))
	for name, tc := range map[string]struct {
		runs                             []recorder.Run
		overlaps, sentInside, regression bool
	}{
		"hand-over": {
			runs: []recorder.Run{a, run("b", 2, at(102, 103), at(200, 201))},
		},
		"second active inside the first's run": {
			runs:     []recorder.Run{a, run("b", 2, at(50, 51), at(60, 61))},
			overlaps: true, sentInside: true,
		},
		"runs meet at the end": {
			runs:     []recorder.Run{a, run("b", 2, at(97, 98), at(200, 201))},
			overlaps: true, sentInside: true,
		},
		"first active longer than the second": {
			runs:     []recorder.Run{run("b", 2, at(50, 51), at(60, 61)), run("a", 1, at(0, 1), at(100, 101))},
			overlaps: true, sentInside: true,
		},
		"one answer within the run": {
			runs:     []recorder.Run{a, run("b", 2, at(50, 51))},
			overlaps: true, sentInside: true,
		},
		"one slow answer, sent inside and read after the end": {
			// a's last answer may be of 100 and b's of 109.
			runs:       []recorder.Run{a, run("b", 2, at(99, 110))},
			sentInside: true,
		},
		"first answer of a run is slow": {
			runs:       []recorder.Run{a, run("b", 2, at(99, 110), at(111, 112))},
			sentInside: true,
		},
		"two single answers prove nothing": {
			runs:       []recorder.Run{run("a", 1, at(0, 10)), run("b", 2, at(0, 10))},
			sentInside: true,
		},
		"one candidate's own terms": {
			runs: []recorder.Run{a, run("a", 2, at(50, 51), at(60, 61))},
		},
		"one candidate's own token shrinks": {
			runs:       []recorder.Run{run("a", 2, at(0, 1), at(10, 11)), run("a", 1, at(50, 51), at(60, 61))},
			regression: true,
		},
		"one candidate was silent for a while": {
			runs: []recorder.Run{run("a", 1, at(0, 1), at(10, 11)), run("a", 1, at(50, 51), at(60, 61))},
		},
		"a token of two": { // whose order is not known
			runs:       []recorder.Run{run("a", 1, at(0, 10)), run("b", 1, at(0, 10))},
			sentInside: true, regression: true,
		},
		"token does not grow": {
			runs:       []recorder.Run{a, run("b", 1, at(102, 103), at(200, 201))},
			regression: true,
		},
		"token of the earlier run is greater": {
			runs:       []recorder.Run{run("b", 2, at(102, 103), at(200, 201)), run("a", 3, at(0, 1), at(100, 101))},
			regression: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for what, got := range map[string]struct {
				pairs []recorder.Pair
				want  bool
			}{
				"overlaps":    {recorder.Overlaps(tc.runs), tc.overlaps},
				"sent inside": {recorder.SentInside(tc.runs), tc.sentInside},
				"regressions": {recorder.Regressions(tc.runs), tc.regression},
			} {
				if (len(got.pairs) > 0) != got.want {
					t.Errorf("%s: %v, want some: %v", what, got.pairs, got.want)
				}
			}
		})
	}
}
