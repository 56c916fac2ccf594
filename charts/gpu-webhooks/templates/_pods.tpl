{{/* Where the pods of a part run; takes a dict of part, the values of it, and labels, which select its pods. */}}
{{- define "gpu-webhooks.placement" -}}
{{- with .part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if .part.affinity }}
  {{- toYaml .part.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- .labels | nindent 14 }}
  {{- end }}
topologySpreadConstraints:
  {{- if .part.topologySpreadConstraints }}
  {{- toYaml .part.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    # A cluster of one node runs both.
    whenUnsatisfiable: ScheduleAnyway
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- $.labels | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* What a container of ours may do. */}}
{{- define "gpu-webhooks.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "gpu-webhooks.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}
