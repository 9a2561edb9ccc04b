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
{{- $detects := get $p.rules "UnauthorizedDetector" | include "nodewarden.word" -}}
{{- if and $p.detectors (not $detects) -}}{{- $wrong = append $wrong "policy.rules.UnauthorizedDetector: detectors are listed and the rule that reads the list is off by default; set it to deny, warn, audit or off" -}}{{- end -}}
{{- if and $detects (ne $detects "off") (not $p.detectors) -}}{{- $wrong = append $wrong "policy.detectors: rules.UnauthorizedDetector is on and lists nobody; list the detectors, or turn the rule off" -}}{{- end -}}
{{- $young := get $p.rules "SignalTooYoung" | include "nodewarden.word" -}}
{{- if and $young (ne $young "off") (eq (include "nodewarden.seconds" $p.signalPersistence) "0") -}}{{- $wrong = append $wrong "policy.signalPersistence: rules.SignalTooYoung is on and has nothing to measure with; set for example 30s, or turn the rule off" -}}{{- end -}}
{{- if and (not $young) (ne (include "nodewarden.seconds" $p.signalPersistence) "0") -}}{{- $wrong = append $wrong "policy.rules.SignalTooYoung: signalPersistence is set and the rule that reads it is off by default; set it to deny, warn, audit or off" -}}{{- end -}}
{{- if and $v.webhook.url (not $v.certificates.caBundle) -}}{{- $wrong = append $wrong "certificates.caBundle: webhook.url is the address of a server elsewhere; give the authority that signed its certificate" -}}{{- end -}}
{{- if and $v.webhook.url (eq $v.install "policy-alone") -}}{{- $wrong = append $wrong "webhook.url: install policy-alone has no webhook" -}}{{- end -}}
{{- if and (eq $v.certificates.mode "provided") (include "nodewarden.serves" .) (not $v.certificates.caBundle) -}}{{- $wrong = append $wrong "certificates.caBundle: with certificates.mode provided, give the authority that signed the certificate in the Secret certificates.secretName" -}}{{- end -}}
{{- if and $v.webhook.hostNetwork (eq (int $v.webhook.port) (int $v.webhook.metricsPort)) -}}{{- $wrong = append $wrong "webhook.metricsPort: is webhook.port" -}}{{- end -}}
{{- if and (ne (include "nodewarden.word" $v.controller.mode) "off") $v.webhook.hostNetwork $v.controller.hostNetwork (has (int $v.controller.metricsPort) (list (int $v.webhook.port) (int $v.webhook.metricsPort))) -}}{{- $wrong = append $wrong "controller.metricsPort: is taken by the webhook, which shares the node's network" -}}{{- end -}}
{{- if $wrong -}}{{- fail (printf "\n- %s" (join "\n- " $wrong)) -}}{{- end -}}
{{- end -}}
