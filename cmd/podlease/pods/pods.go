// Package pods finds the candidates of locks in a Kubernetes cluster.
package pods

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/apiserver"
)

const (
	requestTimeout = 30 * time.Second
	pageSize       = "500"
)

// Config says which cluster, as kubectl's flags do.
type Config struct {
	// Kubeconfig is a file; empty means $KUBECONFIG, ~/.kube/config, or the Pod's own
	// ServiceAccount.
	Kubeconfig string
	Context    string
	// RoleLabel is the label that carries the role; empty means podlease.io/role.
	RoleLabel string
}

// Cluster is a connection to an API server.
type Cluster struct {
	// Namespace is that of the kubeconfig's context.
	Namespace string

	api  *apiserver.Client
	role string
}

// Connect reads the kubeconfig. It sends nothing yet.
func Connect(cfg Config) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cfg.Kubeconfig
	rules.WarnIfAllMissing = false // the error says so
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context})
	rc, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err): // its own words advise a variable that nobody uses
		return nil, fmt.Errorf("no cluster to ask: no kubeconfig at %s names one, and this is not a Pod with a ServiceAccount's token: give --kubeconfig, or set KUBECONFIG, to a file that does",
			strings.Join(rules.GetLoadingPrecedence(), ", "))
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	host := rc.Host
	if !strings.Contains(host, "://") { // as client-go does
		host = "https://" + host
	}
	connection, err := rc.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	api, err := apiserver.New(host, connection)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Namespace: namespace, api: api, role: cfg.RoleLabel}
	if c.role == "" {
		c.role = annotations.Role
	}
	return c, nil
}

// Candidate is a Pod that takes part in an election.
type Candidate struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"-"`
	Lock      string `json:"-"`
	// Role is what the Pod's label says: active or standby.
	Role string `json:"role"`
	// Agrees is whether the label says what the lock does; false where that is not known.
	Agrees bool `json:"agrees"`
}

// list is what is needed of a list of Pods' metadata.
type list struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	} `json:"items"`
}

// Candidates lists the injected Pods of a namespace, or of all if that is empty.
func (c *Cluster) Candidates(ctx context.Context, namespace string) ([]Candidate, error) {
	var found []Candidate
	query := url.Values{"labelSelector": {annotations.Injected + "=true"}, "limit": {pageSize}}
	for {
		var page list
		if err := c.do(ctx, apiserver.Request{Method: http.MethodGet, Path: podsPath(namespace), Query: query}, &page); err != nil {
			return nil, fmt.Errorf("list Pods: %w", err)
		}
		for _, p := range page.Items {
			found = append(found, Candidate{
				Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, UID: string(p.Metadata.UID),
				Lock: p.Metadata.Annotations[annotations.Lock], Role: p.Metadata.Labels[c.role],
			})
		}
		if page.Metadata.Continue == "" {
			return found, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// StepDown asks a Pod's sidecar to hand over, by a new value of the annotation that it
// reads.
func (c *Cluster) StepDown(ctx context.Context, p Candidate, value string) error {
	patch := map[string]any{"metadata": map[string]any{
		"uid":         p.UID, // a new Pod of the same name is not meant
		"annotations": map[string]string{annotations.StepDown: value},
	}}
	request := apiserver.Request{Method: http.MethodPatch, Path: podsPath(p.Namespace, p.Name), ContentType: apiserver.MergePatch, Body: patch}
	if err := c.do(ctx, request, nil); err != nil {
		return fmt.Errorf("annotate Pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (c *Cluster) do(ctx context.Context, request apiserver.Request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.api.Do(ctx, request, out)
}

func podsPath(namespace string, name ...string) []string {
	path := []string{"api", "v1"}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	return append(append(path, "pods"), name...)
}
