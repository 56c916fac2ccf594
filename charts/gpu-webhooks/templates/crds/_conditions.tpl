{{/* The schema of a list of conditions, as metav1.Condition has them; . says which there are. */}}
{{- define "gpu-webhooks.crdConditions" -}}
description: {{ . | quote }}
type: array
x-kubernetes-list-type: map
x-kubernetes-list-map-keys: [type]
items:
  description: One aspect of the object's state.
  type: object
  required: [type, status, lastTransitionTime, reason, message]
  properties:
    type:
      description: What it is about.
      type: string
      maxLength: 316
      pattern: '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'
    status:
      description: True, False or Unknown.
      type: string
      enum: ["True", "False", "Unknown"]
    observedGeneration:
      description: The generation of the object that it was found for.
      type: integer
      format: int64
      minimum: 0
    lastTransitionTime:
      description: When the status last changed.
      type: string
      format: date-time
    reason:
      description: Why, as one word for programs.
      type: string
      minLength: 1
      maxLength: 1024
      pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'
    message:
      description: Why, and what to do, for people.
      type: string
      maxLength: 32768
{{- end -}}
