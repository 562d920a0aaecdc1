package main

import (
	"context"
	"strings"

	"github.com/podlease/podlease/cmd/podlease/pods"
	"github.com/podlease/podlease/pkg/settings"
)

// clusterOptions say which Pods are meant, with kubectl's flags.
type clusterOptions struct {
	pods.Config
	namespace     string
	allNamespaces bool
}

func (o *clusterOptions) addFlags(f *settings.Flags, namespaceDefault string) {
	f.String(&o.namespace, "", settings.Flag{Name: "namespace", Short: "n", Usage: "the namespace of the Pods", Default: namespaceDefault, Allowed: "the name of a namespace"})
	f.Bool(&o.allNamespaces, false, settings.Flag{Name: "all-namespaces", Short: "A", Usage: "Pods of all namespaces"})
	f.String(&o.Kubeconfig, "", settings.Flag{Name: "kubeconfig", Usage: "how the API server is reached", Default: "$KUBECONFIG, ~/.kube/config, or the Pod's ServiceAccount", Allowed: "a file that can be read"})
	f.String(&o.Context, "", settings.Flag{Name: "context", Usage: "the kubeconfig's context", Default: "the current one", Allowed: "the name of a context in it"})
	f.String(&o.RoleLabel, "", settings.Flag{Name: "role-label", Usage: "the Pod's label that carries the role", Default: "podlease.io/role", Allowed: "a label's key"})
}

func (o *clusterOptions) check(f *settings.Flags) error {
	if o.allNamespaces && o.namespace != "" {
		return f.Reject("namespace", o.namespace, "either --namespace or --all-namespaces")
	}
	return nil
}

// candidates lists Pods: of the namespaces asked for, else of the one that the lock's
// name begins with, else of the context's.
func (o *clusterOptions) candidates(ctx context.Context, lock string) (*pods.Cluster, []pods.Candidate, error) {
	cluster, err := pods.Connect(o.Config)
	if err != nil {
		return nil, nil, err
	}
	namespace := o.namespace
	if prefix, _, found := strings.Cut(lock, "/"); namespace == "" && found {
		namespace = prefix
	}
	switch {
	case o.allNamespaces:
		namespace = ""
	case namespace == "":
		namespace = cluster.Namespace
	}
	candidates, err := cluster.Candidates(ctx, namespace)
	return cluster, candidates, err
}
