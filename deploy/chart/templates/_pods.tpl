{{/* Where a component's pods run: dict root, component, hostNetwork. */}}
{{- define "nodewarden.placement" -}}
{{- $pods := .root.Values.pods -}}
priorityClassName: {{ $pods.priorityClassName }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with $pods.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
tolerations:
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
    effect: NoSchedule
  # A pod on a node that died is replaced after 30 seconds, not after 300.
  - key: node.kubernetes.io/not-ready
    operator: Exists
    effect: NoExecute
    tolerationSeconds: 30
  - key: node.kubernetes.io/unreachable
    operator: Exists
    effect: NoExecute
    tolerationSeconds: 30
  {{- with $pods.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
affinity:
  {{- if ne $pods.controlPlane "ignore" }}
  nodeAffinity:
    {{- if eq $pods.controlPlane "require" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            - {key: node-role.kubernetes.io/control-plane, operator: Exists}
    {{- end }}
  {{- end }}
  podAntiAffinity:
    # No two on a host: the one that is left answers for the node that died.
    # Pods of another revision do not count, or a rollout on as many nodes as
    # replicas would never end.
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "nodewarden.selector" .component | nindent 12 }}
        matchLabelKeys: [pod-template-hash]
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: topology.kubernetes.io/zone
          labelSelector:
            matchLabels:
              {{- include "nodewarden.selector" .component | nindent 14 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $pods.user }}
  runAsGroup: {{ $pods.user }}
  fsGroup: {{ $pods.user }}
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* No pod away that need not be: dict hostNetwork. */}}
{{- define "nodewarden.strategy" -}}
type: RollingUpdate
rollingUpdate:
  {{- if .hostNetwork }}
  # Two pods cannot share the ports of a node, so one has to go first.
  maxSurge: 0
  maxUnavailable: 1
  {{- else }}
  maxSurge: 1
  maxUnavailable: 0
  {{- end }}
{{- end -}}

{{- define "nodewarden.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "nodewarden.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}
