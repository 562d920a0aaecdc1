package probe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podlease/podlease/cmd/podlease/probe"
)

// alive reports whether a process is there and no zombie, proc_pid_stat(5).
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestCommandsEndAsTheySay(t *testing.T) {
	run := func(timeout time.Duration, argv ...string) (int, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		var out, errOut strings.Builder
		code, err := probe.RunCommand(ctx, argv, []string{"NAME=shop"}, &out, &errOut)
		return code, out.String() + errOut.String(), err
	}
	if code, out, err := run(20*time.Second, "/bin/sh", "-c", "echo $NAME; echo bad >&2; exit 3"); code != 3 || out != "shop\nbad\n" || err != nil {
		t.Errorf("code %d, %q, %v", code, out, err)
	}
	if code, _, err := run(20*time.Second, "/bin/true"); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	if _, _, err := run(20*time.Second, "/bin/none"); err == nil {
		t.Error("no error for a command that is not there")
	}
	if _, _, err := run(20*time.Second, "/bin/sh", "-c", "kill -9 $$"); err == nil {
		t.Error("no error for a command that was killed")
	}
}

func TestACommandThatTakesTooLongIsKilledWithItsGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		script := "sleep 600 & echo $! >" + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; wait"
		_, err := probe.RunCommand(ctx, []string{"/bin/sh", "-c", script}, os.Environ(), io.Discard, io.Discard)
		ended <- err
	}()
	var pid int
	within(t, "begin", func() bool {
		text, err := os.ReadFile(pidFile)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the end of the time", err)
	}
	within(t, "end what it started", func() bool { return !alive(pid) })
}

// within waits until a condition holds.
func within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not " + what)
		}
	}
}
