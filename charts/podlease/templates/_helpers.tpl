{{- define "podlease.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "podlease" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-podlease" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "podlease.controller" -}}
{{ include "podlease.fullname" . }}-controller
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "podlease.labels" -}}
app.kubernetes.io/name: podlease
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: podlease
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podlease.controllerSelector" -}}
app.kubernetes.io/name: podlease
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* An image of {repository, tag, digest}: (list . $image). */}}
{{- define "podlease.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The seconds of a duration such as 1m30s; parts below a second do not count. */}}
{{- define "podlease.seconds" -}}
{{- $h := regexFind "[0-9.]+h" . | trimSuffix "h" | default "0" -}}
{{- $m := regexFind "[0-9.]+m([0-9]|$)" . | regexFind "[0-9.]+m" | trimSuffix "m" | default "0" -}}
{{- $s := regexFind "[0-9.]+s" . | trimSuffix "s" | default "0" -}}
{{ addf (mulf $h 3600) (mulf $m 60) $s }}
{{- end -}}

{{/* All quorums with their defaults filled in, and checked, as JSON. */}}
{{- define "podlease.quorums" -}}
{{- $out := dict -}}
{{- range $name, $given := .Values.quorums -}}
{{- $q := mergeOverwrite (deepCopy $.Values.quorumDefaults) (deepCopy ($given | default dict)) -}}
{{- $enabled := get $q.deploy "enabled" -}}
{{- if kindIs "invalid" $enabled -}}
{{- $enabled = and (eq $name "default") (not $q.nodes) -}}
{{- end -}}
{{- if and $enabled $q.nodes -}}
{{- fail (printf "quorums.%s: give either nodes or deploy.enabled=true, not both" $name) -}}
{{- end -}}
{{- if not (or $enabled $q.nodes) -}}
{{- fail (printf "quorums.%s: give nodes, or set deploy.enabled=true" $name) -}}
{{- end -}}
{{- if $enabled -}}
{{- if $q.secretName -}}
{{- fail (printf "quorums.%s.secretName: the credentials of deployed nodes are made by the controller" $name) -}}
{{- end -}}
{{- $quarantine := $.Values.sidecar.quarantine | default "31s" -}}
{{- if lt (float64 $q.deploy.minReadySeconds) (include "podlease.seconds" $quarantine | float64) -}}
{{- fail (printf "quorums.%s.deploy.minReadySeconds: %v is less than the quarantine (sidecar.quarantine: %s), so that an update would restart a node while another is young" $name $q.deploy.minReadySeconds $quarantine) -}}
{{- end -}}
{{- $redis := printf "%s-redis-%s" (include "podlease.fullname" $) $name -}}
{{- $nodes := list -}}
{{- range $i := until (int $q.deploy.replicas) -}}
{{- $nodes = append $nodes (printf "%s-%d.%s.%s.svc:6379" $redis $i $redis $.Release.Namespace) -}}
{{- end -}}
{{- $q = mergeOverwrite $q (dict "nodes" $nodes "secretName" $redis "aclSecretName" (printf "%s-acl" $redis) "redis" $redis) -}}
{{- end -}}
{{- $_ := set $q.deploy "enabled" $enabled -}}
{{- $_ := set $out $name $q -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* The names of the Secrets in the namespaces of injected Pods. */}}
{{- define "podlease.copies" -}}
{{- $names := list -}}
{{- range $name, $q := include "podlease.quorums" . | fromJson -}}
{{- if or $q.secretName (not $q.copySecret) -}}
{{- $names = append $names (printf "podlease-%s" $name) -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Whether the controller makes any of them; empty if it does not. */}}
{{- define "podlease.copying" -}}
{{- range $name, $q := include "podlease.quorums" . | fromJson -}}
{{- if and $q.secretName $q.copySecret }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- define "podlease.certificateSecret" -}}
{{ .Values.webhook.certificate.secretName | default (printf "%s-webhook" (include "podlease.fullname" .)) }}
{{- end -}}

{{/* What the controller reads: see cmd/podlease-controller/config.go. */}}
{{- define "podlease.config" -}}
clusterName: {{ .Values.clusterName | quote }}
roleLabel: {{ .Values.roleLabel | quote }}
manageRBAC: {{ .Values.rbac.manage }}
crossNamespaceLocks: {{ .Values.locks.crossNamespace }}
sidecar:
  image: {{ include "podlease.image" (list . .Values.sidecar.image) | quote }}
  toolImage: {{ include "podlease.image" (list . .Values.tool.image) | quote }}
  pullPolicy: {{ .Values.sidecar.image.pullPolicy }}
  quarantine: {{ .Values.sidecar.quarantine | quote }}
  defaults:
  {{- range $name, $value := omit .Values.sidecar "image" "quarantine" }}
    {{ $name }}: {{ $value | quote }}
  {{- end }}
quorums:
{{- range $name, $q := include "podlease.quorums" . | fromJson }}
  {{ $name }}:
    nodes: {{ toJson $q.nodes }}
    keyPrefix: {{ $q.keyPrefix | quote }}
    username: {{ $q.username | quote }}
    secretName: {{ $q.secretName | quote }}
    copySecret: {{ $q.copySecret }}
    aclSecretName: {{ $q.aclSecretName | default "" | quote }}
{{- end }}
webhook:
  configuration: podlease
  secretName: {{ include "podlease.certificateSecret" . }}
  external: {{ ne .Values.webhook.certificate.secretName "" }}
  dnsNames:
  - {{ include "podlease.fullname" . }}-webhook.{{ .Release.Namespace }}.svc
{{- end -}}
