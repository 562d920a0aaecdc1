package survey

import (
	"fmt"
	"strings"
	"testing"
)

func TestAllNodesTogetherTellHowManyMayStillFail(t *testing.T) {
	for name, tc := range map[string]struct {
		up, down int
		says     []string
	}{
		"all of three": {up: 3, says: []string{"fit number 3 nodes, of which 1 may fail → \nfit distinct different servers: 3"}},
		"two of three": {up: 2, down: 1, says: []string{
			"warning number 3 nodes, of which 1 may fail; down or unfit now: 1 → see to what is unfit above; until then 0 more may fail",
			"warning distinct 2 of 3 servers answered: the others cannot be compared with them → look again when all answer",
		}},
		"one of three": {up: 1, down: 2, says: []string{
			"unfit number 3 nodes, of which 1 may fail; down or unfit now: 2 → see to what is unfit above; with fewer than 2 fit nodes nobody is active",
			"warning distinct 1 of 3 servers answered: the others",
		}},
		"none of three": {down: 3, says: []string{"unfit number 3 nodes, of which 1 may fail; down or unfit now: 3 →", "warning distinct 0 of 3 servers answered"}},
		"four of five":  {up: 4, down: 1, says: []string{"warning number 5 nodes, of which 2 may fail; down or unfit now: 1 → see to what is unfit above; until then 1 more"}},
		"one of one":    {up: 1, says: []string{"warning number one node: when it is down, nobody is active → use three", "fit distinct different servers: 1"}},
		"none of one": {down: 1, says: []string{
			"unfit number one node: when it is down, nobody is active; down or unfit now: 1 → see to what is unfit above; with fewer than 1",
		}},
		"two":  {up: 2, says: []string{"warning number 2 nodes, of which 0 may fail, as with 1 → use 1 or 3: an even number adds a node that can fail, and not one more that may"}},
		"four": {up: 4, says: []string{"warning number 4 nodes, of which 1 may fail, as with 3 → use 3 or 5: an even number"}},
		"three of six": {up: 3, down: 3, says: []string{
			"unfit number 6 nodes, of which 2 may fail, as with 5; down or unfit now: 3 → see to what is unfit above; with fewer than 4",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var d Diagnosis
			for i := range tc.up {
				d.Nodes = append(d.Nodes, Health{Node: fmt.Sprint("up-", i), Verdict: Fit, runID: fmt.Sprint(i)})
			}
			for i := range tc.down {
				d.Nodes = append(d.Nodes, Health{Node: fmt.Sprint("down-", i), Verdict: Unfit})
			}
			d.together(Lease{})
			told := ""
			for _, c := range d.Set {
				told += fmt.Sprintf("%s %s %s → %s\n", c.Verdict, c.Name, c.Found, c.Advice)
			}
			for _, want := range tc.says {
				if !strings.Contains(told, want) {
					t.Errorf("not told: %s\ntold:\n%s", want, told)
				}
			}
		})
	}
}
