package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodewarden/nodewarden/contract"
)

// clause is one rule of the contract in CEL.
type clause struct {
	rule contract.Rule
	// broken is true where a write breaks the rule. Those on a new
	// lastTransitionTime exclude each other; see verdict.
	broken string
	// said is the sentence about it, a text on one line.
	said string
}

// clauses holds every rule that p does not turn off, in table order.
func clauses(p *contract.Policy) []clause {
	hold, persistence, scoped := p.RecoveryHold, p.SignalPersistence, inScope(p)
	all := []clause{
		{contract.ReadyMissing,
			`variables.was.entries > 0 && variables.is.entries == 0`,
			sentence{`"status.conditions[Ready]"`, `"is gone"`, `variables.advice.wasStatus`, `"none"`,
				`"leave the entry in place; record a failure with a strategic merge patch of the Ready entry alone"`}.String()},
		{contract.ReadyDuplicated,
			scoped + `variables.is.entries > 1`,
			sentence{`"status.conditions[Ready]"`, `"stands more than once"`, entries(`variables.was.entries`), entries(`variables.is.entries`),
				`"change the entry that is there; do not append a second one"`}.String()},
		{contract.ConditionDropped,
			scoped + `size(variables.lost) > 0`,
			sentence{`"status.conditions"`, `"lost other conditions"`, list(`variables.lost`), `"none"`,
				`"use a strategic merge patch of the Ready entry alone; a JSON merge patch replaces the whole list"`}.String()},
		{contract.OtherConditionChanged,
			scoped + `size(variables.changedPressures) > 0`,
			sentence{`"status.conditions"`, `"changed beside Ready"`, `"as the kubelet wrote them"`, list(`variables.changedPressures`) + ` + " changed"`,
				`"change the Ready entry alone; the other conditions are the kubelet's"`}.String()},
		{contract.LabelsChanged,
			scoped + `size(variables.touched) > 0`,
			sentence{`variables.touched.join(",")`, `"changed together with Ready"`, `"unchanged by a status write"`, `"changed"`,
				`"change metadata through the node itself, not through nodes/status"`}.String()},
		{contract.StatusNotUnknown,
			`variables.is.judged && variables.is.status != "Unknown"`,
			about("status", `"may only become Unknown"`,
				`"send Unknown, or nothing: True, False and the recovery belong to the kubelet; whoever writes for kubelets is listed under standIns in the policy file"`)},
		{contract.ReservedReason,
			`variables.is.judged && variables.is.reason == "NodeStatusUnknown"`,
			about("reason", `"is reserved for the node lifecycle controller"`,
				`"send a reason of your own, such as OutOfBandProbeFailed"`)},
		{contract.ReasonMissing,
			`variables.is.judged && variables.is.reason == ""`,
			about("reason", `"is empty"`, `"say in one CamelCase word why, such as OutOfBandProbeFailed"`)},
		{contract.ReasonInherited,
			`variables.is.judged && (variables.is.reason in ["KubeletReady", "KubeletNotReady"] ||
  variables.was.entries > 0 && ` + becameUnknown + ` && variables.is.reason == variables.was.reason && variables.is.message == variables.was.message)`,
			about("reason", `"is not the detector's own"`,
				`"send reason and message together with the status; a patch without them keeps the kubelet's"`)},
		{contract.ReasonUnclear,
			`variables.is.judged && variables.is.reason != "" && (variables.is.reason == "NodeStatusNeverUpdated" ||
  size(variables.is.reason) > 1024 || !variables.is.reason.matches("^[A-Z][A-Za-z0-9]*$"))`,
			about("reason", `"is not a clear reason"`, `"send one CamelCase word of your own, such as OutOfBandProbeFailed"`)},
		{contract.HeartbeatModified,
			`variables.is.judged && variables.is.heartbeat != variables.was.heartbeat`,
			about("lastHeartbeatTime", `"is the kubelet's and must stay as it is"`,
				`(variables.was.heartbeat == "" ? "leave lastHeartbeatTime out: the kubelet has not set one" :
  (variables.is.heartbeat == "" ? "leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send " :
  "leave lastHeartbeatTime out of the patch, or send ") + `+stamp("variables.was.heartbeat")+`)`)},
		{contract.TransitionTimeMissing,
			`variables.is.transition == ""`,
			about("lastTransitionTime", `"is missing"`, `variables.advice.stamp`)},
		{contract.TransitionTimeImplausible,
			`variables.is.transition != "" && variables.is.transitionAt == 0`,
			about("lastTransitionTime", `"is not between the years 2000 and 2200"`, `variables.advice.stamp`)},
		{contract.TransitionTimeUnchanged,
			changedStatus + ` && variables.is.transition != "" && variables.is.transition == variables.was.transition`,
			about("lastTransitionTime", `"did not move with the status"`, `variables.advice.stamp`)},
		{contract.NewerReady,
			becameUnknown + ` && variables.is.transitionAt > 0 && size(` + notLater + `) > 0`,
			about("lastTransitionTime", `"is not later than the kubelet's last word at " + `+instantOf(notLater+"[0]"), `variables.advice.stamp`)},
		{contract.RecoveryHold,
			takesBack + ` && variables.is.transitionAt > 0 && (` + measured + ` || variables.was.transitionAt > 0) &&
  ` + younger(recoveryAge, hold),
			about("lastTransitionTime", `"takes back a recovery that is " + `+span(recoveryAge)+` + " old"`,
				`(`+measured+` ? "leave the recovery alone for `+hold.String()+`, then look again; " + `+
					span(atLeast(hold)+" - "+recoveryAge)+` + " remain" : variables.advice.stamp)`)},
		{contract.SignalTooYoung,
			becameUnknown + ` && variables.is.transitionAt > 0 && (` + measured + ` || variables.was.heartbeatAt > 0) &&
  ` + younger(silence, persistence),
			about("lastTransitionTime", `"follows a silence of only " + `+span(silence),
				`(`+measured+` ? "wait until the failure has lasted `+persistence.String()+`, then look again; " + `+
					span(atLeast(persistence)+" - "+silence)+` + " remain" : variables.advice.stamp)`)},
		{contract.TransitionTimeMoved,
			`variables.is.judged && variables.was.status == "Unknown" && variables.is.status == "Unknown" &&
  variables.was.transitionAt > 0 && variables.is.transition != "" && variables.is.transition != variables.was.transition`,
			about("lastTransitionTime", `"moved without a transition"`,
				`"leave it at " + variables.was.transition + ": a timer that is re-stamped never expires, and a node that is already Unknown need not be written"`)},
		{contract.ClockSkew,
			`variables.is.judged && variables.is.transition != variables.was.transition && variables.is.transitionAt > 0 && variables.clock.now > 0 &&
  (` + skew + ` > ` + atMost(p.MaxClockSkew) + ` || ` + skew + ` < -` + atMost(p.MaxClockSkew) + `)`,
			about("lastTransitionTime", `"is " + `+span(skew)+` + " from the API server's clock, " + `+instantOf("variables.clock.now"),
				`"set the detector's clock"`)},
		{contract.UnauthorizedDetector,
			`variables.detector.changesLabels || variables.detector.changesReady && !variables.is.repairs && !variables.detector.listed`,
			unauthorized(len(p.Detectors))},
	}
	return slices.DeleteFunc(all, func(c clause) bool {
		return p.Action(c.rule) == contract.Off || c.rule == contract.UnauthorizedDetector && len(p.Detectors) == 0
	})
}

const skew = `variables.is.transitionAt - variables.clock.now`

// stampVerdict is the first of the rules on a new lastTransitionTime that is
// broken, or empty.
func stampVerdict(on []clause) string {
	var ladder string
	for _, c := range on {
		if c.rule.JudgesTransitionTime() {
			ladder += c.broken + ` ? "` + string(c.rule) + `" :` + "\n"
		}
	}
	return `!variables.is.judged ? "" :` + "\n" + ladder + `""`
}

// isBroken is true where a write breaks the rule.
func (c clause) isBroken() string {
	if c.rule.JudgesTransitionTime() {
		return `variables.stamp == "` + string(c.rule) + `"`
	}
	return c.broken
}

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

// about is a sentence on one field of the Ready entry.
func about(field, problem, remedy string) string {
	was, is := "", ""
	switch field {
	case "status":
		was, is = "variables.advice.wasStatus", "variables.advice.isStatus"
	case "reason":
		was, is = "variables.advice.wasReason", "variables.advice.isReason"
	case "lastHeartbeatTime":
		was, is = stamp("variables.was.heartbeat"), stamp("variables.is.heartbeat")
	case "lastTransitionTime":
		was, is = stamp("variables.was.transition"), stamp("variables.is.transition")
	}
	return sentence{quoted("status.conditions[Ready]." + field), problem, was, is, remedy}.String()
}

func unauthorized(detectors int) string {
	labels := sentence{`"metadata.labels"`, `"decide which detector may write"`, `"unchanged by a status write"`, `"changed"`,
		`"change labels through the node itself, not through nodes/status"`}
	writer := sentence{`"request.userInfo.username"`, `"is not a listed detector of this node"`, `"one of ` + strconv.Itoa(detectors) + ` listed"`, shown(username),
		`"add the writer under detectors in the policy file, with a node selector that matches the node"`}
	return `variables.detector.changesLabels ?
  ` + labels.String() + ` :
  ` + writer.String()
}
