package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/controllers"
	"github.com/podlease/podlease/pkg/injection"
	"github.com/podlease/podlease/pkg/webhook"
	"github.com/podlease/podlease/pkg/webhook/certificates"
)

// leaseName is the Lease by which replicas agree on who runs the controllers.
const leaseName = "podlease-controller"

// app is the wiring of one process.
type app struct {
	*options
	log        logr.Logger
	rest       *rest.Config
	scheme     *runtime.Scheme
	manager    manager.Manager
	live       client.Client
	keeper     *certificates.Keeper
	namespaces *controllers.Namespaces
	caches     map[string]cache.Cache
	draining   atomic.Bool
}

func serve(ctx context.Context, opt *options, logger logr.Logger) error {
	log.SetLogger(logger)
	klog.SetLogger(logger)
	a := &app{options: opt, log: logger, scheme: newScheme()}
	if err := a.connect(); err != nil {
		return err
	}
	for _, step := range []func() error{a.newManager, a.addNamespaces, a.addWebhooks, a.addControllers, a.addHealth} {
		if err := step(); err != nil {
			return err
		}
	}
	logger.Info("starting", "version", buildVersion(), "quorums", len(opt.config.Quorums))
	return a.run(ctx)
}

// run goes on serving for a while after the end is asked for: API servers learn of it
// only when the endpoint is gone (open-policy-agent/gatekeeper#3776).
func (a *app) run(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		select {
		case <-serving.Done():
			return
		case <-ctx.Done():
		}
		a.draining.Store(true)
		a.log.Info("draining", "for", a.drain.String())
		select {
		case <-serving.Done():
		case <-time.After(a.drain):
			stop()
		}
	}()
	return a.manager.Start(serving)
}

// newScheme has the kinds that are used, and no others: each costs memory.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, rbacv1.AddToScheme,
		admissionregistrationv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name in the program itself
		}
	}
	return s
}

func (a *app) connect() error {
	var err error
	if a.kubeconfig != "" {
		a.rest, err = clientcmd.BuildConfigFromFlags("", a.kubeconfig)
	} else {
		a.rest, err = rest.InClusterConfig()
	}
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	a.rest.UserAgent = program + "/" + buildVersion()
	a.rest.QPS, a.rest.Burst = 100, 200
	a.live, err = client.New(a.rest, client.Options{Scheme: a.scheme})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return nil
}

func (a *app) newManager() error {
	port, host, err := splitListen(a.webhookListen)
	if err != nil {
		return err
	}
	a.keeper = a.newKeeper()
	drain := 30 * time.Second
	a.manager, err = ctrl.NewManager(a.rest, ctrl.Options{
		Scheme:                        a.scheme,
		Logger:                        a.log,
		Cache:                         a.cacheOptions(),
		Metrics:                       server.Options{BindAddress: a.metricsListen},
		HealthProbeBindAddress:        a.healthListen,
		LivenessEndpointName:          "/livez",
		LeaderElection:                a.leaderElection,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       a.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &drain,
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
			Host: host, Port: port,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.MinVersion = tls.VersionTLS13
				c.GetCertificate = a.keeper.GetCertificate
			}},
		}),
	})
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return a.manager.Add(a.keeper)
}

func splitListen(address string) (port int, host string, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, "", fmt.Errorf("address %q: %w", address, err)
	}
	port, err = strconv.Atoi(text)
	return port, host, err
}

// cacheOptions keep the caches small: injected Pods, cut down; the own Secrets, without
// Helm's; and the RoleBindings of one name.
func (a *app) cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Label:     labels.SelectorFromSet(labels.Set{annotations.Injected: annotations.True}),
				Transform: controllers.TrimPod,
			},
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{a.namespace: {}},
				Field:      fields.OneTermNotEqualSelector("type", "helm.sh/release.v1"),
			},
			&rbacv1.RoleBinding{}: {Field: fields.OneTermEqualSelector("metadata.name", controllers.SidecarRole)},
		},
	}
}

func (a *app) newKeeper() *certificates.Keeper {
	w := a.config.Webhook
	k := &certificates.Keeper{
		Client:        a.live,
		Secret:        types.NamespacedName{Namespace: a.namespace, Name: w.SecretName},
		External:      w.External,
		Names:         w.DNSNames,
		Configuration: w.Configuration,
		Lifetimes:     a.lifetimes,
		LookEvery:     a.lookEvery,
		Labels:        map[string]string{"app.kubernetes.io/managed-by": program, "app.kubernetes.io/part-of": "podlease"},
		Log:           a.log.WithName("certificates"),
	}
	k.Register(metrics.Registry)
	return k
}

func (a *app) addNamespaces() error {
	a.caches = map[string]cache.Cache{}
	a.namespaces = &controllers.Namespaces{
		Client: a.manager.GetClient(), Live: a.live, ManageRBAC: a.config.ManageRBAC,
		Secrets: map[string]controllers.QuorumSecret{},
		Log:     a.log.WithName("namespaces"),
	}
	for name, q := range a.config.Quorums {
		if !q.hasSecret() {
			continue
		}
		c, err := a.secretCache(injection.SecretName(name))
		if err != nil {
			return err
		}
		a.caches[name] = c
		a.namespaces.Secrets[name] = controllers.QuorumSecret{
			Source: types.NamespacedName{Namespace: a.namespace, Name: q.SecretName}, Copy: q.CopySecret, Copies: c,
		}
	}
	return nil
}

// secretCache is over the Secrets of one name, in all namespaces: the controller may
// read no others.
func (a *app) secretCache(name string) (cache.Cache, error) {
	c, err := cache.New(a.rest, cache.Options{
		Scheme: a.scheme, Mapper: a.manager.GetRESTMapper(), HTTPClient: a.manager.GetHTTPClient(),
		DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", name),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("cache of Secrets %s: %w", name, err)
	}
	return c, a.manager.Add(everywhere{c})
}

// everywhere runs a cache in all replicas: all serve webhooks.
type everywhere struct{ cache.Cache }

func (everywhere) NeedLeaderElection() bool { return false }

func (a *app) addWebhooks() error {
	restart, err := a.knowsRestartAllContainers()
	if err != nil {
		return err
	}
	settings, err := a.config.settings(restart)
	if err != nil {
		return err
	}
	hooks := a.manager.GetWebhookServer()
	hooks.Register(webhook.InjectPath, &admission.Webhook{Handler: &webhook.Pods{
		Settings: settings, Namespaces: a.namespaces, Live: a.live,
		Metrics: webhook.NewMetrics(metrics.Registry), Log: a.log.WithName("pods"),
	}})
	hooks.Register(webhook.CheckPath, &admission.Webhook{Handler: &webhook.Workloads{Settings: settings, Log: a.log.WithName("workloads")}})
	return nil
}

// knowsRestartAllContainers is true from Kubernetes 1.36 on.
func (a *app) knowsRestartAllContainers() (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(a.rest)
	if err != nil {
		return false, fmt.Errorf("reach the API server: %w", err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("ask the API server for its version: %w", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err != nil {
		return false, fmt.Errorf("the API server's minor version %q is no number", v.Minor)
	}
	return v.Major == "1" && minor >= 36, nil
}

func (a *app) addControllers() error {
	c, role := a.manager.GetClient(), a.config.roleLabel()
	copies := &controllers.Copies{Namespaces: a.namespaces, Caches: a.caches}
	janitor := &controllers.Janitor{Client: c, RoleLabel: role, Log: a.log.WithName("janitor")}
	handover := &controllers.Handover{Client: c, Live: a.live, RoleLabel: role, Log: a.log.WithName("handover")}
	events := a.manager.GetEventRecorder(program)
	missing := &controllers.Missing{Cached: c, Live: a.live, Events: events, Log: a.log.WithName("missing")}
	missing.Register(metrics.Registry)
	lists := &controllers.NodeLists{Cached: c, Quorums: a.config.nodeLists(), Events: events, Log: a.log.WithName("node-lists")}
	lists.Register(metrics.Registry)
	return errors.Join(
		controllers.IndexPods(context.Background(), a.manager.GetFieldIndexer()),
		copies.SetupWithManager(a.manager),
		janitor.SetupWithManager(a.manager, metrics.Registry),
		handover.SetupWithManager(a.manager),
		a.manager.Add(missing),
		a.manager.Add(lists),
		a.manager.Add(&controllers.Passwords{Client: a.live, Quorums: a.config.deployed(a.namespace), Log: a.log.WithName("passwords")}),
	)
}

func (a *app) addHealth() error {
	ready := map[string]healthz.Checker{
		"draining":    a.notDraining,
		"certificate": a.keeper.Ready,
		"webhook":     a.manager.GetWebhookServer().StartedChecker(),
		"caches":      a.cachesSynced,
	}
	errs := []error{a.manager.AddHealthzCheck("ping", healthz.Ping)}
	for name, check := range ready {
		errs = append(errs, a.manager.AddReadyzCheck(name, check))
	}
	return errors.Join(errs...)
}

func (a *app) notDraining(*http.Request) error {
	if a.draining.Load() {
		return errors.New("draining")
	}
	return nil
}

// cachesSynced makes sure that the first admission does not wait for a cache.
func (a *app) cachesSynced(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if _, err := a.manager.GetCache().GetInformer(ctx, &rbacv1.RoleBinding{}); err != nil {
		return err
	}
	if _, err := a.manager.GetCache().GetInformer(ctx, &corev1.Secret{}); err != nil {
		return err
	}
	for _, c := range a.caches {
		if _, err := c.GetInformer(ctx, &corev1.Secret{}); err != nil {
			return err
		}
	}
	return nil
}
