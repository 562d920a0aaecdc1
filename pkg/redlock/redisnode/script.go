package redisnode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/pkg/redlock"

	_ "embed" // for the script
)

//go:embed lock.lua
var lockTemplate string

// lockSource is the script that any server may get. It asks INFO for the run_id.
var lockSource = scriptOf("")

var lockScript = redis.NewScript(lockSource)

// scriptOf is the script that only the process with that run_id may get.
func scriptOf(runID string) string {
	return strings.Replace(lockTemplate, "RUN_ID", runID, 1)
}

// MaxFence is the largest proposal for a fencing token: the numbers of Lua and
// of JSON are exact to 2^53, and what is left above lets them grow on.
const MaxFence = 1<<53 - 1<<40

func check(req redlock.Request) error {
	switch {
	case req.Keys.Lock == "":
		return errors.New("request without a lock key")
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

// command is the request as EVALSHA or, with the source, as EVAL. INFO is asked where
// the script does not say the run_id, and where the uptime is wanted.
func (s *session) command(req *redlock.Request, verb, script string) []any {
	asks := s.asksInfo && (s.hash == lockScript.Hash() || req.Unseen || verb == "eval")
	args := make([]any, 0, 18)
	args = append(args, verb, script)
	if req.Keys.Fence == "" {
		args = append(args, "1", req.Keys.Lock)
	} else {
		args = append(args, "2", req.Keys.Lock, req.Keys.Fence)
	}
	return append(args,
		req.Op.String(), req.Token, decimal(req.TTL.Milliseconds()),
		req.MatureRunID, flag(req.Unseen), decimal(milliseconds(req.Quarantine)), flag(req.HaveVote),
		decimal(req.NotAfter), strconv.FormatUint(req.Fence, 10),
		s.id, flag(asks), req.Keys.Channel, req.Notice)
}

// milliseconds rounds up, so that no part of a quarantine is lost.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// refusal is the script's word that it did nothing, and why.
type refusal struct {
	key string
	msg string
}

func (r *refusal) Error() string { return fmt.Sprintf("key %q: %s", r.key, r.msg) }

var errAnswer = errors.New("the answer is not one of the lock script")

// decode reads the script's answer.
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
	pttl := d.number(2)
	reply := redlock.Reply{
		Outcome: redlock.Outcome(d.number(0)), //nolint:gosec // 1 to 7
		Owner:   d.text(1),
		PTTL:    time.Duration(pttl) * time.Millisecond,
		RunID:   d.text(3),
		Young:   d.number(4) == 1,
		Uptime:  time.Duration(d.number(5)) * time.Second,
		Time:    d.number(6),
		Fence:   uint64(d.number(7)), //nolint:gosec // never negative
	}
	if pttl == -1 {
		reply.PTTL = redlock.NoExpiry
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
