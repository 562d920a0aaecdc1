package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podlease/podlease/pkg/annotations"
)

const (
	missingBudget = 30 * time.Second
	missingPage   = 500
)

// Missing reports Pods that ask for the sidecar and run without it: made before the
// webhook was there, or changed by another injector since (istio/istio#54562). It
// changes nothing.
type Missing struct {
	// Cached lists injected Pods.
	Cached client.Reader
	// Live lists the metadata of all Pods, page by page: it is not worth a cache.
	Live   client.Reader
	Events events.EventRecorder
	Log    logr.Logger

	gauge prometheus.Gauge
	told  map[types.UID]bool
}

// Register adds the metric.
func (m *Missing) Register(registry prometheus.Registerer) {
	m.gauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "podlease_missing_sidecar_pods",
		Help: "Pods that ask for the sidecar and run without it.",
	})
	registry.MustRegister(m.gauge)
}

// Start looks every minute until ctx ends.
func (m *Missing) Start(ctx context.Context) error {
	everyMinute(ctx, m.Log, "pods without sidecar not counted", m.look)
	return nil
}

// everyMinute looks now and every minute until ctx ends, and logs what failed.
func everyMinute(ctx context.Context, log logr.Logger, failed string, look func(context.Context) error) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		if err := look(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, failed)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *Missing) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, missingBudget)
	defer cancel()
	found, err := m.removed(ctx)
	if err != nil {
		return err
	}
	slipped, err := m.slipped(ctx)
	if err != nil {
		return err
	}
	found = append(found, slipped...)
	m.gauge.Set(float64(len(found)))
	m.tell(found)
	return nil
}

// removed are Pods that had the sidecar at admission and have lost it before they were
// stored.
func (m *Missing) removed(ctx context.Context) ([]*metav1.ObjectMeta, error) {
	pods := &corev1.PodList{}
	if err := m.Cached.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list injected Pods: %w", err)
	}
	var out []*metav1.ObjectMeta
	for i := range pods.Items {
		if p := &pods.Items[i]; !hasSidecar(p) && !finished(p) && p.DeletionTimestamp == nil {
			out = append(out, &p.ObjectMeta)
		}
	}
	return out, nil
}

// slipped are Pods that the webhook has not seen.
func (m *Missing) slipped(ctx context.Context) ([]*metav1.ObjectMeta, error) {
	var out []*metav1.ObjectMeta
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for more := ""; ; {
		err := m.Live.List(ctx, list, client.Limit(missingPage), client.Continue(more), client.MatchingFields{"status.phase": string(corev1.PodRunning)})
		if err != nil {
			return nil, fmt.Errorf("list Pods: %w", err)
		}
		for i := range list.Items {
			if meta := &list.Items[i].ObjectMeta; asksInVain(meta) {
				out = append(out, meta.DeepCopy())
			}
		}
		if more = list.Continue; more == "" {
			return out, nil
		}
	}
}

func asksInVain(meta *metav1.ObjectMeta) bool {
	wanted, _ := annotations.Wanted(annotations.Metadata{Annotations: meta.Annotations, Labels: meta.Labels})
	return wanted && meta.Labels[annotations.Injected] == "" && meta.DeletionTimestamp == nil
}

// tell makes one event for each Pod, and forgets those that are gone.
func (m *Missing) tell(found []*metav1.ObjectMeta) {
	told := map[types.UID]bool{}
	for _, meta := range found {
		told[meta.UID] = true
		if m.told[meta.UID] {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID}}
		m.Events.Eventf(pod, nil, corev1.EventTypeWarning, "SidecarMissing", "Inject",
			"The Pod asks for podlease's sidecar and runs without it: delete the Pod to have it made again")
		m.Log.Info("pod runs without the sidecar it asks for", "namespace", meta.Namespace, "pod", meta.Name)
	}
	m.told = told
}
