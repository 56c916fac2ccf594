{{/* The name of the release's objects. */}}
{{- define "gpu-webhooks.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the release's objects for good: a Deployment's selector can't change. */}}
{{- define "gpu-webhooks.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-webhooks.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "gpu-webhooks.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "gpu-webhooks.admissionLabels" -}}
{{ include "gpu-webhooks.selectorLabels" . }}
app.kubernetes.io/component: admission
{{- end -}}

{{- define "gpu-webhooks.controllerName" -}}
{{- printf "%s-controller" (include "gpu-webhooks.fullname" .) -}}
{{- end -}}

{{- define "gpu-webhooks.controllerLabels" -}}
{{ include "gpu-webhooks.selectorLabels" . }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* The account of the hooks that take our finalizers off. */}}
{{- define "gpu-webhooks.releaseName" -}}
{{- printf "%s-release" (include "gpu-webhooks.fullname" .) -}}
{{- end -}}

{{/* The one name of both webhook configurations: it sorts before KubeVirt's own. */}}
{{- define "gpu-webhooks.configurationName" -}}
gpu-webhooks
{{- end -}}

{{/* The Secret of the CA, or of the certificate where somebody else makes it. */}}
{{- define "gpu-webhooks.certificateSecret" -}}
{{- $kept := ternary "ca" "tls" (eq .Values.certificates.mode "self") -}}
{{- default (printf "%s-%s" (include "gpu-webhooks.fullname" .) $kept) .Values.certificates.secretName -}}
{{- end -}}

{{/* Annotations of both webhook configurations: cert-manager's cainjector puts the CA in. */}}
{{- define "gpu-webhooks.configurationAnnotations" -}}
{{- if eq .Values.certificates.mode "cert-manager" }}
annotations:
  cert-manager.io/inject-ca-from: {{ printf "%s/%s-tls" .Release.Namespace (include "gpu-webhooks.fullname" .) }}
{{- end }}
{{- end -}}

{{- define "gpu-webhooks.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The user that a service account of the release's namespace is to the API server; takes a dict of root and name. */}}
{{- define "gpu-webhooks.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ .name }}
{{- end -}}

{{- define "gpu-webhooks.admissionUser" -}}
{{- include "gpu-webhooks.user" (dict "root" . "name" (include "gpu-webhooks.fullname" .)) -}}
{{- end -}}

{{- define "gpu-webhooks.controllerUser" -}}
{{- include "gpu-webhooks.user" (dict "root" . "name" (include "gpu-webhooks.controllerName" .)) -}}
{{- end -}}

{{- define "gpu-webhooks.releaseUser" -}}
{{- include "gpu-webhooks.user" (dict "root" . "name" (include "gpu-webhooks.releaseName" .)) -}}
{{- end -}}

{{/* The users that are the platform's own, the release's accounts among them: the hooks take finalizers off. */}}
{{- define "gpu-webhooks.platformUsers" -}}
{{- $own := list (include "gpu-webhooks.admissionUser" .) (include "gpu-webhooks.controllerUser" .) (include "gpu-webhooks.releaseUser" .) -}}
{{- concat .Values.platform.users $own | uniq | toYaml -}}
{{- end -}}

{{- define "gpu-webhooks.virtController" -}}
system:serviceaccount:{{ .Values.kubevirt.namespace }}:kubevirt-controller
{{- end -}}

{{/* Namespaces that are never a tenant's, so that nothing in them ever waits for the service. */}}
{{- define "gpu-webhooks.platformNamespaces" -}}
{{- list "kube-system" .Release.Namespace .Values.kubevirt.namespace | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{/*
The namespaces that are tenants', as a label selector. It stands here once, so that no two rules can disagree.
*/}}
{{- define "gpu-webhooks.tenantNamespaceSelector" -}}
{{- with .Values.tenantNamespaceSelector.matchLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
matchExpressions:
  {{- with .Values.tenantNamespaceSelector.matchExpressions }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- include "gpu-webhooks.platformNamespaces" . | nindent 6 }}
{{- end -}}

{{/* Labels and hook annotations of what releases everything; takes a dict of root, weight and delete. */}}
{{- define "gpu-webhooks.releaseMetadata" -}}
labels:
  {{- include "gpu-webhooks.labels" .root | nindent 2 }}
  app.kubernetes.io/component: release
annotations:
  helm.sh/hook: {{ ternary "pre-delete" "pre-upgrade" .root.Values.gpus.enabled }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: {{ .delete }}
{{- end -}}

{{/* Labels and hook annotations of what helm test makes; takes a dict of root, weight and delete. */}}
{{- define "gpu-webhooks.testMetadata" -}}
labels:
  {{- include "gpu-webhooks.labels" .root | nindent 2 }}
  app.kubernetes.io/component: doctor
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: {{ .delete }}
{{- end -}}

{{/*
Whether a namespace is a tenant's, for the notes alone: "true" or "false"; takes a dict of root and namespace. The API
server decides by the selector itself.
*/}}
{{- define "gpu-webhooks.isTenant" -}}
{{- $labels := default dict .namespace.metadata.labels -}}
{{- $selector := include "gpu-webhooks.tenantNamespaceSelector" .root | fromYaml -}}
{{- $matches := true -}}
{{- range $key, $value := $selector.matchLabels -}}
{{- if not (and (hasKey $labels $key) (eq (get $labels $key) $value)) -}}{{- $matches = false -}}{{- end -}}
{{- end -}}
{{- range $selector.matchExpressions -}}
{{- $there := hasKey $labels .key -}}
{{- $listed := and $there (has (get $labels .key) (default list .values)) -}}
{{- if or (and (eq .operator "Exists") (not $there)) (and (eq .operator "DoesNotExist") $there) (and (eq .operator "In") (not $listed)) (and (eq .operator "NotIn") $listed) -}}
{{- $matches = false -}}
{{- end -}}
{{- end -}}
{{- $matches -}}
{{- end -}}
