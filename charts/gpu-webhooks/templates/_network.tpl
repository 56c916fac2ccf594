{{/*
Refuses to go on where nobody is named that may call the service. Which addresses API servers have on their way to a
pod depends on the network plugin: a guess that lets in too many is no policy, and one that misses an API server has
every GPU VM refused.
*/}}
{{- define "gpu-webhooks.callersAreNamed" -}}
{{- $policy := .Values.networkPolicy -}}
{{- $named := or $policy.admissionCIDRs $policy.admissionPods (eq $policy.flavor "cilium") -}}
{{- if not (or $named (include "gpu-webhooks.clientCA" .)) -}}
{{- list
  "nothing says who may call the service."
  "Whatever reaches its port may pose as the API server, every pod of the cluster among it, and have template devices built in any namespace."
  "Set one of these:"
  "clientCA.configMapName or clientCA.secretName, where API servers show a client certificate;"
  "networkPolicy.admissionCIDRs, the addresses of the API servers as pods see them;"
  "networkPolicy.admissionPods, the agents' pods through which API servers call;"
  "networkPolicy.flavor=cilium, where Cilium is the network plugin;"
  "or networkPolicy.enabled=false, where the port is closed by other means or may be open to every pod."
  "Which of them fits a cluster is told in docs/client-certificates.md, Who may call the service."
  | join " " | fail -}}
{{- end -}}
{{- end -}}

{{/*
A policy that closes pods to all but what is named; takes a dict of root, name, labels (what selects the pods), port (of
probes and metrics) and admission (whether they are called by API servers).
*/}}
{{- define "gpu-webhooks.networkPolicy" -}}
{{- $cilium := eq .root.Values.networkPolicy.flavor "cilium" -}}
apiVersion: {{ ternary "cilium.io/v2" "networking.k8s.io/v1" $cilium }}
kind: {{ ternary "CiliumNetworkPolicy" "NetworkPolicy" $cilium }}
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpu-webhooks.labels" .root | nindent 4 }}
spec:
  {{ ternary "endpointSelector" "podSelector" $cilium }}:
    matchLabels:
      {{- .labels | nindent 6 }}
  {{- if not $cilium }}
  policyTypes: [Ingress]
  {{- end }}
  ingress:
    {{- $rules := ternary "cilium" "kubernetes" $cilium }}
    {{- if .admission }}
    {{- include (printf "gpu-webhooks.%s.admissionRules" $rules) .root | trim | nindent 4 }}
    {{- end }}
    {{- include (printf "gpu-webhooks.%s.plainRules" $rules) . | trim | nindent 4 }}
{{- end -}}

{{- define "gpu-webhooks.kubernetes.admissionRules" -}}
{{- $policy := .Values.networkPolicy -}}
- ports:
    - port: admission
      protocol: TCP
  {{- if or $policy.admissionCIDRs $policy.admissionPods }}
  from:
    {{- range $policy.admissionCIDRs }}
    - ipBlock:
        cidr: {{ . | quote }}
    {{- end }}
    {{- range $policy.admissionPods }}
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .namespace | quote }}
      podSelector:
        matchLabels:
          {{- toYaml .labels | nindent 10 }}
    {{- end }}
  {{- end }}
{{- end -}}

{{- define "gpu-webhooks.kubernetes.plainRules" -}}
# Probes come from the pod's own node, which a network policy does not stop.
- ports:
    - port: plain
      protocol: TCP
  from:
    - namespaceSelector:
        {{- toYaml .root.Values.networkPolicy.metricsNamespaceSelector | nindent 8 }}
{{- end -}}

{{/* Each kind of peer is a rule of its own: Cilium takes no two in one. */}}
{{- define "gpu-webhooks.cilium.admissionRules" -}}
{{- $policy := .Values.networkPolicy -}}
{{- $ports := include "gpu-webhooks.cilium.ports" .Values.admission.port -}}
# An API server on the pod's own node comes as host; one on another as kube-apiserver, or as remote-node where a tunnel
# or address translation hides which process of its node it is. Pods come as themselves, but for those on a node's network.
- fromEntities: [kube-apiserver, host, remote-node]
  {{- $ports | nindent 2 }}
{{- with $policy.admissionCIDRs }}
- fromCIDR:
    {{- toYaml . | nindent 4 }}
  {{- $ports | nindent 2 }}
{{- end }}
{{- with $policy.admissionPods }}
- fromEndpoints:
    {{- range . }}
    - matchLabels:
        k8s:io.kubernetes.pod.namespace: {{ .namespace | quote }}
        {{- toYaml .labels | nindent 8 }}
    {{- end }}
  {{- $ports | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gpu-webhooks.cilium.plainRules" -}}
{{- $ports := include "gpu-webhooks.cilium.ports" .port -}}
# Probes: an agent with allow-localhost=policy goes by the policy there too.
- fromEntities: [host]
  {{- $ports | nindent 2 }}
- fromEndpoints:
    - {{ include "gpu-webhooks.cilium.ofNamespaces" .root.Values.networkPolicy.metricsNamespaceSelector | trim | nindent 6 | trim }}
  {{- $ports | nindent 2 }}
{{- end -}}

{{- define "gpu-webhooks.cilium.ports" -}}
toPorts:
  - ports:
      - port: {{ . | quote }}
        protocol: TCP
{{- end -}}

{{/*
The pods of the namespaces that a label selector selects: Cilium gives each its namespace's labels by that prefix.
Without the first expression it would be those of the policy's own namespace, or all that are not pods.
*/}}
{{- define "gpu-webhooks.cilium.ofNamespaces" -}}
{{- $prefix := "k8s:io.cilium.k8s.namespace.labels." -}}
matchExpressions:
  - key: k8s:io.kubernetes.pod.namespace
    operator: Exists
  {{- range .matchExpressions }}
  - {{ merge (dict "key" (print $prefix .key)) . | toYaml | nindent 4 | trim }}
  {{- end }}
{{- with .matchLabels }}
matchLabels:
  {{- range $key, $value := . }}
  {{ print $prefix $key }}: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}
