package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podlease/podlease/pkg/injection"
)

// NodeLists reports running Pods whose list of Redis nodes differs from the installed
// one by more than one node: such a Pod and a new one could both find a majority. Lists
// change by one node at a time, with all workloads restarted between. It changes nothing.
type NodeLists struct {
	// Cached lists injected Pods.
	Cached client.Reader
	// Quorums are the installed lists by the quorum's name.
	Quorums map[string][]string
	Events  events.EventRecorder
	Log     logr.Logger

	gauge prometheus.Gauge
	told  map[types.UID]bool
}

// Register adds the metric.
func (n *NodeLists) Register(registry prometheus.Registerer) {
	n.gauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "podlease_node_list_jump_pods",
		Help: "Running Pods whose list of Redis nodes differs from the installed one by more than one node.",
	})
	registry.MustRegister(n.gauge)
}

// Start looks every minute until ctx ends.
func (n *NodeLists) Start(ctx context.Context) error {
	everyMinute(ctx, n.Log, "lists of Redis nodes not compared", n.look)
	return nil
}

func (n *NodeLists) look(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := n.Cached.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list injected Pods: %w", err)
	}
	var found []*corev1.Pod
	for i := range pods.Items {
		if pod := &pods.Items[i]; n.jumped(pod) {
			found = append(found, pod)
		}
	}
	n.gauge.Set(float64(len(found)))
	n.tell(found)
	return nil
}

func (n *NodeLists) jumped(pod *corev1.Pod) bool {
	status, ok := injection.ReadStatus(pod.Annotations)
	installed, known := n.Quorums[status.Quorum]
	return ok && known && !finished(pod) && jump(nodesOf(pod), installed)
}

// tell makes one event for each Pod and logs one line for all new ones; it forgets those
// that are gone.
func (n *NodeLists) tell(found []*corev1.Pod) {
	told := map[types.UID]bool{}
	var example *corev1.Pod
	for _, pod := range found {
		told[pod.UID] = true
		if n.told[pod.UID] {
			continue
		}
		example = pod
		status, _ := injection.ReadStatus(pod.Annotations)
		n.Events.Eventf(pod, nil, corev1.EventTypeWarning, "NodeListJump", "Compare",
			"The Pod uses %d Redis nodes of quorum %q, and %d are installed: lists may differ by one node only, or two Pods could both find a majority; go back to a list between, and restart the workload",
			len(nodesOf(pod)), status.Quorum, len(n.Quorums[status.Quorum]))
	}
	n.told = told
	if example != nil {
		n.Log.Info("lists of Redis nodes differ by more than one node", "pods", len(found), "namespace", example.Namespace,
			"pod", example.Name, "podNodes", nodesOf(example))
	}
}

const redisFlag = "--redis="

// nodesOf is the list that a Pod's sidecar was started with; none where it is not known.
func nodesOf(pod *corev1.Pod) []string {
	for _, c := range pod.Spec.InitContainers {
		if c.Name != injection.ContainerName {
			continue
		}
		for _, arg := range c.Args {
			if list, ok := strings.CutPrefix(arg, redisFlag); ok {
				return strings.Split(list, ",")
			}
		}
	}
	return nil
}

// jump says that more than one node was added, removed or exchanged.
func jump(a, b []string) bool {
	return len(a) > 0 && lacking(a, b)+lacking(b, a) > 1
}

func lacking(from, nodes []string) int {
	count := 0
	for _, node := range nodes {
		if !slices.Contains(from, node) {
			count++
		}
	}
	return count
}
