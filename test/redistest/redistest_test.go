package redistest_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/podlease/podlease/test/redistest"
)

func set(t *testing.T, s *redistest.Server, key string) {
	t.Helper()
	if err := s.Client().Set(t.Context(), key, "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, s *redistest.Server, key string) bool {
	t.Helper()
	n, err := s.Client().Exists(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestRestartKeepsOrLosesKeysOnTheSameAddress(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	addr := s.Addr()
	set(t, s, "a")
	s.Restart(false)
	if !exists(t, s, "a") {
		t.Error("a restart that keeps lost the key")
	}
	s.Stop()
	s.Restart(false)
	if !exists(t, s, "a") {
		t.Error("stop and restart lost the key")
	}
	s.Restart(true)
	if exists(t, s, "a") {
		t.Error("an empty restart kept the key")
	}
	if s.Addr() != addr {
		t.Errorf("moved from %s to %s", addr, s.Addr())
	}
}

func TestKillEndsTheServerAndLosesWhatWasNotSaved(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	set(t, s, "a")
	s.Kill()
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		_ = c.Close()
		t.Fatal("somebody still listens")
	}
	s.Restart(false)
	if exists(t, s, "a") {
		t.Error("the key survived a crash of a server that persists nothing")
	}
}

func TestFrozenServerAnswersOnlyAfterThaw(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	opt := s.AdminOptions()
	opt.MaxRetries, opt.ReadTimeout = -1, 50*time.Millisecond
	client := redis.NewClient(opt)
	defer client.Close()
	s.Freeze()
	var timeout net.Error
	if err := client.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("PING to a frozen server: %v, want a timeout", err)
	}
	s.Thaw()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestListensAsAsked(t *testing.T) {
	t.Parallel()
	ca := redistest.NewCA(t)
	for name, tc := range map[string]struct {
		options []redistest.Option
		scheme  string
	}{
		"port":     {nil, "127.0.0.1:"},
		"socket":   {[]redistest.Option{redistest.WithUnixSocket()}, "unix:///"},
		"tls":      {[]redistest.Option{redistest.WithTLS(ca)}, "rediss://127.0.0.1:"},
		"mtls":     {[]redistest.Option{redistest.WithTLS(ca), redistest.WithConfig("tls-auth-clients yes")}, "rediss://"},
		"password": {[]redistest.Option{redistest.WithPassword("s3cret")}, "127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tc.options...)
			set(t, s, "a")
			if !strings.HasPrefix(s.URL(), tc.scheme) {
				t.Errorf("URL %s does not begin with %s", s.URL(), tc.scheme)
			}
		})
	}
}

func TestUserHasOnlyTheRightsGiven(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithUser("app", "pw", "~app:* +@all"))
	opt := s.AdminOptions()
	opt.Username, opt.Password = "app", "pw"
	client := redis.NewClient(opt)
	defer client.Close()
	if err := client.Set(t.Context(), "app:a", 1, 0).Err(); err != nil {
		t.Error(err)
	}
	if err := client.Set(t.Context(), "b", 1, 0).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("SET outside the rights: %v, want NOPERM", err)
	}
}
