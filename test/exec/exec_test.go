package exec_test

import (
	"context"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/podlease/podlease/pkg/boottime"
	"github.com/podlease/podlease/test/behaviour"
	"github.com/podlease/podlease/test/redistest"
	"github.com/podlease/podlease/test/sidecartest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// both are two Pods: each a sidecar with a podlease exec that follows it. The first is
// active, and its command does not want to end.
type both struct {
	*place
	nodes         []*redistest.Server
	first, second *sidecartest.Sidecar
	old, next     *guarded
}

func startBoth(ctx context.Context) *both {
	GinkgoHelper()
	b := &both{place: newPlace(), nodes: nodes(3)}
	b.first = sidecar("first", b.nodes)
	b.old = b.start("old", stubborn, follow(b.first)...)
	b.old.expectReady(ctx)
	b.second = sidecar("second", b.nodes)
	b.next = b.start("next", stubborn, follow(b.second)...)
	Eventually(b.next.Output).WithContext(ctx).Should(ContainSubstring("held by first"))
	return b
}

// expectHandOver waits until the second is active, and finds nothing of the first's
// command alive then.
func (b *both) expectHandOver(ctx context.Context) {
	GinkgoHelper()
	expectActive(ctx, b.second)
	Expect(b.old.lives()).To(BeFalse(), "something of the old command lives while another candidate is active")
	b.next.expectReady(ctx)
	Expect(b.next.tokens()[0]).To(BeNumerically(">", b.old.tokens()[0]))
	Expect(b.next.read()).NotTo(ContainSubstring("overlap"))
}

var _ = Describe("A command that does not want to end, beside a sidecar", func() {
	for name, fault := range map[string]func(context.Context, *both){
		"steps down": func(ctx context.Context, b *both) {
			response, err := b.first.Post(ctx, "/v1/step-down?for=1m")
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Status).To(Equal(http.StatusAccepted), response.Body)
		},
		"gets SIGTERM": func(_ context.Context, b *both) { b.first.Terminate() },
		"is killed":    func(_ context.Context, b *both) { b.first.Crash() },
		"is frozen":    func(_ context.Context, b *both) { Expect(b.first.Freeze()).To(Succeed()) },
	} {
		It("is dead with all it started before another is active, when the sidecar "+name, func(ctx SpecContext) {
			b := startBoth(ctx)
			fault(ctx, b)
			b.expectHandOver(ctx)
		}, SpecTimeout(behaviour.Patience))
	}

	It("is dead with all it started before the lease runs out, when there is no quorum", func(ctx SpecContext) {
		b := startBoth(ctx)
		for _, n := range b.nodes[:2] {
			n.Freeze()
		}
		frozen := boottime.Now() // no renewal that is sent later can count
		Eventually(b.old.lives).WithContext(ctx).Should(BeFalse())
		Expect(boottime.Now()).To(BeNumerically("<", frozen+ttl), "by then it could be another's")
		for _, n := range b.nodes[:2] {
			n.Thaw()
		}
		Eventually(func() int { return len(b.old.tokens()) + len(b.next.tokens()) }).WithContext(ctx).Should(Equal(2), "nobody went on")
		Expect(b.old.read() + b.next.read()).NotTo(ContainSubstring("overlap"))
	}, SpecTimeout(behaviour.Patience))

	It("is killed as soon as podlease exec runs on, having been stopped for longer than the lease", func(ctx SpecContext) {
		b := startBoth(ctx)
		Expect(b.old.Freeze()).To(Succeed())
		b.first.Crash()
		expectActive(ctx, b.second)
		Expect(b.old.lives()).To(BeTrue()) // nobody was there to end it: that is what fencing tokens are for
		Expect(b.old.Thaw()).To(Succeed())
		Eventually(b.old.lives).WithContext(ctx).Should(BeFalse())
		Expect(b.old.tokens()).To(HaveLen(1))
	}, SpecTimeout(behaviour.Patience))
})

var _ = Describe("A command beside a sidecar", func() {
	It("need not be waited for when it ends at once", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(3)
		first := sidecar("first", redis)
		p.start("old", begin+`trap "exit 0" TERM; echo ready >>"$SAID"; while :; do sleep 0.01; done`, follow(first)...).expectReady(ctx)
		second := sidecar("second", redis)
		asked := boottime.Now()
		_, err := first.Post(ctx, "/v1/step-down?for=1m")
		Expect(err).NotTo(HaveOccurred())
		expectActive(ctx, second)
		took := boottime.Now() - asked
		AddReportEntry("hand-over from step-down to active, with a command to stop", took)
		Expect(took).To(BeNumerically("<", stopBudget), "the sidecar was not told that the command has ended")
	}, SpecTimeout(behaviour.Patience))

	It("hands over when it ends by itself, and its code is passed on", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(3)
		first := sidecar("first", redis)
		g := p.start("old", begin+`echo ready >>"$SAID"; while :; do sleep 0.01; done`, follow(first)...)
		g.expectReady(ctx)
		second := sidecar("second", redis)
		Eventually(func() string { doc, _ := second.Leadership(ctx); return doc.Reason }).WithContext(ctx).Should(Equal("held by first"))
		ended := boottime.Now()
		Expect(g.Signal(syscall.SIGUSR1)).To(Succeed()) // which it does not expect
		g.expectCode(ctx, 128+int(syscall.SIGUSR1))
		expectActive(ctx, second)
		AddReportEntry("hand-over from the command's end to active", boottime.Now()-ended)
		Expect(boottime.Now()-ended).To(BeNumerically("<", stopBudget), "the sidecar was not told that the command has ended")
	}, SpecTimeout(behaviour.Patience))

	It("is started again in place when the sidecar is active again", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(1)
		s := sidecar("only", redis)
		g := p.start("old", stubborn, follow(s)...)
		g.expectReady(ctx)
		_, err := s.Post(ctx, "/v1/step-down?for=1s")
		Expect(err).NotTo(HaveOccurred())
		Eventually(g.tokens).WithContext(ctx).Should(HaveLen(2))
		Expect(g.tokens()[1]).To(BeNumerically(">", g.tokens()[0]))
		Expect(g.read()).NotTo(ContainSubstring("overlap"))
	}, SpecTimeout(behaviour.Patience))

	It("starts once the sidecar is there", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(1)
		s := sidecar("only", redis)
		s.Crash()
		g := p.start("old", stubborn, follow(s)...)
		Eventually(g.Output).WithContext(ctx).Should(ContainSubstring("no answer from the sidecar"))
		sidecarProgram.Start(GinkgoTB(), sidecartest.Options{
			Name: "only", Lock: "orders", Redis: redistest.URLs(redis), Addr: s.Addr, Control: s.Control, Args: []string{"--ttl=" + ttl.String()},
		})
		g.expectReady(ctx)
	}, SpecTimeout(behaviour.Patience))
})

var _ = Describe("A command under a lease of its own", func() {
	It("runs under one of two at a time, and the other goes on when one is killed", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(3)
		// Without anything it started: that is not podlease exec's to end when it is killed.
		script := begin + `echo ready >>"$SAID"; exec sleep 600`
		old := p.start("old", script, hold("old", redis)...)
		old.expectReady(ctx)
		next := p.start("next", script, hold("next", redis)...)
		Eventually(next.Output).WithContext(ctx).Should(ContainSubstring("held by old"))
		Expect(old.Output()+next.Output()).NotTo(ContainSubstring("no quorum"), "all nodes answer")
		Expect(old.Kill()).To(Succeed())
		Eventually(old.lives).WithContext(ctx).Should(BeFalse(), "it outlived podlease exec")
		next.expectReady(ctx)
		Expect(next.tokens()[0]).To(BeNumerically(">", old.tokens()[0]))
		Expect(next.read()).NotTo(ContainSubstring("overlap"))
	}, SpecTimeout(behaviour.Patience))

	It("may take longer than a TTL to end after SIGTERM, and keeps the lease until it has", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(3)
		old := p.start("old", begin+`trap "sleep 4; echo done >>\"$SAID\"; exit 5" TERM; echo ready >>"$SAID"; while :; do sleep 0.05; done`, hold("old", redis)...)
		old.expectReady(ctx)
		next := p.start("next", begin+`echo ready >>"$SAID"`, hold("next", redis)...)
		Eventually(next.Output).WithContext(ctx).Should(ContainSubstring("held by old"))
		Expect(old.Signal(syscall.SIGTERM)).To(Succeed())
		next.expectCode(ctx, 0)
		Expect(next.read()).NotTo(ContainSubstring("overlap"))
		Expect(old.read()).To(ContainSubstring("done"))
		old.expectCode(ctx, 5)
	}, SpecTimeout(behaviour.Patience))

	It("is dead with all it started before the lease runs out, when there is no quorum, and starts again", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(3)
		g := p.start("old", stubborn, hold("old", redis)...)
		g.expectReady(ctx)
		for _, n := range redis[:2] {
			n.Freeze()
		}
		frozen := boottime.Now()
		Eventually(g.lives).WithContext(ctx).Should(BeFalse())
		Expect(boottime.Now()).To(BeNumerically("<", frozen+ttl), "by then it could be another's")
		for _, n := range redis[:2] {
			n.Thaw()
		}
		Eventually(g.tokens).WithContext(ctx).Should(HaveLen(2))
		Expect(g.tokens()[1]).To(BeNumerically(">", g.tokens()[0]))
	}, SpecTimeout(behaviour.Patience))

	It("ends with the lease for good with --on-loss=exit", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(1)
		g := p.start("old", stubborn, append(hold("old", redis), "--on-loss=exit")...)
		g.expectReady(ctx)
		redis[0].Freeze()
		g.expectCode(ctx, 42)
		Expect(g.lives()).To(BeFalse())
	}, SpecTimeout(behaviour.Patience))
})

var _ = Describe("podlease exec", func() {
	run := func(ctx context.Context, flags []string, command ...string) (int, string, string) {
		GinkgoHelper()
		args := append(append([]string{"exec", "--log-level=error"}, flags...), "--")
		code, stdout, stderr, err := tool.Run(ctx, []string{"PODLEASE_TERM=stale", "NAME=shop"}, append(args, command...)...)
		Expect(err).NotTo(HaveOccurred())
		return code, stdout, stderr
	}

	It("ends as its command does, and as a shell where that cannot be started", func(ctx SpecContext) {
		redis := nodes(1)
		for code, script := range map[int]string{0: "exit 0", 7: "exit 7", 137: "kill -9 $$", 143: "kill -TERM $$"} {
			got, _, stderr := run(ctx, hold("me", redis), "/bin/sh", "-c", script)
			Expect(got).To(Equal(code), script+": "+stderr)
		}
		code, _, stderr := run(ctx, hold("me", redis), "no-such-program")
		Expect(code).To(Equal(127))
		Expect(stderr).To(ContainSubstring("no-such-program"))
		code, _, _ = run(ctx, hold("me", redis), "/etc/passwd")
		Expect(code).To(Equal(126))
	}, SpecTimeout(behaviour.Patience))

	It("tells its command of the term, and the token that the next one has is greater", func(ctx SpecContext) {
		redis := nodes(1)
		_, first, _ := run(ctx, hold("me", redis), "/bin/sh", "-c", "echo $NAME $PODLEASE_TERM; echo $PODLEASE_FENCING_TOKEN >&2")
		Expect(first).To(MatchRegexp(`^shop [0-9a-f]{16,}\n$`))
		_, _, token := run(ctx, hold("me", redis), "/bin/sh", "-c", "echo $PODLEASE_FENCING_TOKEN >&2")
		Expect(token).To(MatchRegexp(`^[0-9]+\n$`))
		_, none, _ := run(ctx, append(hold("me", redis), "--fencing=off"), "/bin/sh", "-c", "echo token ${PODLEASE_FENCING_TOKEN-none}")
		Expect(none).To(Equal("token none\n"))
	}, SpecTimeout(behaviour.Patience))

	It("gives up with code 75 when the lock is held, and with 1 when no sidecar ever answers", func(ctx SpecContext) {
		p, redis := newPlace(), nodes(3)
		p.start("old", stubborn, hold("old", redis)...).expectReady(ctx)
		for _, wait := range []string{"--wait=0s", "--wait=500ms"} {
			code, stdout, stderr := run(ctx, append(hold("next", redis), wait), "echo", "ran")
			Expect(code).To(Equal(75), stderr)
			Expect(stdout).To(BeEmpty())
			Expect(stderr).To(And(ContainSubstring("held by old"), HaveSuffix("\n")))
		}
		s := sidecar("beside", redis)
		code, _, stderr := run(ctx, append(follow(s), "--wait=0s"), "echo", "ran")
		Expect(code).To(Equal(75), stderr)
		s.Crash()
		code, _, stderr = run(ctx, append(follow(s), "--wait=100ms"), "echo", "ran")
		Expect(code).To(Equal(1), stderr)
		Expect(stderr).To(ContainSubstring("no answer from the sidecar at http://" + s.Addr))
	}, SpecTimeout(behaviour.Patience))

	It("takes the lease at once with --wait=0s when it is free", func(ctx SpecContext) {
		code, stdout, stderr := run(ctx, append(hold("me", nodes(3)), "--wait=0s"), "echo", "ran")
		Expect(code).To(BeZero(), stderr)
		Expect(stdout).To(Equal("ran\n"))
	}, SpecTimeout(behaviour.Patience))

	It("ends with 3 when the nodes can never make a quorum", func(ctx SpecContext) {
		primary := nodes(1)[0]
		replica := redistest.Start(GinkgoTB(), redistest.WithReplicaOf(primary))
		code, _, stderr := run(ctx, hold("me", []*redistest.Server{replica}), "echo", "ran")
		Expect(code).To(Equal(3), stderr)
	}, SpecTimeout(behaviour.Patience))

	It("leaves no zombies as a container's first process, and ends what was left to it", func(ctx SpecContext) {
		alone := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
		if exec.CommandContext(ctx, alone[0], append(alone[1:], "true")...).Run() != nil {
			alone = append(alone, "--user", "--map-root-user")
		}
		Expect(exec.CommandContext(ctx, alone[0], append(alone[1:], "true")...).Run()).To(Succeed(), "PID namespaces cannot be made here")
		p := newPlace()
		script := begin + `
		cat /proc/1/comm >>"$SAID"
		for i in 1 2 3; do (sleep 0.05 &); done
		(setsid sleep 600 &)
		sleep 0.5
		grep -l '^State:.Z' /proc/[0-9]*/status >>"$SAID"
		echo ready >>"$SAID"; exit 4`
		redis := redistest.Start(GinkgoTB(), redistest.WithUnixSocket()) // reached from whatever namespace
		g := p.startIn(alone, "first", script, hold("me", []*redistest.Server{redis})...)
		g.expectCode(ctx, 4)
		Expect(g.read()).To(MatchRegexp("^began [0-9]+ [0-9a-f]+\npodlease\nready\n$"))
		Expect(g.lives()).To(BeFalse(), "what it left behind lives")
	}, SpecTimeout(behaviour.Patience))
})

var _ = Describe("podlease exec probe", func() {
	It("succeeds while no command runs, and else does what it is told", func(ctx SpecContext) {
		// A mount namespace is what tells one container of a Pod from another.
		probe := func(prefix ...string) int {
			GinkgoHelper()
			argv := append(append([]string{}, prefix...), string(tool), "exec", "probe", "--timeout=10s", "--", "/bin/sh", "-c", "exit 9")
			err := exec.CommandContext(ctx, argv[0], argv[1:]...).Run()
			if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // it is exec's own
				return exit.ExitCode()
			}
			Expect(err).NotTo(HaveOccurred())
			return 0
		}
		p, redis := newPlace(), nodes(1)
		s := sidecar("only", redis)
		Expect(probe()).To(BeZero())
		g := p.start("old", stubborn, follow(s)...)
		g.expectReady(ctx)
		Expect(probe()).To(Equal(9))
		other := []string{"unshare", "--mount"}
		if exec.CommandContext(ctx, other[0], append(other[1:], "true")...).Run() != nil {
			other = append(other, "--user", "--map-root-user")
		}
		Expect(probe(other...)).To(BeZero(), "a container was taken for another of the same Pod")
		_, err := s.Post(ctx, "/v1/pause")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() int { return probe() }).WithContext(ctx).WithPolling(50 * time.Millisecond).Should(BeZero())
		_, err = s.Post(ctx, "/v1/resume")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() int { return probe() }).WithContext(ctx).WithPolling(50 * time.Millisecond).Should(Equal(9))
		Expect(g.Signal(syscall.SIGKILL)).To(Succeed())
		Eventually(func() int { return probe() }).WithContext(ctx).WithPolling(50 * time.Millisecond).Should(BeZero())
		g.killTree() // what the command started outlives it here; in a container it does not
	}, SpecTimeout(behaviour.Patience))
})
