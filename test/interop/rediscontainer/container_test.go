package rediscontainer_test

import (
	"os"
	"testing"
	"time"

	"github.com/podlease/podlease/test/interop/rediscontainer"
)

func TestContainerBehavesAsAProcessDoes(t *testing.T) {
	if err := rediscontainer.Available(t.Context()); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := rediscontainer.Start(t)
	addr := s.Addr()
	exists := func() bool {
		t.Helper()
		n, err := s.Client().Exists(t.Context(), "a").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	if err := s.Client().Set(t.Context(), "a", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	s.Freeze()
	s.Thaw()
	if !exists() {
		t.Error("a pause lost the key")
	}
	s.Restart(false)
	if !exists() {
		t.Error("a restart that keeps lost the key")
	}
	s.Freeze()
	s.Kill()
	s.Restart(true)
	if exists() {
		t.Error("an empty restart kept the key")
	}
	if s.Addr() != addr {
		t.Errorf("moved from %s to %s", addr, s.Addr())
	}
}
