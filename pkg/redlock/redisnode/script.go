package redisnode

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"

	_ "embed" // for the script
)

var (
	//go:embed lock.lua
	lockTemplate string
	//go:embed claim.lua
	claimTemplate string
	//go:embed who.lua
	whoAnswers string
)

// whoMark stands in the script where it may ask who answers.
const whoMark = "-- WHO\n"

// lockSource is the script that any server may get. It asks INFO for the run_id.
var lockSource = strings.Replace(lockTemplate, whoMark, whoAnswers, 1)

var lockScript = redis.NewScript(lockSource)

// forServer makes the script that only the process with that run_id may get.
func forServer(template, runID string) string {
	return strings.Replace(template, whoMark, "-- for "+runID+"\n", 1)
}

// MaxFence is the largest proposal for a fencing token: the numbers of Lua and
// of JSON are exact to 2^53, and what is left above lets them grow on.
const MaxFence = 1<<53 - 1<<40

// longestRequest bounds what a request's keys, token and notice have together, in bytes.
const longestRequest = 16 << 10

func check(req redlock.Request) error {
	size := len(req.Keys.Lock) + len(req.Keys.Fence) + len(req.Keys.Channel) + len(req.Token) + len(req.Notice)
	switch {
	case req.Keys.Lock == "":
		return errors.New("request without a lock key")
	case size > longestRequest:
		return fmt.Errorf("request of %d bytes: keys, token and notice may have %d together", size, longestRequest)
	case req.Fence > MaxFence:
		return fmt.Errorf("fencing token %d proposed: at most %d (2^53-2^40) is allowed", req.Fence, int64(MaxFence))
	case req.Op == redlock.OpProbe, req.Op == redlock.OpAnnounce:
		return nil
	case req.Token == "":
		return fmt.Errorf("%s without a token", req.Op)
	case req.Op == redlock.OpTake && req.TTL < time.Millisecond:
		return fmt.Errorf("take with a TTL of %v: at least 1ms is needed", req.TTL)
	case req.Op != redlock.OpTake && req.Op != redlock.OpRelease:
		return fmt.Errorf("unknown operation %s", req.Op)
	}
	return nil
}

// encode appends the request as EVALSHA, or as EVAL with the source.
func (s *session) encode(b []byte, req *redlock.Request, eval bool) []byte {
	asks := s.mustAsk(req, eval)
	if req.Fresh && !asks && s.mayClaim(req) {
		return s.encodeClaim(b, req)
	}
	size := 3 + 2 + 8
	if asks {
		size += 5
	}
	if req.Keys.Fence == "" {
		size--
	}
	b = appendArray(b, size)
	switch {
	case eval:
		b = appendString(appendString(b, "eval"), lockSource)
	case asks:
		b = appendString(appendString(b, "evalsha"), lockScript.Hash())
	default:
		b = appendString(appendString(b, "evalsha"), s.hash)
	}
	if req.Keys.Fence == "" {
		b = appendString(appendInt(b, 1), req.Keys.Lock)
	} else {
		b = appendString(appendString(appendInt(b, 2), req.Keys.Lock), req.Keys.Fence)
	}
	b = appendString(b, req.Op.String())
	b = appendString(b, req.Token)
	b = appendInt(b, req.TTL.Milliseconds())
	b = appendFlag(b, req.HaveVote || !asks && s.mature(req))
	b = appendInt(b, req.NotAfter)
	b = appendInt(b, int64(req.Fence)) //nolint:gosec // at most MaxFence
	b = appendString(b, req.Keys.Channel)
	b = appendString(b, req.Notice)
	if asks {
		b = appendString(b, req.MatureRunID)
		b = appendFlag(b, req.Unseen)
		b = appendInt(b, milliseconds(req.Quarantine))
		b = appendString(b, s.id)
		b = appendFlag(b, s.asksInfo)
	}
	return b
}

// mayClaim reports whether the server has the script for a first take, and may set an
// absent key.
func (s *session) mayClaim(req *redlock.Request) bool {
	return req.Op == redlock.OpTake && s.claimHash != "" && s.mature(req)
}

// endOfTime is later than every clock, and as exact as Lua counts.
const endOfTime = 1 << 53

func (s *session) encodeClaim(b []byte, req *redlock.Request) []byte {
	keys := 1
	if req.Keys.Fence != "" && req.Fence > 0 {
		keys = 2
	}
	b = appendArray(b, 3+keys+4)
	b = appendString(appendString(b, "evalsha"), s.claimHash)
	b = appendString(appendInt(b, int64(keys)), req.Keys.Lock)
	if keys == 2 {
		b = appendString(b, req.Keys.Fence)
	}
	b = appendString(b, req.Token)
	b = appendInt(b, req.TTL.Milliseconds())
	b = appendInt(b, cmp.Or(req.NotAfter, endOfTime))
	return appendInt(b, int64(req.Fence)) //nolint:gosec // at most MaxFence
}

// mustAsk reports whether the server has to be asked who it is and for how long it has
// been up.
func (s *session) mustAsk(req *redlock.Request, eval bool) bool {
	return s.runID == "" || req.Unseen || eval
}

// mature reports whether the server whose run_id is known may set an absent key.
func (s *session) mature(req *redlock.Request) bool {
	return req.Quarantine == 0 || s.runID != "" && req.MatureRunID == s.runID
}

// milliseconds rounds up, so that no part of a quarantine is lost.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// refusal is the script's word that it did nothing, and why.
type refusal struct {
	key string
	msg string
}

func (r *refusal) Error() string { return fmt.Sprintf("key %q: %s", r.key, r.msg) }

var errAnswer = errors.New("the answer is not one of the lock script")

// decode reads a script's answer: {outcome, time, counter, owner, PTTL} and, where it
// was asked, who answers. Without a key that is another's it may end after the counter.
func decode(v any) (redlock.Reply, error) {
	list, ok := v.([]any)
	if !ok || len(list) < 3 {
		return redlock.Reply{}, fmt.Errorf("%w: %v", errAnswer, v)
	}
	if list[0] == int64(0) {
		key, _ := list[1].(string)
		msg, _ := list[2].(string)
		return redlock.Reply{}, &refusal{key: key, msg: msg}
	}
	d := decoder{list: list}
	reply := redlock.Reply{
		Outcome: redlock.Outcome(d.number(0)), //nolint:gosec // 1 to 7
		Time:    d.number(1),
		Fence:   uint64(d.number(2)), //nolint:gosec // never negative
		Uptime:  -1,
	}
	if len(list) > 3 || reply.Outcome == redlock.Held {
		d.owner(&reply)
	}
	if len(list) > 5 {
		d.who(&reply, list[5])
	}
	if d.bad {
		return redlock.Reply{}, fmt.Errorf("%w: %v", errAnswer, v)
	}
	return reply, nil
}

type decoder struct {
	list []any
	bad  bool
}

func (d *decoder) number(i int) int64 {
	if i < len(d.list) {
		if n, ok := d.list[i].(int64); ok {
			return n
		}
	}
	d.bad = true
	return 0
}

func (d *decoder) text(i int) string {
	if i < len(d.list) {
		if s, ok := d.list[i].(string); ok {
			return s
		}
	}
	d.bad = true
	return ""
}

// owner reads whose the key is.
func (d *decoder) owner(reply *redlock.Reply) {
	pttl := d.number(4)
	reply.Owner, reply.PTTL = d.text(3), time.Duration(pttl)*time.Millisecond
	if pttl == -1 {
		reply.PTTL = redlock.NoExpiry
	}
}

// who reads who answers.
func (d *decoder) who(reply *redlock.Reply, v any) {
	list, _ := v.([]any)
	w := decoder{list: list}
	reply.RunID = w.text(0)
	reply.Young = w.number(1) == 0
	reply.Uptime = time.Duration(w.number(2)) * time.Second
	d.bad = d.bad || w.bad
}
