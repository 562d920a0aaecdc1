package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/redlock"
	"github.com/podlease/podlease/pkg/redlock/redisnode"
	"github.com/podlease/podlease/pkg/settings"
	"github.com/podlease/podlease/pkg/statusapi"
	"github.com/podlease/podlease/pkg/workload"
)

// sidecar is everything that runs in the process.
type sidecar struct {
	opt *options
	log logr.Logger

	metrics    *statusapi.Metrics
	guard      *lossGuard
	app        *workload.Health // nil when the app cannot be seen
	kubernetes *kubernetes      // nil when nothing is published
	nodes      []*redisnode.Node
	locker     *redlock.Locker
	candidate  *election.Candidate

	status, control net.Listener
}

// serve takes part in the election until ctx ends, and then ends in order.
func serve(ctx context.Context, opt *options, log logr.Logger) error {
	tuneMemory()
	s := &sidecar{opt: opt, log: log, metrics: statusapi.NewMetrics(build()), guard: newLossGuard(opt.lease.StopBudget)}
	for _, step := range []func(context.Context) error{s.listen, s.openNodes, s.makeCandidate} {
		if err := step(ctx); err != nil {
			s.close()
			return err
		}
	}
	s.announce()
	return s.run(ctx)
}

// listen comes first: without its endpoints a sidecar is of no use.
func (s *sidecar) listen(ctx context.Context) (err error) {
	var lc net.ListenConfig
	if s.status, err = lc.Listen(ctx, "tcp", s.opt.listen); err != nil {
		return fmt.Errorf("--listen %q: %w", s.opt.listen, err)
	}
	if s.control, err = statusapi.ListenLoopback(ctx, s.opt.controlListen); err != nil {
		return fmt.Errorf("--control-listen %q: %w", s.opt.controlListen, err)
	}
	return nil
}

func (s *sidecar) openNodes(context.Context) error {
	var nodes []redlock.Node
	for _, cfg := range s.opt.redis.Configs(s.opt.lease) {
		cfg.Log = s.log
		cfg.ClientName = program
		node, err := redisnode.New(cfg)
		if err != nil {
			return &settings.Error{Flag: "redis", Text: "--redis: " + err.Error()}
		}
		s.nodes = append(s.nodes, node)
		nodes = append(nodes, node)
	}
	options := s.opt.lease.Options(s.opt.identity.Name)
	options.NoFencing, options.OnRound = s.opt.fencing != fencingRedis, s.measure
	var err error
	s.locker, err = redlock.New(nodes, options)
	if err != nil {
		return &settings.Error{Text: err.Error()}
	}
	return nil
}

// measure takes in how long a round took.
func (s *sidecar) measure(r redlock.Round) {
	switch {
	case r.Result != redlock.ResultWon:
	case r.Renewal:
		s.metrics.ObserveRenew(r.Took)
	default:
		s.metrics.ObserveAcquire(r.Took)
	}
}

func (s *sidecar) makeCandidate(context.Context) (err error) {
	if s.app, err = newApp(s.opt); err != nil {
		return err
	}
	if s.kubernetes, err = newKubernetes(s.opt, s.log); err != nil {
		return err
	}
	tokens, err := newTokens(s.opt)
	if err != nil {
		return err
	}
	cfg := election.Config{
		Lock: s.opt.lease.Lock, Identity: s.opt.identity.Name, Priority: s.opt.priority,
		NativeSidecar: s.opt.nativeSidecar, DrainTimeout: s.opt.drainTimeout,
		Publisher: s.kubernetes.election(), Tokens: tokens, OnEvent: s.event, OnDemotion: s.metrics.ObserveDemotion, Log: s.log,
	}
	if s.app != nil {
		cfg.Workload = s.app
	}
	if s.candidate, err = election.New(s.locker, cfg); err != nil {
		return &settings.Error{Text: err.Error()}
	}
	s.metrics.Watch(s.candidate, s.kubernetes.label())
	return nil
}

// newApp returns nil when the app cannot be seen.
func newApp(opt *options) (*workload.Health, error) {
	if opt.appHealth == "" {
		return nil, nil
	}
	return workload.NewHealth(workload.HealthConfig{
		URL: opt.appHealth, Interval: opt.appHealthInterval, Failures: opt.appHealthFailures,
	})
}

// event passes on what happened. It must not block.
func (s *sidecar) event(e election.Event) {
	s.kubernetes.record(e)
	s.guard.event(e)
}

func (s *sidecar) announce() {
	for _, warning := range s.opt.warnings {
		s.log.Info("warning", "about", warning)
	}
	if s.opt.lease.Unsafe {
		s.log.Error(nil, "stop budget is negative: two holders will be active at once, never do this outside a test")
	}
	lease := s.opt.lease
	s.log.Info("starting", "version", build().Version, "lock", lease.Lock, "identity", s.opt.identity.Name,
		"nodes", len(s.nodes), "ttl", lease.TTL.String(), "renewInterval", lease.RenewInterval.String(),
		"stopBudget", lease.StopBudget.String(), "nodeTimeout", lease.NodeTimeout.String(), "quarantine", lease.Quarantine.String(),
		"listen", s.status.Addr().String(), "controlListen", s.control.Addr().String(), "publish", s.opt.publish)
}

// run takes part until ctx ends. What answers and publishes goes on until the
// candidate has ended its term.
func (s *sidecar) run(ctx context.Context) error {
	around, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	broken := make(chan error, 2)
	helpers := s.startHelpers(around, broken)
	candidate, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		s.kubernetes.clear(candidate, s.log)
		ended <- s.candidate.Run(candidate)
	}()

	var err error
	select {
	case err = <-ended:
	case err = <-broken: // without its endpoints nobody learns of a loss
		stop()
		err = errors.Join(err, <-ended)
	case message := <-s.lost():
		return s.endLost(ctx, message)
	}
	end()
	helpers.Wait()
	s.close()
	return err
}

// lost is nil, and so never tells, unless a loss is to end the program.
func (s *sidecar) lost() <-chan string {
	if s.opt.onLoss != onLossExit {
		return nil
	}
	return s.guard.lost
}

// endLost leaves at once what may be stuck: the workload is stopped only once this
// process has ended. The label gets a moment.
func (s *sidecar) endLost(ctx context.Context, message string) error {
	if publisher := s.kubernetes.election(); publisher != nil {
		ctx, cancel := context.WithTimeout(ctx, s.guard.grace)
		defer cancel()
		if err := publisher.Sync(ctx); err != nil {
			s.log.V(1).Info("label not published before the end", "cause", err.Error())
		}
	}
	return fmt.Errorf("%w: %s", errLost, message)
}

// startHelpers starts everything that runs beside the candidate, until ctx ends.
func (s *sidecar) startHelpers(ctx context.Context, broken chan<- error) *sync.WaitGroup {
	var helpers sync.WaitGroup
	web := func(ln net.Listener, handler http.Handler) {
		if err := statusapi.Serve(ctx, ln, handler); err != nil {
			broken <- err
		}
	}
	status := statusapi.WithStopBudget(statusapi.NewHandler(s.candidate, s.metrics), s.opt.lease.StopBudget)
	helpers.Go(func() { web(s.status, status) })
	helpers.Go(func() { web(s.control, statusapi.NewControlHandler(s.candidate, s.candidate)) })
	helpers.Go(func() { s.kubernetes.run(ctx, s.candidate) })
	if s.app != nil {
		helpers.Go(func() { s.app.Run(ctx) })
	}
	if podinfo := s.kubernetes.podinfo(s.opt, s.candidate, s.log); podinfo != nil {
		// What is there already counts before the candidate contends.
		if err := podinfo.Read(); err != nil {
			s.log.Error(err, "downward API files cannot be read yet", "dir", s.opt.podinfoDir)
		}
		helpers.Go(func() { podinfo.Run(ctx) })
	}
	if s.opt.onLoss == onLossExit {
		go s.guard.watch(ctx, s.candidate.Leadership) // not waited for: it may be stuck
	}
	return &helpers
}

// close ends the connections. What it closes may never have been made.
func (s *sidecar) close() {
	if s.locker != nil {
		s.locker.Close()
	}
	for _, node := range s.nodes {
		if err := node.Close(); err != nil {
			s.log.Error(err, "connection not closed", "node", node.Name())
		}
	}
	for _, ln := range []net.Listener{s.status, s.control} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}
