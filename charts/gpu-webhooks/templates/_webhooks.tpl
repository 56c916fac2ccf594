{{/* What every webhook has; takes a dict of root, path, policy and timeout. */}}
{{- define "gpu-webhooks.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: NoneOnDryRun
matchPolicy: Equivalent
failurePolicy: {{ .policy }}
timeoutSeconds: {{ .timeout }}
clientConfig:
  {{- if .root.Values.webhooks.url }}
  url: {{ printf "%s%s" (trimSuffix "/" .root.Values.webhooks.url) .path | quote }}
  {{- else }}
  service:
    namespace: {{ .root.Release.Namespace }}
    name: {{ include "gpu-webhooks.fullname" .root }}
    path: {{ .path }}
    port: 443
  {{- end }}
  {{- with .root.Values.certificates.caBundle }}
  caBundle: {{ printf "%s\n" (trim .) | b64enc }}
  {{- end }}
namespaceSelector:
  {{- include "gpu-webhooks.tenantNamespaceSelector" .root | trim | nindent 2 }}
{{- end -}}
