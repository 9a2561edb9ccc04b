{{/* metadata, less the name: dict root, component, and on request namespaced, annotations, labels. */}}
{{- define "nodewarden.metadata" -}}
{{- if .namespaced -}}
namespace: {{ .root.Release.Namespace }}
{{ end -}}
labels:
  {{- include "nodewarden.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "nodewarden.labels" -}}
{{ include "nodewarden.pod-labels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Those of a pod: another version of the chart alone is no reason to restart. */}}
{{- define "nodewarden.pod-labels" -}}
{{ include "nodewarden.selector" .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with merge (dict) (.labels | default dict) (.root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What selects the pods of a component. It never changes: a Deployment's selector cannot. */}}
{{- define "nodewarden.selector" -}}
app.kubernetes.io/name: nodewarden
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/* An image: dict root, name. */}}
{{- define "nodewarden.image" -}}
{{- $image := .root.Values.image -}}
{{- printf "%s/%s:%s" (trimSuffix "/" $image.registry) .name ($image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{/* Whether the webhook runs in this cluster as a Deployment of ours. */}}
{{- define "nodewarden.serves" -}}
{{- if and (ne .Values.install "policy-alone") (not .Values.webhook.url) }}true{{ end -}}
{{- end -}}

{{/* A value that may be off, of which YAML makes false; null is none. */}}
{{- define "nodewarden.word" -}}
{{- ternary "off" . (has (kindOf .) (list "bool" "invalid")) -}}
{{- end -}}
