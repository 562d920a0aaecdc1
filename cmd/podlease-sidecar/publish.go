package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/podlease/podlease/pkg/apiserver"
	"github.com/podlease/podlease/pkg/election"
	"github.com/podlease/podlease/pkg/fencing/leasetoken"
	"github.com/podlease/podlease/pkg/podstatus"
	"github.com/podlease/podlease/pkg/statusapi"
)

// kubernetes is everything that the sidecar has to do with the API server. A nil one
// has nothing to do with it.
type kubernetes struct {
	publisher *podstatus.Publisher
	recorder  *podstatus.Recorder
}

func newKubernetes(opt *options, log logr.Logger) (*kubernetes, error) {
	if opt.publish != publishKubernetes {
		return nil, nil
	}
	api, err := apiClient(opt.kubeconfig)
	if err != nil {
		return nil, err
	}
	pod := podstatus.Pod{Namespace: opt.identity.PodNamespace, Name: opt.identity.PodName, UID: opt.identity.PodUID}
	publisher, err := podstatus.New(podstatus.Config{
		API: api, Pod: pod, RoleLabel: opt.roleLabel, ReadinessGate: opt.readinessGate, Log: log.WithName("publisher"),
	})
	if err != nil {
		return nil, err
	}
	recorder, err := podstatus.NewRecorder(api, pod, log.WithName("recorder"))
	if err != nil {
		return nil, err
	}
	return &kubernetes{publisher: publisher, recorder: recorder}, nil
}

// newTokens makes the source of fencing tokens; nil when they come from the nodes or
// from nowhere.
func newTokens(opt *options) (election.TokenSource, error) {
	if opt.fencing != fencingKubernetes {
		return nil, nil
	}
	api, err := apiClient(opt.kubeconfig)
	if err != nil {
		return nil, err
	}
	return leasetoken.New(leasetoken.Config{
		API: api, Namespace: opt.identity.PodNamespace, Lock: opt.lease.Lock, Identity: opt.identity.Name,
	})
}

func apiClient(kubeconfig string) (*apiserver.Client, error) {
	if kubeconfig == "" {
		return apiserver.InCluster()
	}
	client, err := apiserver.FromKubeconfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	return client, nil
}

// run publishes and records until ctx ends.
func (k *kubernetes) run(ctx context.Context, candidate *election.Candidate) {
	if k == nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { k.publisher.Run(ctx, candidate) })
	both.Go(func() { k.recorder.Run(ctx) })
	both.Wait()
}

// clearTimeout is as long as an API server that is away may delay contending.
const clearTimeout = time.Second

// clear takes off, before the candidate contends, a label that a previous life of
// this sidecar left.
func (k *kubernetes) clear(ctx context.Context, log logr.Logger) {
	if k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	if err := k.publisher.Clear(ctx); err != nil {
		log.Info("contending although the role label may still say active", "cause", err.Error())
	}
}

// election returns what the candidate waits for at the end of a term; nil when
// nothing is published.
func (k *kubernetes) election() election.Publisher {
	if k == nil {
		return nil
	}
	return k.publisher
}

// label returns what the metrics tell of the label; nil when there is none.
func (k *kubernetes) label() statusapi.LabelStatus {
	if k == nil {
		return nil
	}
	return k.publisher
}

func (k *kubernetes) record(e election.Event) {
	if k != nil {
		k.recorder.Record(e)
	}
}

// podinfo makes what follows the downward-API files; nil without them.
func (k *kubernetes) podinfo(opt *options, candidate *election.Candidate, log logr.Logger) *podstatus.Watch {
	if opt.podinfoDir == "" {
		return nil
	}
	live := podstatus.NewSettings(candidate, opt.priority, log)
	return &podstatus.Watch{Dir: opt.podinfoDir, Log: log, OnChange: func(p podstatus.Podinfo) {
		live.Apply(p.Annotations)
		if k != nil {
			k.publisher.Observe(p.Labels)
		}
	}}
}
