package interop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// foreign is another Redlock client. It tries once.
type foreign interface {
	lock(ctx context.Context, ttl time.Duration) bool
	unlock(ctx context.Context) bool
}

const lockName = "shared:lock"

var _ = DescribeTable("Another Redlock client on the same nodes", func(ctx SpecContext, client func(context.Context, []*redistest.Server) foreign) {
	servers := redistest.Cluster(GinkgoTB(), 3)
	other := client(ctx, servers)

	By("keeping us out while it holds the lock")
	Expect(other.lock(ctx, time.Minute)).To(BeTrue())
	ours := program.Start(GinkgoTB(), sidecartest.Options{
		Name: "ours", Lock: lockName, Redis: redistest.URLs(servers), Args: []string{"--ttl=1s", "--bare-key"},
	})
	expect(ctx, ours, "standby", "held by another Redlock client")
	Consistently(func() string { return doc(ctx, ours).Role }).WithContext(ctx).WithTimeout(1500 * time.Millisecond).Should(Equal("standby"))
	Expect(other.unlock(ctx)).To(BeTrue(), "its lock was touched")

	By("being kept out while we hold it")
	expect(ctx, ours, "active", "")
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); { // longer than a TTL
		Expect(other.lock(ctx, time.Minute)).To(BeFalse())
	}
	Expect(doc(ctx, ours).Role).To(Equal("active"))

	By("getting it when we give it up, and keeping us out until it runs out")
	ours.Terminate()
	Expect(ours.ExitCode(ctx)).To(BeZero())
	Expect(other.lock(ctx, time.Second)).To(BeTrue())
	locked := time.Now()
	next := program.Start(GinkgoTB(), sidecartest.Options{
		Name: "next", Lock: lockName, Redis: redistest.URLs(servers), Args: []string{"--ttl=1s", "--bare-key"},
	})
	expect(ctx, next, "active", "")
	Expect(time.Since(locked)).To(BeNumerically(">=", time.Second-10*time.Millisecond), "our lease began before the other's ended")
	Expect(other.unlock(ctx)).To(BeFalse(), "the other released our lease")
	expect(ctx, next, "active", "")
},
	Entry("redsync", SpecTimeout(behaviour.Patience), newRedsync),
	Entry("node-redlock", SpecTimeout(2*behaviour.Patience), newNodeRedlock),
)

func doc(ctx context.Context, c *sidecartest.Sidecar) sidecartest.Leadership {
	GinkgoHelper()
	d, err := c.Leadership(ctx)
	Expect(err).NotTo(HaveOccurred())
	return d
}

func expect(ctx context.Context, c *sidecartest.Sidecar, role, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		d, err := c.Leadership(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(d.Role).To(Equal(role))
		g.Expect(d.Reason).To(Equal(reason))
	}).WithContext(ctx).Should(Succeed())
}

// goRedsync is github.com/go-redsync/redsync.
type goRedsync struct {
	sync *redsync.Redsync
	held *redsync.Mutex
}

func newRedsync(_ context.Context, servers []*redistest.Server) foreign {
	var pools []redsyncredis.Pool
	for _, s := range servers {
		pools = append(pools, goredis.NewPool(s.Client()))
	}
	return &goRedsync{sync: redsync.New(pools...)}
}

func (r *goRedsync) lock(ctx context.Context, ttl time.Duration) bool {
	GinkgoHelper()
	mutex := r.sync.NewMutex(lockName, redsync.WithExpiry(ttl))
	err := mutex.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	r.held = mutex
	return true
}

func (r *goRedsync) unlock(ctx context.Context) bool {
	ok, err := r.held.UnlockContext(ctx)
	return ok && err == nil
}

// nodeRedlock is a process of github.com/mike-marcacci/node-redlock.
type nodeRedlock struct {
	in  io.Writer
	out *bufio.Scanner
}

func newNodeRedlock(ctx context.Context, servers []*redistest.Server) foreign {
	GinkgoHelper()
	installNodeRedlock(ctx)
	args := []string{"lock.js"}
	for _, s := range servers {
		args = append(args, s.Addr())
	}
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir, cmd.Stderr = "node-redlock", GinkgoWriter
	in, err := cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	n := &nodeRedlock{in: in, out: bufio.NewScanner(out)}
	Expect(n.read()).To(Equal("ready"))
	return n
}

func installNodeRedlock(ctx context.Context) {
	GinkgoHelper()
	if _, err := exec.LookPath("npm"); err != nil {
		Skip("no Node.js here")
	}
	if _, err := os.Stat(filepath.Join("node-redlock", "node_modules")); err == nil {
		return
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts")
	npm.Dir = "node-redlock"
	out, err := npm.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

func (n *nodeRedlock) ask(format string, args ...any) string {
	GinkgoHelper()
	_, err := fmt.Fprintf(n.in, format+"\n", args...)
	Expect(err).NotTo(HaveOccurred())
	return n.read()
}

func (n *nodeRedlock) read() string {
	GinkgoHelper()
	Expect(n.out.Scan()).To(BeTrue(), "node-redlock ended: %v", n.out.Err())
	return strings.TrimSpace(n.out.Text())
}

func (n *nodeRedlock) lock(_ context.Context, ttl time.Duration) bool {
	GinkgoHelper()
	answer := n.ask("lock %s %d", lockName, ttl.Milliseconds())
	Expect(answer).To(BeElementOf("locked", "refused"))
	return answer == "locked"
}

func (n *nodeRedlock) unlock(context.Context) bool {
	GinkgoHelper()
	answer := n.ask("unlock")
	Expect(answer).To(BeElementOf("unlocked", "gone"))
	return answer == "unlocked"
}
