package policy

import (
	"strconv"
	"strings"
	"time"

	"github.com/nodewarden/nodewarden/contract"
)

// clause is one rule of the contract in CEL.
type clause struct {
	rule contract.Rule
	// broken is true where a write breaks the rule.
	broken string
	// said is the sentence about it, a text on one line.
	said string
}

// clauses holds every rule that p does not turn off, in table order.
func clauses(p *contract.Policy) []clause {
	hold, persistence := p.RecoveryHold, p.SignalPersistence
	all := []clause{
		{contract.ReadyMissing,
			`variables.inScope && size(variables.oldReady) > 0 && size(variables.newReady) == 0`,
			sentence{`"status.conditions[Ready]"`, `"is gone"`, `variables.wasStatus`, `"none"`,
				`"leave the entry in place; record a failure with a strategic merge patch of the Ready entry alone"`}.String()},
		{contract.ReadyDuplicated,
			`variables.inScope && size(variables.newReady) > 1`,
			sentence{`"status.conditions[Ready]"`, `"stands more than once"`, entries(`size(variables.oldReady)`), entries(`size(variables.newReady)`),
				`"change the entry that is there; do not append a second one"`}.String()},
		{contract.ConditionDropped,
			`variables.inScope && size(variables.lost) > 0`,
			sentence{`"status.conditions"`, `"lost other conditions"`, list(`variables.lost`), `"none"`,
				`"use a strategic merge patch of the Ready entry alone; a JSON merge patch replaces the whole list"`}.String()},
		{contract.OtherConditionChanged,
			`variables.inScope && size(variables.changedPressures) > 0`,
			sentence{`"status.conditions"`, `"changed beside Ready"`, `"as the kubelet wrote them"`, list(`variables.changedPressures`) + ` + " changed"`,
				`"change the Ready entry alone; the other conditions are the kubelet's"`}.String()},
		{contract.LabelsChanged,
			`variables.inScope && size(variables.touched) > 0`,
			sentence{`variables.touched.join(",")`, `"changed together with Ready"`, `"unchanged by a status write"`, `"changed"`,
				`"change metadata through the node itself, not through nodes/status"`}.String()},
		{contract.StatusNotUnknown,
			`variables.judged && variables.is.status != "Unknown"`,
			about("status", `"may only become Unknown"`,
				`"send Unknown, or nothing: True, False and the recovery belong to the kubelet; whoever writes for kubelets is listed under standIns in the policy file"`)},
		{contract.ReservedReason,
			`variables.judged && variables.is.reason == "NodeStatusUnknown"`,
			about("reason", `"is reserved for the node lifecycle controller"`,
				`"send a reason of your own, such as OutOfBandProbeFailed"`)},
		{contract.ReasonMissing,
			`variables.judged && variables.is.reason == ""`,
			about("reason", `"is empty"`, `"say in one CamelCase word why, such as OutOfBandProbeFailed"`)},
		{contract.ReasonInherited,
			`variables.judged && (variables.is.reason in ["KubeletReady", "KubeletNotReady"] ||
  size(variables.oldReady) > 0 && variables.becameUnknown && variables.is.reason == variables.was.reason && variables.is.message == variables.was.message)`,
			about("reason", `"is not the detector's own"`,
				`"send reason and message together with the status; a patch without them keeps the kubelet's"`)},
		{contract.ReasonUnclear,
			`variables.judged && variables.is.reason != "" && (variables.is.reason == "NodeStatusNeverUpdated" ||
  size(variables.is.reason) > 1024 || !variables.is.reason.matches("^[A-Z][A-Za-z0-9]*$"))`,
			about("reason", `"is not a clear reason"`, `"send one CamelCase word of your own, such as OutOfBandProbeFailed"`)},
		{contract.HeartbeatModified,
			`variables.judged && variables.is.heartbeat != variables.was.heartbeat`,
			about("lastHeartbeatTime", `"is the kubelet's and must stay as it is"`,
				`(variables.was.heartbeat == "" ? "leave lastHeartbeatTime out: the kubelet has not set one" :
  (variables.is.heartbeat == "" ? "leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send " :
  "leave lastHeartbeatTime out of the patch, or send ") + variables.wasHeartbeat)`)},
		{contract.TransitionTimeMissing,
			`variables.judged && variables.is.transition == ""`,
			about("lastTransitionTime", `"is missing"`, `variables.stampRemedy`)},
		{contract.TransitionTimeImplausible,
			`variables.judged && variables.is.transition != "" && !variables.stampPlausible`,
			about("lastTransitionTime", `"is not between the years 2000 and 2200"`, `variables.stampRemedy`)},
		{contract.TransitionTimeUnchanged,
			`variables.judged && variables.changedStatus && variables.is.transition != "" && variables.is.transition == variables.was.transition`,
			about("lastTransitionTime", `"did not move with the status"`, `variables.stampRemedy`)},
		{contract.NewerReady,
			`variables.judged && variables.becameUnknown && variables.stampPlausible && size(variables.notLater) > 0`,
			about("lastTransitionTime", `"is not later than the kubelet's last word at " + variables.notLater[0]`, `variables.stampRemedy`)},
		{contract.RecoveryHold,
			allOf(`variables.judged && variables.takesBack && variables.stampPlausible`,
				`  (variables.measured || `+plausible("variables.was.transition")+`) && `+younger("variables.recoveryAge", hold)),
			about("lastTransitionTime", `"takes back a recovery that is " + `+span("variables.recoveryAge")+` + " old"`,
				`(variables.measured ? "leave the recovery alone for `+hold.String()+`, then look again; " + `+
					span(atLeast(hold)+" - variables.recoveryAge")+` + " remain" : variables.stampRemedy)`)},
		{contract.SignalTooYoung,
			allOf(`variables.judged && variables.becameUnknown && variables.stampPlausible`,
				`  (variables.measured || `+plausible("variables.was.heartbeat")+`) && `+younger("variables.silence", persistence)),
			about("lastTransitionTime", `"follows a silence of only " + `+span("variables.silence"),
				`(variables.measured ? "wait until the failure has lasted `+persistence.String()+`, then look again; " + `+
					span(atLeast(persistence)+" - variables.silence")+` + " remain" : variables.stampRemedy)`)},
		{contract.TransitionTimeMoved,
			`variables.judged && variables.was.status == "Unknown" && variables.is.status == "Unknown" &&
  ` + plausible("variables.was.transition") + ` && variables.is.transition != "" && variables.is.transition != variables.was.transition`,
			about("lastTransitionTime", `"moved without a transition"`,
				`"leave it at " + variables.wasTransition + ": a timer that is re-stamped never expires, and a node that is already Unknown need not be written"`)},
		{contract.ClockSkew,
			`variables.judged && variables.is.transition != variables.was.transition && variables.stampPlausible && variables.now != "" &&
  (variables.skew > ` + atMost(p.MaxClockSkew) + ` || variables.skew < -` + atMost(p.MaxClockSkew) + `)`,
			about("lastTransitionTime", `"is " + `+span("variables.skew")+` + " from the API server's clock, " + variables.now`,
				`"set the detector's clock"`)},
		{contract.UnauthorizedDetector,
			`variables.changesLabels || variables.inScope && !variables.repairs && !variables.authorized`,
			unauthorized(len(p.Detectors))},
	}
	return exclusive(p, all)
}

// exclusive leaves out what p turns off, and makes the rules on a new
// lastTransitionTime exclude each other in table order.
func exclusive(p *contract.Policy, all []clause) []clause {
	var on []clause
	var earlier string
	for _, c := range all {
		if p.Action(c.rule) == contract.Off || c.rule == contract.UnauthorizedDetector && len(p.Detectors) == 0 {
			continue
		}
		if c.rule.JudgesTransitionTime() {
			c.broken += earlier
			earlier += ` && !` + isBroken(c.rule)
		}
		on = append(on, c)
	}
	return on
}

// isBroken reads whether a rule is, said sentence about it.
func isBroken(r contract.Rule) string { return "variables." + string(r) }

func said(r contract.Rule) string { return "variables.said" + string(r) }

func younger(age string, limit time.Duration) string {
	if limit <= 0 { // zero disables the rule
		return "false"
	}
	return age + ` < ` + atLeast(limit)
}

func span(seconds string) string { return `string(` + seconds + `) + "s"` }

func entries(n string) string {
	return `(` + n + ` == 1 ? "1 entry" : string(` + n + `) + " entries")`
}

// list joins names, cut to a bounded length.
func list(names string) string {
	joined := names + `.map(t, ` + shown("t") + `).join(", ")`
	return `(size(` + names + `) <= 8 ? ` + joined + ` : ` + joined + `.substring(0, 32) + "..., and more")`
}

// sentence is what contract.Violation says, as an expression: five texts.
type sentence struct{ field, problem, was, is, remedy string }

func (s sentence) String() string {
	texts := []string{s.field, `" "`, s.problem, `" (was "`, s.was, `", is "`, s.is, `"): "`, s.remedy}
	return strings.ReplaceAll(strings.Join(texts, " + "), `" + "`, "") // neighbouring literals become one
}

var shownAs = map[string]string{"status": "Status", "reason": "Reason", "lastHeartbeatTime": "Heartbeat", "lastTransitionTime": "Transition"}

// about is a sentence on one field of the Ready entry.
func about(field, problem, remedy string) string {
	return sentence{quoted("status.conditions[Ready]." + field), problem,
		"variables.was" + shownAs[field], "variables.is" + shownAs[field], remedy}.String()
}

func unauthorized(detectors int) string {
	labels := sentence{`"metadata.labels"`, `"decide which detector may write"`, `"unchanged by a status write"`, `"changed"`,
		`"change labels through the node itself, not through nodes/status"`}
	writer := sentence{`"request.userInfo.username"`, `"is not a listed detector of this node"`, `"one of ` + strconv.Itoa(detectors) + ` listed"`, shown(username),
		`"add the writer under detectors in the policy file, with a node selector that matches the node"`}
	return `variables.changesLabels ?
  ` + labels.String() + ` :
  ` + writer.String()
}
