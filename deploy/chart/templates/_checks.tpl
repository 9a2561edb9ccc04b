{{/*
What the schema cannot say. Everything wrong is told at once, in the words in
which the servers tell it.
*/}}
{{- define "nodewarden.checks" -}}
{{- $v := .Values -}}{{- $p := $v.policy -}}
{{- $wrong := list -}}
{{- $day := 86400 -}}
{{- range $name, $least := dict "recoveryHold" 0 "signalPersistence" 0 "maxClockSkew" 1 -}}
  {{- $s := include "nodewarden.seconds" (get $p $name) | atoi -}}
  {{- if or (lt $s (int $least)) (gt $s $day) -}}
    {{- $wrong = append $wrong (printf "policy.%s: %q must be between %ds and 24h" $name (get $p $name) (int $least)) -}}
  {{- end -}}
{{- end -}}
{{- $s := include "nodewarden.seconds" $p.stalled.statusReportPeriod | atoi -}}
{{- if or (lt $s 1) (gt $s $day) -}}{{- $wrong = append $wrong (printf "policy.stalled.statusReportPeriod: %q must be between 1s and 24h" $p.stalled.statusReportPeriod) -}}{{- end -}}
{{- range $list := list "standIns" "lifecycle" "detectors" -}}
  {{- range $i, $id := get $p $list -}}
    {{- $at := printf "policy.%s[%d]" $list $i -}}
    {{- if and $id.serviceAccount (or $id.user $id.group) -}}{{- $wrong = append $wrong (printf "%s names both a serviceAccount and a user; name one" $at) -}}
    {{- else if not (or $id.serviceAccount $id.user) -}}{{- $wrong = append $wrong (printf "%s names nobody; give serviceAccount or user" $at) -}}
    {{- else if hasPrefix "system:serviceaccount:" ($id.user | default "") -}}{{- $wrong = append $wrong (printf "%s.user: %q is a service account; give it as serviceAccount: {namespace: ..., name: ...}, which also checks its group" $at $id.user) -}}
    {{- else if hasPrefix "system:node:" ($id.user | default "") -}}{{- $wrong = append $wrong (printf "%s.user: %q is a kubelet, which may write its own node without being listed and no other one" $at $id.user) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not $p.lifecycle -}}{{- $wrong = append $wrong "policy.lifecycle: an empty list has kube-controller-manager judged like any detector, and then nobody marks dead nodes; leave it out for the usual identities, or name yours" -}}{{- end -}}
{{- $spared := list -}}
{{- range $list := list "standIns" "lifecycle" -}}
  {{- range get $p $list -}}{{- $spared = append $spared (dict "is" . "where" (printf "is listed under policy.%s as well" $list)) -}}{{- end -}}
{{- end -}}
{{- $spared = append $spared (dict "is" (dict "serviceAccount" (dict "namespace" .Release.Namespace "name" "nodewarden-controller")) "where" "is nodewarden's own controller") -}}
{{- range $i, $d := $p.detectors -}}
  {{- range $spared -}}
    {{- $account := and $d.serviceAccount .is.serviceAccount (eq (toJson $d.serviceAccount) (toJson .is.serviceAccount)) -}}
    {{- $user := and $d.user (eq $d.user (.is.user | default "")) (has (.is.group | default "") (list "" ($d.group | default ""))) -}}
    {{- if or $account $user -}}{{- $wrong = append $wrong (printf "policy.detectors[%d]: %s, and so is never judged; list it once" $i .where) -}}{{- end -}}
  {{- end -}}
  {{- range $j, $e := ($d.nodeSelector | default dict).matchExpressions -}}
    {{- $at := printf "policy.detectors[%d].nodeSelector.matchExpressions[%d].values" $i $j -}}
    {{- if and (has $e.operator (list "In" "NotIn")) (not $e.values) -}}{{- $wrong = append $wrong (printf "%s: operator %s needs values" $at $e.operator) -}}{{- end -}}
    {{- if and (has $e.operator (list "Exists" "DoesNotExist")) $e.values -}}{{- $wrong = append $wrong (printf "%s: operator %s takes none" $at $e.operator) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $detects := get $p.rules "UnauthorizedDetector" | include "nodewarden.word" -}}
{{- if and $p.detectors (not $detects) -}}{{- $wrong = append $wrong "policy.rules.UnauthorizedDetector: detectors are listed and the rule that reads the list is off by default; set it to deny, warn, audit or off" -}}{{- end -}}
{{- if and $detects (ne $detects "off") (not $p.detectors) -}}{{- $wrong = append $wrong "policy.detectors: rules.UnauthorizedDetector is on and lists nobody; list the detectors, or turn the rule off" -}}{{- end -}}
{{- $young := get $p.rules "SignalTooYoung" | include "nodewarden.word" -}}
{{- if and $young (ne $young "off") (eq (include "nodewarden.seconds" $p.signalPersistence) "0") -}}{{- $wrong = append $wrong "policy.signalPersistence: rules.SignalTooYoung is on and has nothing to measure with; set for example 30s, or turn the rule off" -}}{{- end -}}
{{- if and (not $young) (ne (include "nodewarden.seconds" $p.signalPersistence) "0") -}}{{- $wrong = append $wrong "policy.rules.SignalTooYoung: signalPersistence is set and the rule that reads it is off by default; set it to deny, warn, audit or off" -}}{{- end -}}
{{- if and $v.webhook.url (not $v.certificates.caBundle) -}}{{- $wrong = append $wrong "certificates.caBundle: webhook.url is the address of a server elsewhere; give the authority that signed its certificate" -}}{{- end -}}
{{- if and $v.webhook.url (eq $v.install "policy-alone") -}}{{- $wrong = append $wrong "webhook.url: install policy-alone has no webhook" -}}{{- end -}}
{{- if and (eq $v.certificates.mode "provided") (include "nodewarden.serves" .) (not $v.certificates.caBundle) -}}{{- $wrong = append $wrong "certificates.caBundle: with certificates.mode provided, give the authority that signed the certificate in the Secret certificates.secretName" -}}{{- end -}}
{{- if not (regexMatch (include "nodewarden.reachable" .) $v.webhook.url) -}}{{- $wrong = append $wrong (printf "webhook.url: %q: want https://host:port/path, such as https://127.0.0.1:9443/validate; an API server takes no user, query or fragment" $v.webhook.url) -}}{{- end -}}
{{- with $v.certificates.caBundle -}}
  {{- if contains "PRIVATE KEY" . -}}{{- $wrong = append $wrong "certificates.caBundle: holds a private key, and everybody can read a webhook configuration; give certificates alone" -}}
  {{- else if not (regexMatch "(?s)-----BEGIN CERTIFICATE-----.+-----END CERTIFICATE-----" .) -}}{{- $wrong = append $wrong "certificates.caBundle: holds no certificate; give PEM, from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----" -}}
  {{- end -}}
  {{- range regexFindAll "-----BEGIN [^-]+" . -1 -}}
    {{- $block := trimPrefix "-----BEGIN " . -}}
    {{- if not (or (eq $block "CERTIFICATE") (contains "PRIVATE KEY" $block)) -}}{{- $wrong = append $wrong (printf "certificates.caBundle: holds a block %q; give certificates alone" $block) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $lasts := include "nodewarden.seconds" $v.certificates.duration | atoi -}}
{{- if or (lt $lasts 3600) (gt $lasts (mul 87600 3600 | int)) -}}{{- $wrong = append $wrong (printf "certificates.duration: %q must be between 1h and 87600h" $v.certificates.duration) -}}{{- end -}}
{{- $early := include "nodewarden.seconds" $v.certificates.renewBefore | atoi -}}
{{- if and (eq $v.certificates.mode "cert-manager") (or (lt $early 300) (ge $early $lasts)) -}}{{- $wrong = append $wrong (printf "certificates.renewBefore: %q must be at least 5m and shorter than certificates.duration, which is %q" $v.certificates.renewBefore $v.certificates.duration) -}}{{- end -}}
{{- $c := $v.controller -}}
{{- if eq (include "nodewarden.word" $c.mode) "off" -}}
  {{- range $name := list "livenessSource" "externalNodes" -}}
    {{- if get $c $name -}}{{- $wrong = append $wrong (printf "controller.%s: controller.mode is off, and no controller reads it; set the mode to beside or replace" $name) -}}{{- end -}}
  {{- end -}}
{{- else -}}
  {{- if and $c.externalNodes (eq $c.livenessSource "external") -}}{{- $wrong = append $wrong "controller.externalNodes: livenessSource external leaves none to select from; set one of the two" -}}{{- end -}}
  {{- if and (eq (include "nodewarden.word" $c.mode) "beside") (eq $c.livenessSource "kubelet") (not $c.externalNodes) -}}{{- $wrong = append $wrong "controller.livenessSource: a controller beside the in-tree one acts on outside writes only; set it to external, or set externalNodes" -}}{{- end -}}
{{- end -}}
{{- $grace := include "nodewarden.seconds" $c.nodeMonitorGracePeriod | atoi -}}
{{- if or (lt $grace 1) (gt $grace $day) -}}{{- $wrong = append $wrong (printf "controller.nodeMonitorGracePeriod: %q must be between 1s and 24h" $c.nodeMonitorGracePeriod) -}}{{- end -}}
{{- $labels := list "app.kubernetes.io/name" "app.kubernetes.io/component" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- $annotations := list "nodewarden.dev/policy" -}}
{{- range list
      (list "commonLabels" $v.commonLabels $labels)
      (list "webhook.podLabels" $v.webhook.podLabels $labels)
      (list "controller.podLabels" $c.podLabels $labels)
      (list "monitoring.labels" $v.monitoring.labels $labels)
      (list "pods.nodeSelector" $v.pods.nodeSelector (list "kubernetes.io/os"))
      (list "commonAnnotations" $v.commonAnnotations $annotations)
      (list "webhook.podAnnotations" $v.webhook.podAnnotations $annotations) -}}
  {{- $at := index . 0 -}}{{- $own := index . 2 -}}
  {{- range $key := keys (index . 1 | default dict) | sortAlpha -}}
    {{- if has $key $own -}}{{- $wrong = append $wrong (printf "%s: %s is set by the chart; use a key of your own" $at $key) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (include "nodewarden.serves" .) (eq (int $v.webhook.port) (int $v.webhook.metricsPort)) -}}{{- $wrong = append $wrong (printf "webhook.metricsPort: %d is webhook.port as well; give each its own" (int $v.webhook.port)) -}}{{- end -}}
{{- if and (ne (include "nodewarden.word" $v.controller.mode) "off") $v.webhook.hostNetwork $v.controller.hostNetwork (has (int $v.controller.metricsPort) (list (int $v.webhook.port) (int $v.webhook.metricsPort))) -}}{{- $wrong = append $wrong "controller.metricsPort: is taken by the webhook, which shares the node's network" -}}{{- end -}}
{{- if $wrong -}}{{- fail (printf "\n- %s" (join "\n- " $wrong)) -}}{{- end -}}
{{- end -}}

{{/* An address that an API server takes for a webhook, or none. */}}
{{- define "nodewarden.reachable" -}}
^(https://(\[[0-9A-Fa-f:.]+\]|[^][/?#@:\s]+)(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?/[^?#\s]*)?$
{{- end -}}
