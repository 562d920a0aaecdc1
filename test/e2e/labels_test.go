package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/podlease/podlease/pkg/boottime"
)

const roleLabel = "podlease.io/role"

// change is one change of a Pod's role label as a watch showed it; role is empty for
// a Pod that is gone.
type change struct {
	At        time.Duration
	Pod, Role string
}

// labels follows the role labels of one lock's Pods with a watch.
type labels struct {
	of workload
	// onPod is told of each Pod once it has an address, and of its end.
	onPod func(pod *corev1.Pod, gone bool)

	mu      sync.Mutex
	roles   map[string]string
	changes []change
	doubles []string // instants with more than one Pod labelled active
}

// run watches until ctx ends, and lists again whenever the watch breaks.
func (l *labels) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = l.follow(ctx) // an API server that is away is part of the tests
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (l *labels) follow(ctx context.Context) error {
	pods := client.CoreV1().Pods(l.of.namespace)
	selector := l.of.selector()
	list, err := pods.List(ctx, selector)
	if err != nil {
		return err
	}
	l.relist(list.Items)
	selector.ResourceVersion = list.ResourceVersion
	events, err := pods.Watch(ctx, selector)
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watch: %v", event.Object)
		}
		l.see(pod, event.Type == watch.Deleted)
	}
	return nil
}

// relist takes a list as the state: Pods not in it are gone.
func (l *labels) relist(pods []corev1.Pod) {
	there := map[string]bool{}
	for i := range pods {
		there[pods[i].Name] = true
	}
	l.mu.Lock()
	for name := range l.roles {
		if !there[name] {
			l.set(name, "")
		}
	}
	l.mu.Unlock()
	// The list is one instant: who lost the role must not be seen after who has it.
	for _, holders := range []bool{false, true} {
		for i := range pods {
			if (pods[i].Labels[roleLabel] == "active") == holders {
				l.see(&pods[i], false)
			}
		}
	}
}

func (l *labels) see(pod *corev1.Pod, gone bool) {
	role := pod.Labels[roleLabel]
	if gone {
		role = ""
	}
	l.mu.Lock()
	l.set(pod.Name, role)
	l.mu.Unlock()
	if pod.Status.PodIP != "" || gone {
		l.onPod(pod, gone)
	}
}

// set notes a role; l.mu is held.
func (l *labels) set(pod, role string) {
	if l.roles[pod] == role {
		return
	}
	if role == "" {
		delete(l.roles, pod)
	} else {
		l.roles[pod] = role
	}
	l.changes = append(l.changes, change{boottime.Now(), pod, role})
	if active := l.active(); len(active) > 1 {
		l.doubles = append(l.doubles, fmt.Sprint(active))
	}
}

// active are the Pods labelled active; l.mu is held.
func (l *labels) active() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(l.roles)) {
		if l.roles[name] == "active" {
			names = append(names, name)
		}
	}
	return names
}

// holders are the Pods labelled active.
func (l *labels) holders() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active()
}

// wrong are the Pods that bear neither of the two roles.
func (l *labels) wrong() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := maps.Clone(l.roles)
	maps.DeleteFunc(found, func(_, role string) bool { return role == "active" || role == "standby" })
	return found
}

// shown returns when a watch first showed a role on a Pod at or after a time.
func (l *labels) shown(pod, role string, from time.Duration) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.changes {
		if c.At >= from && c.Pod == pod && c.Role == role {
			return c.At, true
		}
	}
	return 0, false
}

// since returns when a watch last showed a Pod take a role.
func (l *labels) since(pod, role string) (at time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.changes {
		if c.Pod == pod && c.Role == role {
			at, ok = c.At, true
		}
	}
	return at, ok
}

// twice are the instants at which more than one Pod was labelled active.
func (l *labels) twice() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.doubles)
}
