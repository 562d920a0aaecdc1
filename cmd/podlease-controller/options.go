package main

import (
	"net"
	"time"

	"github.com/podlease/podlease/pkg/settings"
	"github.com/podlease/podlease/pkg/webhook/certificates"
)

// options are all that the controller is told.
type options struct {
	logging settings.Logging

	configFile     string
	config         config
	kubeconfig     string
	namespace      string
	webhookListen  string
	healthListen   string
	metricsListen  string
	leaderElection bool
	drain          time.Duration
	lifetimes      certificates.Lifetimes
	lookEvery      time.Duration
}

const (
	addressAllowed  = "host:port or :port, with a port from 0 to 65535"
	lifetimeAllowed = "a duration of at least 1m, such as 2160h"
)

func newOptions() (*options, *settings.Flags) {
	o, f := &options{}, settings.NewFlags(program)
	f.String(&o.configFile, "", settings.Flag{Name: "config", Usage: "what is injected, and the Redis quorums, as YAML", Default: "none, it is required", Allowed: "a file that can be read"})
	f.String(&o.namespace, "", settings.Flag{Name: "namespace", Usage: "the controller's own namespace", Default: "$POD_NAMESPACE", Allowed: "a namespace"})
	f.String(&o.kubeconfig, "", settings.Flag{Name: "kubeconfig", Usage: "how the API server is reached from outside a Pod", Default: "in-cluster", Allowed: "a file that can be read"})
	f.String(&o.webhookListen, ":9443", settings.Flag{Name: "webhook-listen", Usage: "where the API server reaches the webhooks, with TLS", Allowed: addressAllowed})
	f.String(&o.healthListen, ":8081", settings.Flag{Name: "health-listen", Usage: "where /livez and /readyz are", Allowed: addressAllowed})
	f.String(&o.metricsListen, ":8080", settings.Flag{Name: "metrics-listen", Usage: "where /metrics is", Allowed: addressAllowed})
	f.Bool(&o.leaderElection, true, settings.Flag{Name: "leader-election", Usage: "let only one of several replicas run the controllers; all serve the webhooks"})
	f.Duration(&o.drain, 10*time.Second, settings.Flag{Name: "drain", Usage: "how long to go on serving after SIGTERM, until no API server sends any more", Allowed: "a duration from 0s to 5m"})
	f.Duration(&o.lifetimes.Authority, certificates.DefaultLifetimes.Authority, settings.Flag{Name: "authority-lifetime", Usage: "how long an authority that podlease makes itself is valid; renewed when two thirds are over", Allowed: lifetimeAllowed})
	f.Duration(&o.lifetimes.Certificate, certificates.DefaultLifetimes.Certificate, settings.Flag{Name: "certificate-lifetime", Usage: "the same of the webhook's certificate", Allowed: lifetimeAllowed})
	f.Duration(&o.lifetimes.Overlap, certificates.DefaultLifetimes.Overlap, settings.Flag{Name: "authority-overlap", Usage: "how long two authorities are trusted when one follows the other", Allowed: "a duration of at least 1s"})
	f.Duration(&o.lookEvery, 10*time.Second, settings.Flag{Name: "certificate-interval", Usage: "how often the certificate's Secret is read", Allowed: "a duration from 100ms to 1m"})
	o.logging.AddFlags(f)
	return o, f
}

func (o *options) parse(f *settings.Flags, args, env []string) error {
	if err := f.Parse(args, env); err != nil {
		return err
	}
	if o.namespace == "" {
		o.namespace = f.Env("POD_NAMESPACE")
	}
	for name, value := range map[string]string{"config": o.configFile, "namespace": o.namespace} {
		if value == "" {
			return f.Require(name)
		}
	}
	if err := o.check(f); err != nil {
		return err
	}
	var err error
	if o.config, err = readConfig(o.configFile); err != nil {
		return f.Reject("config", o.configFile, err.Error())
	}
	return nil
}

func (o *options) check(f *settings.Flags) error {
	for name, value := range map[string]string{"webhook-listen": o.webhookListen, "health-listen": o.healthListen, "metrics-listen": o.metricsListen} {
		if _, port, err := net.SplitHostPort(value); err != nil || !isPort(port) {
			return f.Reject(name, value, addressAllowed)
		}
	}
	switch {
	case o.drain < 0 || o.drain > 5*time.Minute:
		return f.Reject("drain", o.drain.String(), "a duration from 0s to 5m")
	case o.lifetimes.Authority < time.Minute:
		return f.Reject("authority-lifetime", o.lifetimes.Authority.String(), lifetimeAllowed)
	case o.lifetimes.Certificate < time.Minute:
		return f.Reject("certificate-lifetime", o.lifetimes.Certificate.String(), lifetimeAllowed)
	case o.lifetimes.Overlap < time.Second:
		return f.Reject("authority-overlap", o.lifetimes.Overlap.String(), "a duration of at least 1s")
	case o.lookEvery < 100*time.Millisecond || o.lookEvery > time.Minute:
		return f.Reject("certificate-interval", o.lookEvery.String(), "a duration from 100ms to 1m")
	}
	return nil
}
