{{/*
The policy file's values in files/contract.yaml's expressions. What comes out
is, object by object, what `nodewarden policy render` makes of the same policy
file; test/deploy holds the two equal.
*/}}

{{/* The seconds of a duration such as 1h30m. */}}
{{- define "nodewarden.seconds" -}}
{{- $h := regexFind "[0-9]+h" . | trimSuffix "h" | default "0" | atoi -}}
{{- $m := regexFind "[0-9]+m" . | trimSuffix "m" | default "0" | atoi -}}
{{- $s := regexFind "[0-9]+s" . | trimSuffix "s" | default "0" | atoi -}}
{{- add (mul $h 3600) (mul $m 60) $s -}}
{{- end -}}

{{/* What the policy does about a broken rule: dict policy, rule. */}}
{{- define "nodewarden.action" -}}
{{- $own := get .policy.rules .rule.name -}}
{{- if $own -}}{{ $own }}
{{- else if and (eq .policy.profile "warn") (eq .rule.default "deny") -}}warn
{{- else if and (eq .policy.profile "audit") (has .rule.default (list "deny" "warn")) -}}audit
{{- else -}}{{ .rule.default }}
{{- end -}}
{{- end -}}

{{/* One writer: dict contract, id. */}}
{{- define "nodewarden.is" -}}
{{- if .id.serviceAccount -}}
{{- $user := printf "system:serviceaccount:%s:%s" .id.serviceAccount.namespace .id.serviceAccount.name -}}
{{- $group := printf "system:serviceaccounts:%s" .id.serviceAccount.namespace -}}
{{- .contract.isIn | replace "@user@" ($user | quote) | replace "@group@" ($group | quote) -}}
{{- else if .id.group -}}
{{- .contract.isIn | replace "@user@" (.id.user | quote) | replace "@group@" (.id.group | quote) -}}
{{- else -}}
{{- .contract.is | replace "@user@" (.id.user | quote) -}}
{{- end -}}
{{- end -}}

{{/* Whether a writer is a listed detector of this Node: dict contract, detectors. */}}
{{- define "nodewarden.detectors" -}}
{{- $contract := .contract -}}
{{- $any := list -}}
{{- range $d := .detectors -}}
  {{- $needs := dict -}}
  {{- $selector := $d.nodeSelector | default dict -}}
  {{- range $key, $value := $selector.matchLabels -}}
    {{- $_ := set $needs $key (dict "operator" "In" "values" (list $value)) -}}
  {{- end -}}
  {{- range $e := $selector.matchExpressions -}}
    {{- if hasKey $needs $e.key -}}
      {{- fail (printf "policy.detectors: a node selector names the label %q twice, which the chart cannot render; use `nodewarden policy render`, or say it once" $e.key) -}}
    {{- end -}}
    {{- $_ := set $needs $e.key $e -}}
  {{- end -}}
  {{- $all := list (include "nodewarden.is" (dict "contract" $contract "id" $d)) -}}
  {{- range $key := keys $needs | sortAlpha -}}
    {{- $need := get $needs $key -}}
    {{- $values := list -}}
    {{- range $need.values | default list | uniq | sortAlpha -}}{{- $values = append $values (quote .) -}}{{- end -}}
    {{- $all = append $all (get $contract.selects $need.operator | replace "@key@" (quote $key) | replace "@values@" (printf "[%s]" (join ", " $values))) -}}
  {{- end -}}
  {{- $any = append $any (join " && " $all) -}}
{{- end -}}
{{- $any | join " ||\n" | default "false" -}}
{{- end -}}

{{/* The case of a part that applies: dict part, set. */}}
{{- define "nodewarden.part" -}}
{{- if .part.by -}}
  {{- $key := "" -}}
  {{- $set := .set -}}
  {{- range .part.by -}}{{- $key = printf "%s%s" $key (ternary "1" "0" (get $set .)) -}}{{- end -}}
  {{- get .part.cases $key -}}
{{- else -}}
  {{- .part.text -}}
{{- end -}}
{{- end -}}

{{/*
The contract under these values, as JSON: the expressions of the webhook
configuration, and what the policies are made of. known are all variables,
each after those it reads, not yet folded.
*/}}
{{- define "nodewarden.contract" -}}
{{- $p := .Values.policy -}}
{{- $c := .Files.Get "files/contract.yaml" | fromYaml -}}
{{- $controller := dict "serviceAccount" (dict "namespace" .Release.Namespace "name" "nodewarden-controller") -}}
{{- $kubelets := "" -}}{{- $others := "" -}}{{- $lifecycle := list -}}
{{- range $p.standIns -}}{{- $kubelets = printf "%s ||\n%s" $kubelets (include "nodewarden.is" (dict "contract" $c "id" .)) -}}{{- end -}}
{{- range concat (list $controller) $p.lifecycle -}}{{- $others = printf "%s ||\n%s" $others (include "nodewarden.is" (dict "contract" $c "id" .)) -}}{{- end -}}
{{- range $p.lifecycle -}}{{- $lifecycle = append $lifecycle (include "nodewarden.is" (dict "contract" $c "id" .)) -}}{{- end -}}

{{- $on := list -}}
{{- range $r := $c.rules -}}
  {{- $action := include "nodewarden.action" (dict "policy" $p "rule" $r) -}}
  {{- if not (or (eq $action "off") (and (eq $r.name "UnauthorizedDetector") (not $p.detectors))) -}}
    {{- $on = append $on (merge (dict "action" $action) $r) -}}
  {{- end -}}
{{- end -}}
{{- $names := list -}}{{- range $on -}}{{- $names = append $names .name -}}{{- end -}}

{{- $hold := include "nodewarden.seconds" $p.recoveryHold -}}
{{- $persistence := include "nodewarden.seconds" $p.signalPersistence -}}
{{- $set := dict
  "hold" (and (has "RecoveryHold" $names) (ne $hold "0"))
  "persistence" (and (has "SignalTooYoung" $names) (ne $persistence "0"))
  "detectors" (has "UnauthorizedDetector" $names) -}}
{{- $holes := dict
  "@recovery-hold-seconds@" $hold "@recovery-hold-text@" (duration $hold)
  "@signal-persistence-seconds@" $persistence "@signal-persistence-text@" (duration $persistence)
  "@max-clock-skew-seconds@" (include "nodewarden.seconds" $p.maxClockSkew)
  "@detector-count@" (len $p.detectors | toString)
  "@detectors@" (include "nodewarden.detectors" (dict "contract" $c "detectors" $p.detectors)) -}}

{{- $known := list -}}
{{- range $c.variables -}}
  {{- $known = append $known (dict "name" .name "expression" (include "nodewarden.part" (dict "part" . "set" $set))) -}}
{{- end -}}
{{- $earlier := "" -}}{{- $findings := list -}}
{{- range $on -}}
  {{- $broken := include "nodewarden.part" (dict "part" .broken "set" $set) -}}
  {{- if .stamp -}}
    {{- $broken = printf "%s%s" $broken $earlier -}}
    {{- $earlier = printf "%s && !variables.%s" $earlier .name -}}
  {{- end -}}
  {{- $known = append $known (dict "name" .name "expression" $broken) -}}
  {{- $known = append $known (dict "name" (printf "said%s" .name) "expression" (include "nodewarden.part" (dict "part" .said "set" $set))) -}}
  {{- if eq .action "deny" -}}{{- $findings = append $findings (printf "variables.%s ? [%q, variables.said%s] : []" .name .name .name) -}}{{- end -}}
{{- end -}}
{{- $known = append $known (dict "name" "findings" "expression" (printf "[\n  %s].filter(f, size(f) > 0)" (join ",\n  " $findings))) -}}
{{- range $v := $known -}}
  {{- $e := $v.expression -}}
  {{- range $hole, $value := $holes -}}{{- $e = replace $hole $value $e -}}{{- end -}}
  {{- $_ := set $v "expression" $e -}}
{{- end -}}

{{- dict
  "external" (replace "@kubelets-and-controllers@" (printf "%s%s" $kubelets $others) $c.external)
  "changesReady" $c.changesReady
  "touches" (ternary $c.touches $c.changesReady $set.detectors)
  "skewing" ($c.skewing | replace "@lifecycle@" (join " ||\n" $lifecycle) | replace "@kubelets@" $kubelets
      | replace "@controller@" (include "nodewarden.is" (dict "contract" $c "id" $controller)))
  "toReserved" $c.toReserved
  "message" $c.message
  "short" $c.short
  "kept" $c.kept
  "known" $known
  "rules" $on
  | toJson -}}
{{- end -}}

{{/*
The variables that a policy carries, in order, as JSON: dict contract, known,
expressions (those that read them). An API server prepares every variable for
every request, so what is short or read once stands where it is read.
*/}}
{{- define "nodewarden.needed" -}}
{{- $of := dict -}}
{{- range .known -}}{{- $_ := set $of .name (regexFindAll "\\bvariables\\.\\w+" .expression -1) -}}{{- end -}}
{{- $direct := dict -}}{{- $reads := dict -}}
{{- range .expressions -}}
  {{- range regexFindAll "\\bvariables\\.\\w+" . -1 -}}
    {{- $_ := set $direct (trimPrefix "variables." .) true -}}
    {{- include "nodewarden.count" (dict "of" $of "name" (trimPrefix "variables." .) "reads" $reads) -}}
  {{- end -}}
{{- end -}}
{{- $contract := .contract -}}
{{- $kept := list -}}{{- $final := dict -}}
{{- range $v := .known -}}
  {{- $n := get $reads $v.name | default 0 -}}
  {{- if gt $n 0 -}}
    {{- $e := $v.expression -}}
    {{- range get $of $v.name | uniq -}}
      {{- $name := trimPrefix "variables." . -}}
      {{- if hasKey $final $name -}}
        {{- $stands := get $final $name -}}
        {{- if not (regexMatch "^[\\w.]+$" $stands) -}}{{- $stands = printf "(%s)" $stands -}}{{- end -}}
        {{- $e = regexReplaceAllLiteral (printf "\\bvariables\\.%s\\b" $name) $e $stands -}}
      {{- end -}}
    {{- end -}}
    {{- if and (not (hasKey $direct $v.name)) (not (has $v.name $contract.kept)) (or (eq $n 1) (le (len $e) (int $contract.short))) -}}
      {{- $_ := set $final $v.name $e -}}
    {{- else -}}
      {{- $kept = append $kept (dict "name" $v.name "expression" $e) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "variables" $kept | toJson -}}
{{- end -}}

{{/* Counts in how many places each variable is read, beginning with name: dict of, name, reads. */}}
{{- define "nodewarden.count" -}}
{{- $n := add1 (get .reads .name | default 0) | int -}}
{{- $_ := set .reads .name $n -}}
{{- if eq $n 1 -}}
  {{- $of := .of -}}{{- $reads := .reads -}}
  {{- range get .of .name -}}
    {{- include "nodewarden.count" (dict "of" $of "name" (trimPrefix "variables." .) "reads" $reads) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
