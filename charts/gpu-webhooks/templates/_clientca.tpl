{{/* "true" where callers' certificates are verified. */}}
{{- define "gpu-webhooks.clientCA" -}}
{{- if or .Values.clientCA.configMapName .Values.clientCA.secretName }}true{{ end -}}
{{- end -}}

{{/* Where the authorities of callers' certificates are in the pod. */}}
{{- define "gpu-webhooks.clientCADirectory" -}}
/etc/gpu-webhooks/client-ca
{{- end -}}

{{- define "gpu-webhooks.clientCAArguments" -}}
- --client-ca-file={{ include "gpu-webhooks.clientCADirectory" . }}/ca.crt
{{- range .Values.clientCA.names }}
- {{ printf "--client-name=%s" . | quote }}
{{- end }}
{{- end -}}

{{/* Not by subPath: a file that is mounted so is never updated. */}}
{{- define "gpu-webhooks.clientCAMount" -}}
- name: client-ca
  mountPath: {{ include "gpu-webhooks.clientCADirectory" . }}
  readOnly: true
{{- end -}}

{{- define "gpu-webhooks.clientCAVolume" -}}
- name: client-ca
  {{- if .Values.clientCA.configMapName }}
  configMap:
    name: {{ .Values.clientCA.configMapName }}
  {{- else }}
  secret:
    secretName: {{ .Values.clientCA.secretName }}
  {{- end }}
    items:
      - key: {{ .Values.clientCA.key | quote }}
        path: ca.crt
{{- end -}}
