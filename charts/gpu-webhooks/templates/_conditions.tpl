{{/*
CEL: what decides whether the service is called. It must be called for all that could ask for a GPU, and for nothing
else, since what it is not called for works while it is down. Every field may be missing, and an error is a refusal, so
each step is optional.
*/}}

{{/* k may be the name of a GPU: it has a domain, neither Kubernetes's nor KubeVirt's own; or it is a DeviceClass's. */}}
{{- define "gpu-webhooks.cel.extended" -}}
k.contains('/') && (k.startsWith('deviceclass.resource.kubernetes.io/') || !k.matches('^(devices[.]kubevirt[.]io|([^/]+[.])?kubernetes[.]io)/[^/]*$'))
{{- end -}}

{{/* The VMI, or the template of one, that the expression in . names has the label or the annotation. */}}
{{- define "gpu-webhooks.cel.vmiIsMarked" -}}
{{ . }}.?metadata.?labels[?'gpu.cozystack.io/device-reference'].hasValue() ||
{{ . }}.?metadata.?annotations[?'gpu.cozystack.io/device-template'].hasValue()
{{- end -}}

{{/* The VMI, or the template of one, that the expression in . names asks for devices by any road of its spec. */}}
{{- define "gpu-webhooks.cel.vmiAsks" -}}
{{ . }}.?spec.?domain.?devices.?gpus.orValue([]).size() > 0 ||
{{ . }}.?spec.?resourceClaims.orValue([]).size() > 0 ||
{{ . }}.?spec.?domain.?devices.?hostDevices.orValue([]).exists(d, d.?claimName.orValue('') != '') ||
{{ . }}.?spec.?domain.?devices.?hostDevices.orValue([]).map(d, d.?deviceName.orValue('')).exists(k,
  {{ include "gpu-webhooks.cel.extended" nil }}) ||
[{{ . }}.?spec.?domain.?resources.?requests.orValue({}), {{ . }}.?spec.?domain.?resources.?limits.orValue({})].exists(r, r.exists(k,
  {{ include "gpu-webhooks.cel.extended" nil }}))
{{- end -}}

{{/* The pod asks for devices: a claim, or a name in its containers, its own resources or its overhead. */}}
{{- define "gpu-webhooks.cel.podAsks" -}}
object.spec.?resourceClaims.orValue([]).size() > 0 ||
(object.spec.?containers.orValue([]) + object.spec.?initContainers.orValue([])).exists(c,
  [c.?resources.?requests.orValue({}), c.?resources.?limits.orValue({})].exists(r, r.exists(k,
    {{ include "gpu-webhooks.cel.extended" nil }}))) ||
[object.spec.?resources.?requests.orValue({}), object.spec.?resources.?limits.orValue({}), object.spec.?overhead.orValue({})].exists(r, r.exists(k,
  {{ include "gpu-webhooks.cel.extended" nil }}))
{{- end -}}
