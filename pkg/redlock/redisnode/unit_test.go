package redisnode

import (
	"strings"
	"testing"
	"time"
)

func TestParseAddress(t *testing.T) {
	for given, want := range map[string]Address{
		"redis-0:6379":                 {Network: "tcp", Endpoint: "redis-0:6379"},
		"[::1]:6379":                   {Network: "tcp", Endpoint: "[::1]:6379"},
		"redis://redis-0:6379":         {Network: "tcp", Endpoint: "redis-0:6379"},
		"redis://lease@redis-0:1/2":    {Network: "tcp", Endpoint: "redis-0:1", User: "lease", DB: 2},
		"rediss://redis-0:6380/":       {Network: "tcp", Endpoint: "redis-0:6380", TLS: true},
		"unix:///run/redis.sock":       {Network: "unix", Endpoint: "/run/redis.sock"},
		"unix://lease@/run/redis.sock": {Network: "unix", Endpoint: "/run/redis.sock", User: "lease"},
	} {
		got, err := ParseAddress(given)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", given, got, err, want)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for given, why := range map[string]string{
		"":                            "no host and port",
		"redis-0":                     "no host and port",
		":6379":                       "no host and port",
		"redis-0:":                    "the port is not a number from 1 to 65535",
		"redis-0:0":                   "the port is not a number from 1 to 65535",
		"redis-0:65536":               "the port is not a number from 1 to 65535",
		"redis-0:6379/1":              "the port is not a number from 1 to 65535",
		"lease@redis-0:6379":          "no host and port",
		"redis://redis-0":             "no host and port",
		"redis://redis-0:6379/x":      "the database is not a number from 0",
		"redis://redis-0:6379/-1":     "the database is not a number from 0",
		"redis://redis-0:6379?db=1":   "parameters are not allowed",
		"redis://u:secret@redis-0:1":  "a password does not belong into an address",
		"redis://u:sec%ret@redis-0:1": "not a URL",
		"http://redis-0:6379":         `unknown scheme "http"`,
		"unix://run/redis.sock":       "absolute path",
		"unix://":                     "absolute path",
	} {
		_, err := ParseAddress(given)
		if err == nil {
			t.Errorf("%s: not refused", given)
			continue
		}
		for _, part := range []string{why, "allowed: host:port"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", given, err, part)
			}
		}
		if strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %q shows the password", given, err)
		}
	}
}

func TestAddressString(t *testing.T) {
	for given, want := range map[string]string{
		"redis-0:6379":              "redis-0:6379",
		"redis://lease@redis-0:1":   "redis-0:1",
		"redis://lease@redis-0:1/2": "redis://redis-0:1/2",
		"rediss://redis-0:1":        "rediss://redis-0:1",
		"unix:///run/redis.sock":    "unix:///run/redis.sock",
	} {
		a, err := ParseAddress(given)
		if err != nil || a.String() != want {
			t.Errorf("%s: got %s, %v, want %s", given, a, err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	const server, primary, memory = "redis_mode:standalone\r\n", "role:master\r\nsecond_repl_offset:-1\r\n", "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"
	for name, c := range map[string]struct{ server, replication, memory, reason string }{
		"fit":              {server, primary, memory, ""},
		"cluster":          {"redis_mode:cluster\r\n", primary, memory, "Redis Cluster"},
		"sentinel":         {"redis_mode:sentinel\r\n", "", "", "Sentinel"},
		"replica":          {server, "role:slave\r\nmaster_host:a\r\nmaster_port:1\r\n", memory, "replica of a:1"},
		"multi-master":     {server, "role:active-replica\r\n", memory, "role active-replica"},
		"promoted":         {server, "role:master\r\nsecond_repl_offset:15\r\n", memory, "promoted"},
		"evicting":         {server, primary, "maxmemory:100\r\nmaxmemory_policy:volatile-ttl\r\n", "volatile-ttl"},
		"bounded":          {server, primary, "maxmemory:100\r\nmaxmemory_policy:noeviction\r\n", ""},
		"silent on memory": {server, primary, "", ""},
	} {
		f := judge(c.server, c.replication, c.memory)
		if c.reason == "" && f.reason != "" || !strings.Contains(f.reason, c.reason) || !f.known {
			t.Errorf("%s: got %+v, want %q", name, f, c.reason)
		}
		if (f.reason == "") != (f.hint == "") {
			t.Errorf("%s: reason %q with hint %q", name, f.reason, f.hint)
		}
	}
	if f := judge("", "", ""); f != (fitness{}) {
		t.Errorf("nothing said: got %+v", f)
	}
}

func TestBackoffStaysWithinBounds(t *testing.T) {
	for tries := 1; tries < 100; tries++ {
		d := backoff(tries)
		if d < firstWait/2 || d > longestWait {
			t.Errorf("after %d tries: %v", tries, d)
		}
	}
	if d := backoff(50); d < longestWait/2 {
		t.Errorf("after 50 tries only %v", d)
	}
}

func TestQuarantineIsRoundedUp(t *testing.T) {
	if got := milliseconds(time.Millisecond + 1); got != 2 {
		t.Errorf("got %d ms, want 2", got)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{Address: "nowhere"},
		{Address: "a:1", NodeTimeout: -1},
		{Address: "a:1", DialTimeout: -1},
		{Address: "a:1", Recheck: -1},
	} {
		if n, err := New(cfg); err == nil {
			_ = n.Close()
			t.Errorf("%+v was not refused", cfg)
		}
	}
}
