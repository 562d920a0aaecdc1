package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/podlease/podlease/pkg/annotations"
	"github.com/podlease/podlease/pkg/controllers"
	"github.com/podlease/podlease/pkg/injection"
)

// config is the file that the chart makes from its values.
type config struct {
	ClusterName         string                  `json:"clusterName"`
	RoleLabel           string                  `json:"roleLabel"`
	ManageRBAC          bool                    `json:"manageRBAC"`
	CrossNamespaceLocks bool                    `json:"crossNamespaceLocks"`
	Sidecar             sidecarConfig           `json:"sidecar"`
	Quorums             map[string]quorumConfig `json:"quorums"`
	Webhook             webhookConfig           `json:"webhook"`
}

type sidecarConfig struct {
	Image      string            `json:"image"`
	ToolImage  string            `json:"toolImage"`
	PullPolicy corev1.PullPolicy `json:"pullPolicy"`
	Quarantine string            `json:"quarantine"`
	// Defaults are for annotations, by the names of the chart's values.
	Defaults map[string]string `json:"defaults"`
}

type quorumConfig struct {
	Nodes     []string `json:"nodes"`
	KeyPrefix string   `json:"keyPrefix"`
	Username  string   `json:"username"`
	// SecretName is the Secret in the own namespace.
	SecretName string `json:"secretName"`
	CopySecret bool   `json:"copySecret"`
	// ACLSecretName is the Secret for the nodes themselves where the chart deploys them;
	// then both Secrets are made here.
	ACLSecretName string `json:"aclSecretName"`
}

type webhookConfig struct {
	// Configuration is the name of both webhook configurations.
	Configuration string   `json:"configuration"`
	SecretName    string   `json:"secretName"`
	External      bool     `json:"external"`
	DNSNames      []string `json:"dnsNames"`
}

func readConfig(path string) (config, error) {
	var c config
	raw, err := os.ReadFile(path) //nolint:gosec // the file that the flag names
	if err != nil {
		return c, err
	}
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c *config) check() error {
	if c.Sidecar.Image == "" || c.Sidecar.ToolImage == "" {
		return errors.New("sidecar.image and sidecar.toolImage must be given")
	}
	if c.Webhook.SecretName == "" || len(c.Webhook.DNSNames) == 0 {
		return errors.New("webhook.secretName and webhook.dnsNames must be given")
	}
	if c.RoleLabel != "" && len(validation.IsQualifiedName(c.RoleLabel)) > 0 {
		return fmt.Errorf("roleLabel: %q must be a label's key", c.RoleLabel)
	}
	for name, q := range c.Quorums {
		if len(q.Nodes) == 0 {
			return fmt.Errorf("quorums.%s.nodes must not be empty", name)
		}
		if q.ACLSecretName != "" && q.SecretName == "" {
			return fmt.Errorf("quorums.%s.aclSecretName needs secretName", name)
		}
	}
	_, err := c.settings(false)
	return err
}

// settings are what is injected.
func (c *config) settings(restartAllContainers bool) (injection.Settings, error) {
	defaults, err := annotations.ChartDefaults(c.Sidecar.Defaults)
	if err != nil {
		return injection.Settings{}, err
	}
	s := injection.Settings{
		Installation: annotations.Installation{
			Defaults:             defaults,
			CrossNamespaceLocks:  c.CrossNamespaceLocks,
			RestartAllContainers: restartAllContainers,
			RoleLabel:            c.roleLabel(),
		},
		Image:       c.Sidecar.Image,
		ToolImage:   c.Sidecar.ToolImage,
		PullPolicy:  c.Sidecar.PullPolicy,
		ClusterName: c.ClusterName,
		Quorums:     map[string]injection.Quorum{},
		Version:     buildVersion(),
	}
	for name, q := range c.Quorums {
		s.Quorums[name] = injection.Quorum{Nodes: q.Nodes, KeyPrefix: q.KeyPrefix, Username: q.Username}
	}
	if c.Sidecar.Quarantine == "" {
		return s, nil
	}
	quarantine, err := time.ParseDuration(c.Sidecar.Quarantine)
	if err != nil || quarantine < 0 {
		return s, fmt.Errorf("sidecar.quarantine: %q must be a duration such as 31s", c.Sidecar.Quarantine)
	}
	s.Quarantine = &quarantine
	return s, nil
}

// nodeLists are the installed lists of Redis nodes by the quorum's name.
func (c *config) nodeLists() map[string][]string {
	out := map[string][]string{}
	for name, q := range c.Quorums {
		out[name] = q.Nodes
	}
	return out
}

func (c *config) roleLabel() string {
	if c.RoleLabel == "" {
		return annotations.Role
	}
	return c.RoleLabel
}

// hasSecret says that Pods mount a Secret: a copy, or one that people have put there.
func (q quorumConfig) hasSecret() bool { return q.SecretName != "" || !q.CopySecret }

// deployed are the quorums whose passwords are made here.
func (c *config) deployed(namespace string) []controllers.DeployedQuorum {
	var out []controllers.DeployedQuorum
	for _, q := range c.Quorums {
		if q.ACLSecretName != "" {
			out = append(out, controllers.DeployedQuorum{
				Secret:    types.NamespacedName{Namespace: namespace, Name: q.SecretName},
				ACL:       types.NamespacedName{Namespace: namespace, Name: q.ACLSecretName},
				KeyPrefix: q.KeyPrefix,
			})
		}
	}
	return out
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
