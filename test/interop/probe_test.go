package interop_test

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/podlease/podlease/cmd/podlease/probe"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The gRPC library's health service", func() {
	It("is understood by podlease exec probe", func(ctx SpecContext) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		server, service := grpc.NewServer(), health.NewServer()
		healthpb.RegisterHealthServer(server, service)
		go func() { _ = server.Serve(listener) }()
		DeferCleanup(server.Stop)

		check := func(name string) error {
			target, err := probe.Parse("grpc://"+listener.Addr().String()+name, nil)
			Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			return target.Check(ctx)
		}
		service.SetServingStatus("db", healthpb.HealthCheckResponse_SERVING)
		service.SetServingStatus("a/b", healthpb.HealthCheckResponse_NOT_SERVING)
		Expect(check("")).To(Succeed(), "the server as a whole")
		Expect(check("/db")).To(Succeed())
		Expect(check("/a/b")).To(MatchError(ContainSubstring("not serving")))
		Expect(check("/none")).To(MatchError(ContainSubstring(`code "5"`)), "a service that is not there")
		service.Shutdown()
		Expect(check("/db")).To(MatchError(ContainSubstring("not serving")))
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A gRPC server without a health service", func() {
	It("is not healthy", func(ctx SpecContext) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		server := grpc.NewServer()
		go func() { _ = server.Serve(listener) }()
		DeferCleanup(server.Stop)
		target, err := probe.Parse("grpc://"+listener.Addr().String(), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(target.Check(ctx)).To(MatchError(ContainSubstring(`code "12"`)))
	}, SpecTimeout(time.Minute))
})
