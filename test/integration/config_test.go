package integration_test

import (
	"context"
	"strings"

	"github.com/podlease/podlease/test/behaviour"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// expectUsageError runs the sidecar, which is to end with code 2 and one line that
// says all of says.
func expectUsageError(ctx context.Context, env []string, flag string, args ...string) {
	GinkgoHelper()
	code, stdout, stderr, err := program.Run(ctx, env, args...)
	Expect(err).NotTo(HaveOccurred())
	line := stdout + stderr
	Expect(code).To(Equal(2), line)
	Expect(strings.Count(line, "\n")).To(Equal(1), "want one line, got: %s", line)
	Expect(line).To(ContainSubstring(flag))
}

var _ = Describe("Configuration", func() {
	DescribeTable("a wrong value ends it with code 2 and one line that names the flag and the value",
		func(ctx SpecContext, flag, value string, more ...string) {
			args := []string{"--lock=orders", "--redis=127.0.0.1:1", "--publish=none", "--listen=127.0.0.1:0", "--control-listen=127.0.0.1:0"}
			args = append(append(args, more...), flag+"="+value)
			code, stdout, stderr, err := program.Run(ctx, nil, args...)
			Expect(err).NotTo(HaveOccurred())
			line := stdout + stderr
			Expect(code).To(Equal(2), line)
			Expect(strings.Count(line, "\n")).To(Equal(1), "want one line, got: %s", line)
			Expect(line).To(And(ContainSubstring(flag), ContainSubstring(value)))
		},
		Entry(nil, SpecTimeout(behaviour.Patience), "--lock", "a//b"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--lock", "/a"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--lock", strings.Repeat("x", 201)),
		Entry(nil, SpecTimeout(behaviour.Patience), "--lock", "a b", "--bare-key"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--redis", "http://127.0.0.1:6379"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--redis", "127.0.0.1:notaport"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--bare-key", "maybe"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--ttl", "soon"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--ttl", "499ms"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--ttl", "31s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--renew-interval", "9s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--stop-budget", "9s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--node-timeout", "2s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--quarantine", "1s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--allow-unfit-nodes", "perhaps"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--listen", "nowhere"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--control-listen", "0.0.0.0:8485"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--publish", "everywhere"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--fencing", "electric"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--app-health", "http://example.com/health"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--app-health-failures", "0"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--app-health-interval", "-1s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--on-loss", "panic"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--priority", "101"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--native-sidecar", "x"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--drain-timeout", "-1s"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--password-file", "/nonexistent/password"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--username-file", "/nonexistent/user"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--tls-ca-file", "/nonexistent/ca.crt"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--log-level", "loud"),
		Entry(nil, SpecTimeout(behaviour.Patience), "--log-format", "xml"),
	)

	It("names a missing --lock and a missing --redis", func(ctx SpecContext) {
		expectUsageError(ctx, nil, "--lock", "--redis=127.0.0.1:1")
		expectUsageError(ctx, nil, "--redis", "--lock=orders")
	}, SpecTimeout(behaviour.Patience))

	It("names an unknown flag", func(ctx SpecContext) {
		expectUsageError(ctx, nil, "--lokc", "--lokc=orders")
	}, SpecTimeout(behaviour.Patience))

	It("takes flags from the environment, and names the variable of a wrong one", func(ctx SpecContext) {
		env := []string{"PODLEASE_LOCK=orders", "PODLEASE_REDIS=127.0.0.1:1", "PODLEASE_PUBLISH=none"}
		expectUsageError(ctx, append(env, "PODLEASE_TTL=soon"), "PODLEASE_TTL")
		// A flag wins, and what no flag is called is somebody else's.
		expectUsageError(ctx, append(env, "PODLEASE_TTL=soon", "PODLEASE_PORT=tcp://10.0.0.1:80"), "--priority", "--ttl=3s", "--priority=1000")
	}, SpecTimeout(behaviour.Patience))

	It("tells its flags and its version", func(ctx SpecContext) {
		code, stdout, _, err := program.Run(ctx, nil, "--help")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero())
		Expect(stdout).To(And(ContainSubstring("--stop-budget"), ContainSubstring("PODLEASE_STOP_BUDGET"), Not(ContainSubstring("UNSAFE"))))
		code, stdout, _, err = program.Run(ctx, nil, "--version")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero())
		Expect(strings.TrimSpace(stdout)).NotTo(BeEmpty())
	}, SpecTimeout(behaviour.Patience))
})
