package child_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podlease/podlease/test/child"
)

func start(t *testing.T, script string) *child.Process {
	t.Helper()
	p, err := child.Start(exec.Command("/bin/sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestEndIsSeenWithStatusAndOutput(t *testing.T) {
	p := start(t, "echo out; echo err >&2; exit 3")
	<-p.Done()
	if code := p.Ended().ExitCode(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if got := p.Output(); !strings.Contains(got, "out\n") || !strings.Contains(got, "err\n") {
		t.Errorf("output %q", got)
	}
}

func TestKillEndsAFrozenProcess(t *testing.T) {
	p := start(t, "exec sleep 600")
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	if p.Ended() != nil {
		t.Fatal("a frozen process has ended")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if p.Ended() == nil {
		t.Fatal("runs after Kill")
	}
}

// orphanEnv makes the test below start a child, print its pid and wait to be killed.
const orphanEnv = "CHILD_TEST_ORPHAN"

func TestChildEndsWithItsKilledParent(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		p := start(t, "exec sleep 600")
		os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
		select {}
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), orphanEnv+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for end := time.Now().Add(10 * time.Second); running(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d outlived its parent", pid)
		}
	}
}

// running reports whether a process exists and is not waiting to be reaped.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
