package statusapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/podlease/podlease/pkg/election"
)

// maxWatchers bounds how many event streams and waiting requests are served at a
// time: each costs a goroutine and its buffers, and the sidecar is small.
const maxWatchers = 64

// readOnly serves the read-only endpoints.
type readOnly struct {
	source Source
	routes map[string]http.HandlerFunc
	// watchers holds one entry per stream or waiting request.
	watchers chan struct{}
}

// NewHandler serves the read-only endpoints of a candidate. GET /metrics is answered
// by metrics, unless that is nil. Streams end when the context of the request does.
func NewHandler(source Source, metrics http.Handler) http.Handler {
	h := &readOnly{source: source, watchers: make(chan struct{}, maxWatchers)}
	h.routes = map[string]http.HandlerFunc{
		"/":              h.holder,
		"/leader":        h.leader,
		"/active":        h.leader,
		"/standby":       h.standby,
		"/readyz":        h.ready,
		"/livez":         h.live,
		"/v1/leadership": h.leadership,
	}
	if metrics != nil {
		h.routes["/metrics"] = metrics.ServeHTTP
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *readOnly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve(w, r, h.routes, http.MethodGet, http.MethodHead)
}

// serve answers with the route of exactly that path and one of the methods.
func serve(w http.ResponseWriter, r *http.Request, routes map[string]http.HandlerFunc, methods ...string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	route, ok := routes[r.URL.Path]
	if !ok {
		writeProblem(w, http.StatusNotFound, nothingAt(r.URL.Path))
		return
	}
	if slices.Contains(methods, r.Method) {
		route(w, r)
		return
	}
	allowed := strings.Join(methods, ", ")
	w.Header().Set("Allow", allowed)
	writeProblem(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %q is not allowed here: want %s", r.Method, allowed))
}

func nothingAt(path string) string {
	if slices.Contains(controlPaths, path) {
		return fmt.Sprintf("%q is not at this address: ask for it at the control address, --control-listen", path)
	}
	return fmt.Sprintf("there is nothing at %q", path)
}

func (h *readOnly) leader(w http.ResponseWriter, _ *http.Request) {
	l := h.source.Leadership()
	writeLeadership(w, okIf(l.Active()), l)
}

func (h *readOnly) standby(w http.ResponseWriter, _ *http.Request) {
	health := h.source.Health()
	l := h.source.Leadership()
	writeLeadership(w, okIf(canContend(l, health)), l)
}

// canContend reports whether a standby would take the lease if it were free: nothing
// is in its way but somebody else.
func canContend(l election.Leadership, health election.Health) bool {
	if l.Active() || l.Draining || !quorumSeen(health) {
		return false
	}
	return l.Reason == "" || strings.HasPrefix(l.Reason, "held by ") || strings.HasPrefix(l.Reason, "contending")
}

func (h *readOnly) holder(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Name string `json:"name"`
	}{h.source.Leadership().Holder})
}

// checks is the body of /readyz and /livez.
type checks struct {
	OK     bool    `json:"ok"`
	Checks []check `json:"checks"`
	// Nodes tell which node is wrong and why; one that is does not count against OK.
	Nodes []check `json:"nodes,omitempty"`
}

type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

func writeChecks(w http.ResponseWriter, nodes []check, list ...check) {
	all := checks{OK: true, Checks: list, Nodes: nodes}
	for _, c := range list {
		all.OK = all.OK && c.OK
	}
	writeJSON(w, okIf(all.OK), all)
}

func okIf(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (h *readOnly) ready(w http.ResponseWriter, _ *http.Request) {
	health := h.source.Health()
	detail := "no quorum of fit nodes has answered yet"
	if health.SinceQuorum >= 0 {
		detail = fmt.Sprintf("a quorum of fit nodes answered %s ago, at most %s are allowed", rounded(health.SinceQuorum), 2*health.TTL)
	}
	writeChecks(w, nodeChecks(h.source.Nodes()),
		check{Name: "configured", OK: health.TTL > 0, Detail: "settings are complete"},
		check{Name: "quorum", OK: quorumSeen(health), Detail: detail})
}

// nodeChecks says of each node in words how it is.
func nodeChecks(nodes []election.NodeState) []check {
	out := make([]check, 0, len(nodes))
	for _, n := range nodes {
		c := check{Name: n.Name, OK: n.Up && n.Unfit == ""}
		switch {
		case n.Unfit != "":
			c.Detail = "not counted: " + n.Unfit
		case n.Err != nil:
			c.Detail = strings.TrimPrefix(n.Err.Error(), "node "+n.Name+": ")
		case !n.Up:
			c.Detail = "has not answered yet"
		case !n.Mature:
			c.Detail = fmt.Sprintf("answers; in quarantine, grants a new lease in %s", rounded(n.MatureIn))
		default:
			c.Detail = fmt.Sprintf("answered %s ago", rounded(n.LastReply))
		}
		out = append(out, c)
	}
	return out
}

func quorumSeen(h election.Health) bool {
	return h.TTL > 0 && h.SinceQuorum >= 0 && h.SinceQuorum <= 2*h.TTL
}

func (h *readOnly) live(w http.ResponseWriter, _ *http.Request) {
	health := h.source.Health()
	writeChecks(w, nil, check{
		Name: "loop", OK: health.SinceLoop <= 2*health.TTL,
		Detail: fmt.Sprintf("the election loop ran %s ago, at most %s are allowed", rounded(health.SinceLoop), 2*health.TTL),
	})
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
