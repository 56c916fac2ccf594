{{/* Where an alert is told of in docs/runbook.md, by its heading; takes a list of root and the alert's name. */}}
{{- define "gpu-webhooks.runbook" -}}
{{- with (index . 0).Values.prometheusRule.runbookURL -}}
runbook_url: {{ printf "%s#%s" . (index $ 1 | lower) | quote }}
{{- end -}}
{{- end -}}
