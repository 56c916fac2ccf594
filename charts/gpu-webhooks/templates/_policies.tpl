{{/*
What the policies have in common. CEL, evaluated in the API server for every request that matches: a field that may be
missing is read by an optional step, since an error is a refusal.
*/}}

{{/* The whole metadata of a policy and of its binding, which have one name; takes a dict of root and name. */}}
{{- define "gpu-webhooks.policyMetadata" -}}
name: {{ .name }}.gpu.cozystack.io
labels:
  {{- include "gpu-webhooks.labels" .root | nindent 2 }}
{{- end -}}

{{/*
The binding of a policy; takes a dict of root, name, tenants (whether it is about tenants' namespaces alone) and, for a
policy with parameters, paramRef.
*/}}
{{- define "gpu-webhooks.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "gpu-webhooks.policyMetadata" . | nindent 2 }}
spec:
  policyName: {{ .name }}.gpu.cozystack.io
  validationActions: [Deny]
  {{- with .paramRef }}
  paramRef:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .tenants }}
  matchResources:
    namespaceSelector:
      {{- include "gpu-webhooks.tenantNamespaceSelector" .root | trim | nindent 6 }}
  {{- end }}
{{- end -}}

{{/*
The settings as a parameter: while they are missing, everything that the policy matches is refused. The parameter is
looked up before any condition or expression is, for whatever the binding selects.
*/}}
{{- define "gpu-webhooks.settingsRef" -}}
name: gpu-settings
namespace: {{ .Release.Namespace }}
parameterNotFoundAction: Deny
{{- end -}}

{{/* The names that the settings list under the key ., as a list. */}}
{{- define "gpu-webhooks.cel.listed" -}}
params.?data[?'{{ . }}'].orValue('').split(',').map(name, name.trim()).filter(name, name != '')
{{- end -}}

{{/* The GPU resource names, as a list: the published ones, and those that stand for a guarded DeviceClass. */}}
{{- define "gpu-webhooks.cel.resourceNames" -}}
{{ include "gpu-webhooks.cel.listed" "resourceNames" }} +
{{ include "gpu-webhooks.cel.listed" "deviceClassNames" }}.map(name, 'deviceclass.resource.kubernetes.io/' + name)
{{- end -}}

{{/* The GPU names among amounts, each with the field that they stand in; takes a dict of amounts and field, both CEL. */}}
{{- define "gpu-webhooks.cel.asked" -}}
{{ .amounts }}.orValue({}).filter(name, name in variables.gpuNames).map(name, [{{ .field }}, string(name)])
{{- end -}}

{{/* The same of each container of a list of the pod's; takes a dict of list and part, limits or requests. */}}
{{- define "gpu-webhooks.cel.askedByContainers" -}}
{{- $field := printf "'spec.%s[' + container.name + '].resources.%s'" .list .part -}}
{{- $amounts := printf "container.?resources.?%s" .part -}}
object.spec.?{{ .list }}.orValue([]).map(container,
{{ include "gpu-webhooks.cel.asked" (dict "amounts" $amounts "field" $field) }})
{{- end -}}

{{/* The platform itself asks, by user or by group. */}}
{{- define "gpu-webhooks.cel.isPlatform" -}}
request.userInfo.username in {{ include "gpu-webhooks.platformUsers" . | fromYamlArray | toJson }} ||
request.userInfo.?groups.orValue([]).exists(group, group in {{ .Values.platform.groups | toJson }})
{{- end -}}

{{/* virt-controller asks. */}}
{{- define "gpu-webhooks.cel.isVirtController" -}}
request.userInfo.username == '{{ include "gpu-webhooks.virtController" . }}'
{{- end -}}

{{/* The label or annotation with the key . of the object that the expression before it names. */}}
{{- define "gpu-webhooks.cel.reference" -}}
{{ . }}.metadata.?labels[?'gpu.cozystack.io/device-reference']
{{- end -}}

{{- define "gpu-webhooks.cel.template" -}}
{{ . }}.metadata.?annotations[?'gpu.cozystack.io/device-template']
{{- end -}}

{{/* The way out of every refusal of a raw name. */}}
{{- define "gpu-webhooks.policyWayOut" -}}
order a GPUDevice and refer to it by the label gpu.cozystack.io/device-reference, or set the annotation gpu.cozystack.io/device-template on the VM's template
{{- end -}}

{{/* Neither the platform asks, nor virt-controller, nor a node. */}}
{{- define "gpu-webhooks.cel.isNotOfTheCluster" -}}
!({{ include "gpu-webhooks.cel.isPlatform" . }} ||
{{ include "gpu-webhooks.cel.isVirtController" . }} ||
'system:nodes' in request.userInfo.?groups.orValue([]))
{{- end -}}
