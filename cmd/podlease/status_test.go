package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// kept is what one node keeps of a lock: whose it is and how far tokens are counted. A
// node that keeps "down" does not answer.
type kept struct {
	owner string
	count uint64
}

const down = "down"

// keep starts nodes that keep that, and returns the flag for reaching them.
func keep(t *testing.T, nodes []kept) string {
	t.Helper()
	var addresses []string
	for _, k := range nodes {
		server := miniredis.RunT(t)
		addresses = append(addresses, server.Addr())
		if k.owner == down {
			server.Close()
			continue
		}
		if k.owner != "" {
			value := fmt.Sprintf("%032x:1:10000:%d:0badcafe:%s", len(k.owner), len(nodes), k.owner)
			if err := server.Set("podlease:orders", value); err != nil {
				t.Fatal(err)
			}
			server.SetTTL("podlease:orders", 10*time.Second)
		}
		if k.count != 0 {
			if err := server.Set("podlease:orders:fence", fmt.Sprint(k.count)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return "--redis=" + strings.Join(addresses, ",")
}

// status runs podlease status for the lock that is kept.
func status(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut strings.Builder
	code = run(t.Context(), append([]string{"status", "orders"}, args...), nil, &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestStatusSaysWhatTheNodesShowAndNoMore(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes        []kept
		heading      string
		holder       string
		known        bool
		token, bound uint64
		code         int
	}{
		"held, and all counted alike": {
			nodes: []kept{{"a", 7}, {"a", 7}, {"a", 7}}, heading: "held by a, 3 of 3 nodes, fencing token 7",
			holder: "a", known: true, token: 7, bound: 7,
		},
		"held, and one counter is ahead by a proposal that came to nothing": {
			nodes: []kept{{"a", 7}, {"a", 7}, {"a", 12}}, heading: "held by a, 3 of 3 nodes, fencing token 7",
			holder: "a", known: true, token: 7, bound: 7,
		},
		"held, and a node that does not hold is ahead": {
			nodes: []kept{{"a", 7}, {"a", 7}, {"b", 12}}, heading: "held by a, 2 of 3 nodes, fencing token 7",
			holder: "a", known: true, token: 7, bound: 7,
		},
		"held, and no number has been agreed on": {
			nodes: []kept{{"a", 7}, {"a", 8}, {"", 8}}, heading: "held by a, 2 of 3 nodes, the next fencing token is larger than 8",
			holder: "a", known: true, bound: 8,
		},
		"held without a counter": {
			nodes: []kept{{"a", 0}, {"a", 0}, {"a", 0}}, heading: "held by a, 3 of 3 nodes", holder: "a", known: true,
		},
		"held, one node is down": {
			nodes: []kept{{"a", 7}, {"a", 7}, {down, 0}}, heading: "held by a, 2 of 3 nodes, fencing token 7",
			holder: "a", known: true, token: 7, bound: 7,
		},
		"free, and one counter is ahead": {
			nodes: []kept{{"", 7}, {"", 7}, {"", 12}}, heading: "nobody holds it, 0 of 3 nodes, the next fencing token is larger than 7",
			known: true, bound: 7,
		},
		"free at all that answer, which are a quorum": {
			nodes: []kept{{"", 7}, {"", 7}, {down, 0}}, heading: "nobody holds it, 0 of 3 nodes, the next fencing token is larger than 7",
			known: true, bound: 7,
		},
		"the one that is silent decides": {
			nodes: []kept{{"a", 7}, {"", 7}, {down, 0}}, heading: "not known who holds it, 2 of 3 nodes answered, the next fencing token is larger than 7",
			bound: 7,
		},
		"votes are split": {
			nodes: []kept{{"a", 7}, {"bb", 7}, {"", 7}}, heading: "nobody holds it, 1 of 3 nodes, the next fencing token is larger than 7",
			known: true, bound: 7,
		},
		"fewer than a quorum answer": {
			nodes: []kept{{"", 7}, {down, 0}, {down, 0}}, heading: "not known who holds it, 1 of 3 nodes answered", code: 1,
		},
		"two of four do not answer": {
			nodes: []kept{{"", 7}, {"", 7}, {down, 0}, {down, 0}}, heading: "not known who holds it, 2 of 4 nodes answered", code: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := keep(t, tc.nodes)
			code, stdout, stderr := status(t, nodes)
			if heading, _, _ := strings.Cut(stdout, "\n"); heading != "LOCK orders: "+tc.heading || code != tc.code {
				t.Errorf("%q, code %d, %q; want %q, code %d", heading, code, stderr, "LOCK orders: "+tc.heading, tc.code)
			}
			_, stdout, _ = status(t, nodes, "-o=json")
			var report struct {
				Locks []struct {
					Holder                  string
					HolderKnown             bool
					TermToken, FencingToken uint64
				}
			}
			if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Locks) != 1 {
				t.Fatalf("%q: %v", stdout, err)
			}
			got := report.Locks[0]
			if got.Holder != tc.holder || got.HolderKnown != tc.known || got.TermToken != tc.token || got.FencingToken != tc.bound {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestStatusOverAndOverSaysForPeopleWhenEachTimeWas(t *testing.T) {
	nodes := keep(t, []kept{{"a", 7}})
	when := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}$`)
	for output, frame := range map[string]string{"table": "LOCK orders", "json": `{"locks"`, "yaml": "---"} {
		t.Run(output, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, in := io.Pipe()
			var stderr strings.Builder
			code := make(chan int, 1)
			go func() {
				code <- run(ctx, []string{"status", "orders", nodes, "--watch", "--interval=100ms", "-o", output}, nil, in, &stderr)
				in.Close()
			}()
			frames, before := 0, ""
			for lines := bufio.NewScanner(out); lines.Scan(); before = lines.Text() {
				if !strings.HasPrefix(lines.Text(), frame) {
					continue
				}
				if when.MatchString(before) != (output == "table") {
					t.Errorf("%q comes after %q", lines.Text(), before)
				}
				if frames++; frames == 3 {
					cancel() // what Ctrl-C does
				}
			}
			if got := <-code; got != 0 || frames < 3 {
				t.Errorf("code %d after %d times: %s", got, frames, stderr.String())
			}
		})
	}
	if _, stdout, _ := status(t, nodes); !strings.HasPrefix(stdout, "LOCK ") {
		t.Errorf("a time where it is told once: %q", stdout)
	}
}
