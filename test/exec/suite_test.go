// Package exec_test looks at podlease exec from outside: as a process, beside real
// sidecars and on real Redis servers, with commands that do not want to end.
package exec_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/child"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var sidecarProgram, tool sidecartest.Program

func TestExec(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Exec")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(behaviour.Patience)
	SetDefaultEventuallyPollingInterval(2 * time.Millisecond)
	sidecarProgram = sidecartest.Build(GinkgoTB())
	tool = sidecartest.BuildTool(GinkgoTB())
})

// ttl is that of all leases here, and stopBudget a quarter of it.
const (
	ttl        = 3 * time.Second
	stopBudget = 750 * time.Millisecond
)

func nodes(n int) []*redistest.Server {
	GinkgoHelper()
	return redistest.Cluster(GinkgoTB(), n)
}

// sidecar starts one as it is beside podlease exec.
func sidecar(name string, redis []*redistest.Server) *sidecartest.Sidecar {
	GinkgoHelper()
	return sidecarProgram.Start(GinkgoTB(), sidecartest.Options{
		Name: name, Lock: "orders", Redis: redistest.URLs(redis),
		Args: []string{"--ttl=" + ttl.String(), "--native-sidecar=false"},
	})
}

// follow are the flags for following a sidecar.
func follow(s *sidecartest.Sidecar) []string {
	return []string{"--sidecar=http://" + s.Addr, "--sidecar-control=http://" + s.Control}
}

// hold are the flags for holding a lease of one's own.
func hold(name string, redis []*redistest.Server) []string {
	return []string{
		"--lock=orders", "--redis=" + strings.Join(redistest.URLs(redis), ","), "--identity=" + name,
		"--ttl=" + ttl.String(), "--quarantine=0s",
	}
}

func expectActive(ctx context.Context, s *sidecartest.Sidecar) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		doc, err := s.Leadership(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(doc.Active).To(BeTrue(), doc.Reason)
	}).WithContext(ctx).Should(Succeed())
}

// place is where commands under one lock meet.
type place struct{ dir string }

func newPlace() *place {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "podlease-exec-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	return &place{dir}
}

// guarded is a podlease exec with what its command leaves to see.
type guarded struct {
	*child.Process
	alive string // locked while any of the command's processes lives
	said  string // what the command wrote
}

// begin is the beginning of a command that takes a lock which all of its processes
// inherit: while any of them lives nobody else gets it, to the instant.
const begin = `
exec 8>>"$ALIVE"; flock 8
exec 9>>"$SHARED"; flock -n 9 || { echo overlap >>"$SAID"; exit 99; }
echo "began $PODLEASE_FENCING_TOKEN $PODLEASE_TERM" >>"$SAID"
`

// stubborn does not end, nor do those that it starts: one in its group, one in a session
// of its own whose parent has gone.
const stubborn = begin + `
trap "" TERM
(while :; do sleep 1; done) &
(setsid sh -c 'while :; do sleep 1; done' &)
echo ready >>"$SAID"
while :; do sleep 1; done
`

// start runs a script under podlease exec.
func (p *place) start(name, script string, flags ...string) *guarded {
	GinkgoHelper()
	return p.startIn(nil, name, script, flags...)
}

func (p *place) startIn(prefix []string, name, script string, flags ...string) *guarded {
	GinkgoHelper()
	g := &guarded{alive: filepath.Join(p.dir, name+".alive"), said: filepath.Join(p.dir, name+".said")}
	argv := append(append(append([]string{}, prefix...), string(tool), "exec"), flags...)
	cmd := exec.CommandContext(context.Background(), argv[0], append(argv[1:], "--", "/bin/sh", "-c", script)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "ALIVE=" + g.alive, "SHARED=" + filepath.Join(p.dir, "shared"), "SAID=" + g.said}
	var err error
	g.Process, err = child.Start(cmd)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		g.end()
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Printf("--- %s printed:\n%s--- and its command:\n%s", name, g.Output(), g.read())
		}
	})
	return g
}

// end ends it in a way that leaves none of its command's processes behind.
func (g *guarded) end() {
	_ = g.Thaw()
	_ = g.Signal(syscall.SIGQUIT)
	select {
	case <-g.Done():
	case <-time.After(5 * time.Second): // the command does not care, but its end of the lease does
		g.killTree()
	}
}

// killTree kills everything that holds the command's lock.
func (g *guarded) killTree() {
	out, _ := exec.CommandContext(context.Background(), "sh", "-c", `for p in /proc/[0-9]*; do
  for f in $p/fd/8; do [ "$(readlink $f)" = "$1" ] && kill -9 "${p#/proc/}"; done
done`, "sh", g.alive).CombinedOutput()
	_ = g.Kill()
	GinkgoWriter.Printf("%s", out)
}

func (g *guarded) read() string {
	text, err := os.ReadFile(g.said)
	if err != nil {
		return ""
	}
	return string(text)
}

// lives reports whether any of the command's processes lives.
func (g *guarded) lives() bool {
	file, err := os.OpenFile(g.alive, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return false
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// expectReady waits until the command and all it starts run.
func (g *guarded) expectReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(g.read).WithContext(ctx).Should(ContainSubstring("ready"), g.Output())
	Expect(g.lives()).To(BeTrue())
}

// expectCode waits for the end.
func (g *guarded) expectCode(ctx context.Context, code int) {
	GinkgoHelper()
	Eventually(g.Done()).WithContext(ctx).Should(BeClosed(), g.Output())
	Expect(g.Ended().ExitCode()).To(Equal(code), g.Output())
}

// tokens are the fencing tokens of all beginnings.
func (g *guarded) tokens() (tokens []uint64) {
	for line := range strings.Lines(g.read()) {
		var token uint64
		if n, _ := fmt.Sscanf(line, "began %d", &token); n == 1 {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
