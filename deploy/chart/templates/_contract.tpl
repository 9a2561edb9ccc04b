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
{{- $own := get .policy.rules .rule.name | include "nodewarden.word" -}}
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
configuration, and what the policies are made of. known are all facts that the
rules are stated in, each after those it reads.
*/}}
{{- define "nodewarden.contract" -}}
{{- $p := .Values.policy -}}
{{- $c := .Files.Get "files/contract.yaml" | fromYaml -}}
{{- $controller := dict "serviceAccount" (dict "namespace" .Release.Namespace "name" "nodewarden-controller") -}}
{{- $kubelets := "" -}}{{- $others := list -}}{{- $lifecycle := list -}}
{{- range $p.standIns -}}{{- $kubelets = printf "%s ||\n%s" $kubelets (include "nodewarden.is" (dict "contract" $c "id" .)) -}}{{- end -}}
{{- range concat $p.standIns (list $controller) $p.lifecycle -}}{{- $others = append $others (include "nodewarden.is" (dict "contract" $c "id" .)) -}}{{- end -}}
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

{{- $rules := list -}}{{- $ladder := "" -}}
{{- range $on -}}
  {{- $broken := include "nodewarden.part" (dict "part" .broken "set" $set) -}}
  {{- if .stamp -}}
    {{- $ladder = printf "%s%s ? %q :\n" $ladder $broken .name -}}
    {{- $broken = printf "facts.stamp == %q" .name -}}
  {{- end -}}
  {{- $said := include "nodewarden.part" (dict "part" .said "set" $set) -}}
  {{- $rules = append $rules (dict "name" .name "action" .action "policy" .policy "creation" .creation "refuses" .refuses "broken" $broken
        "finding" (printf "%s ? [[%q], %s] : []" $broken .name $said)) -}}
{{- end -}}

{{- $known := list -}}
{{- range $c.facts -}}
  {{- $known = append $known (dict "name" .name "expression" (include "nodewarden.part" (dict "part" . "set" $set) | replace "@ladder@" $ladder)) -}}
{{- end -}}

{{- $json := dict
  "external" (replace "@kubelets-and-controllers@" (join " ||\n" $others) $c.external)
  "changesReady" $c.changesReady
  "touches" (ternary $c.touches $c.changesReady $set.detectors)
  "skewing" ($c.skewing | replace "@lifecycle@" (join " ||\n" $lifecycle) | replace "@kubelets@" $kubelets
      | replace "@controller@" (include "nodewarden.is" (dict "contract" $c "id" $controller)))
  "advice" (include "nodewarden.part" (dict "part" $c.advice "set" $set))
  "deny" $c.deny
  "tell" $c.tell
  "known" $known
  "rules" $rules
  | toJson -}}
{{- range $hole, $value := $holes -}}{{- $json = replace $hole ($value | toJson | trimPrefix "\"" | trimSuffix "\"") $json -}}{{- end -}}
{{- $json -}}
{{- end -}}

{{/*
The message expression of a rule's policy: dict contract, rule. Each policy
that denies names all broken rules that do. An API server evaluates it for the
writes that the policy admits, too: the message is made only where the rule is broken.
*/}}
{{- define "nodewarden.message" -}}
{{- $denies := eq .rule.action "deny" -}}
{{- $findings := list -}}
{{- range $r := .contract.rules -}}
  {{- if or (eq $r.name $.rule.name) (and $denies (eq $r.action "deny")) -}}
    {{- $findings = append $findings $r.finding -}}
  {{- end -}}
{{- end -}}
{{- $around := include "nodewarden.needs" (dict "known" .contract.known "expression" .rule.broken) | fromJson -}}
{{- $message := ternary .contract.deny .contract.tell $denies | replace "@rule@" .rule.name
    | replace "@advice@" .contract.advice | replace "@findings@" (join ",\n  " $findings) -}}
{{- $message = include "nodewarden.bound" (dict "known" .contract.known "expression" $message "around" $around) -}}
{{- include "nodewarden.bound" (dict "known" .contract.known "expression" (printf "%s ?\n%s : \"\"" .rule.broken $message)) -}}
{{- end -}}

{{/* Finds the facts that an expression reads, and passes over its texts: a name in them may be anything. */}}
{{- define "nodewarden.read" -}}
("(?:[^"\\]|\\.)*")|\bfacts\.(\w+)
{{- end -}}

{{/* The names of the facts that an expression reads, directly or not, as a JSON object: dict known, expression. */}}
{{- define "nodewarden.needs" -}}
{{- $needs := dict -}}
{{- $read := include "nodewarden.read" . -}}
{{- range regexFindAll $read .expression -1 -}}{{- $_ := set $needs (trimPrefix "facts." .) true -}}{{- end -}}
{{- range reverse .known -}}
  {{- if hasKey $needs .name -}}
    {{- range regexFindAll $read .expression -1 -}}{{- $_ := set $needs (trimPrefix "facts." .) true -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- $needs | toJson -}}
{{- end -}}

{{/*
An expression with the facts that it reads bound in it, but for those that are
bound around it: dict known, expression, around (optional). They are no
variables, for an API server prepares those for every request.
*/}}
{{- define "nodewarden.bound" -}}
{{- $needs := include "nodewarden.needs" . | fromJson -}}
{{- $around := .around | default dict -}}
{{- $read := include "nodewarden.read" . -}}
{{- $bound := regexReplaceAll $read .expression "${1}${2}" -}}
{{- range reverse .known -}}
  {{- if and (hasKey $needs .name) (not (hasKey $around .name)) -}}
    {{- $bound = printf "[%s].map(%s,\n%s)[0]" (regexReplaceAll $read .expression "${1}${2}") .name $bound -}}
  {{- end -}}
{{- end -}}
{{- $bound -}}
{{- end -}}

{{/* Fails where an API server would refuse one of the expressions. */}}
{{- define "nodewarden.fits" -}}
{{- range . -}}
  {{- if gt (len .) 100000 }}{{ fail (printf "policy: an expression of %d characters, and an API server takes 100000: list fewer standIns, lifecycle identities or detectors" (len .)) }}{{ end -}}
{{- end -}}
{{- end -}}
