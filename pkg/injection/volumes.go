package injection

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podlease/podlease/pkg/annotations"
)

// Our volumes; all names begin with the same prefix.
const (
	volumePrefix = "podlease-"
	tokenVolume  = volumePrefix + "token"
	infoVolume   = volumePrefix + "info"
	secretVolume = volumePrefix + "redis"
	toolVolume   = volumePrefix + "tool"
)

const (
	// tokenPath is where client-go looks; a mount there also keeps the ServiceAccount
	// admission plugin from adding another token.
	tokenPath  = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a path, no credential
	infoPath   = "/etc/podlease/podinfo"
	secretPath = "/etc/podlease/redis" //nolint:gosec // a path, no credential
)

// safeToEvict lists volumes that do not keep the cluster autoscaler from removing a node.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

// secretFile is a key of a quorum's Secret and the flag that reads the file made of it.
type secretFile struct{ key, flag string }

var secretFlags = []secretFile{
	{"username", "username-file"},
	{"password", "password-file"},
	{"ca.crt", "tls-ca-file"},
	{"tls.crt", "tls-cert-file"},
	{"tls.key", "tls-key-file"},
}

func (q Quorum) secretFiles() []secretFile {
	return slices.DeleteFunc(slices.Clone(secretFlags), func(f secretFile) bool {
		return !slices.Contains(q.SecretKeys, f.key)
	})
}

func isOurVolume(name string) bool {
	return slices.Contains([]string{tokenVolume, infoVolume, secretVolume, toolVolume}, name)
}

func (i *injector) hasSecret() bool { return len(i.settings.Quorums[i.set.Quorum].secretFiles()) > 0 }

func (i *injector) mounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{
		{Name: tokenVolume, MountPath: tokenPath, ReadOnly: true},
		{Name: infoVolume, MountPath: infoPath, ReadOnly: true},
	}
	if i.hasSecret() {
		out = append(out, corev1.VolumeMount{Name: secretVolume, MountPath: secretPath, ReadOnly: true})
	}
	return out
}

// addVolumes brings ours to the desired state, in place where they are, so that a
// second call changes nothing.
func (i *injector) addVolumes() {
	wanted := []corev1.Volume{token(), info()}
	if i.hasSecret() {
		wanted = append(wanted, i.secret())
	}
	if i.set.OnLoss == annotations.OnLossExec {
		wanted = append(wanted, corev1.Volume{Name: toolVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		i.allowEviction()
	}
	for _, v := range wanted {
		at := slices.IndexFunc(i.pod.Spec.Volumes, func(o corev1.Volume) bool { return o.Name == v.Name })
		if at < 0 {
			i.pod.Spec.Volumes = append(i.pod.Spec.Volumes, v)
			continue
		}
		i.pod.Spec.Volumes[at] = v
	}
}

// allowEviction adds to what is there already (kubernetes/autoscaler#3947).
func (i *injector) allowEviction() {
	names := strings.FieldsFunc(i.pod.Annotations[safeToEvict], func(r rune) bool { return r == ',' })
	if !slices.Contains(names, toolVolume) {
		i.pod.Annotations = with(i.pod.Annotations, safeToEvict, strings.Join(append(names, toolVolume), ","))
	}
}

// token is of our own, mounted in our container only: it works with automounting off,
// and keeps the right to patch the Pod from the app's containers.
func token() corev1.Volume {
	var mode int32 = 0o644
	var seconds int64 = 3600
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{fileFrom("namespace", "metadata.namespace")}}},
		},
	}}}
}

func info() corev1.Volume {
	var mode int32 = 0o644
	return corev1.Volume{Name: infoVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		DefaultMode: &mode,
		Items:       []corev1.DownwardAPIVolumeFile{fileFrom("annotations", "metadata.annotations"), fileFrom("labels", "metadata.labels")},
	}}}
}

func fileFrom(path, fieldPath string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: fieldPath}}
}

func (i *injector) secret() corev1.Volume {
	var mode int32 = 0o644
	return corev1.Volume{Name: secretVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: SecretName(i.set.Quorum), DefaultMode: &mode,
	}}}
}
