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
			`variables.ready.was.entries > 0 && variables.ready.is.entries == 0`,
			sentence{`"status.conditions[Ready]"`, `"is gone"`, `advice.wasStatus`, `"none"`,
				`"leave the entry in place; record a failure with a strategic merge patch of the Ready entry alone"`}.String()},
		{contract.ReadyDuplicated,
			scoped + `variables.ready.is.entries > 1`,
			sentence{`"status.conditions[Ready]"`, `"stands more than once"`, entries(`variables.ready.was.entries`), entries(`variables.ready.is.entries`),
				`"change the entry that is there; do not append a second one"`}.String()},
		{contract.ConditionDropped,
			scoped + `size(` + lost + `) > 0`,
			sentence{`"status.conditions"`, `"lost other conditions"`, `[` + lost + `].map(lost, ` + list("lost") + `)[0]`, `"none"`,
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
			`variables.ready.is.judged && variables.ready.is.status != "Unknown"`,
			about("status", `"may only become Unknown"`,
				`"send Unknown, or nothing: True, False and the recovery belong to the kubelet; whoever writes for kubelets is listed under standIns in the policy file"`)},
		{contract.ReservedReason,
			`variables.ready.is.judged && variables.ready.is.reason == "NodeStatusUnknown"`,
			about("reason", `"is reserved for the node lifecycle controller"`,
				`"send a reason of your own, such as OutOfBandProbeFailed"`)},
		{contract.ReasonMissing,
			`variables.ready.is.judged && variables.ready.is.reason == ""`,
			about("reason", `"is empty"`, `"say in one CamelCase word why, such as OutOfBandProbeFailed"`)},
		{contract.ReasonInherited,
			`variables.ready.is.judged && (variables.ready.is.reason in ["KubeletReady", "KubeletNotReady"] ||
  variables.ready.was.entries > 0 && ` + becameUnknown + ` && variables.ready.is.reason == variables.ready.was.reason && variables.ready.is.message == variables.ready.was.message)`,
			about("reason", `"is not the detector's own"`,
				`"send reason and message together with the status; a patch without them keeps the kubelet's"`)},
		{contract.ReasonUnclear,
			`variables.ready.is.judged && variables.ready.is.reason != "" && (variables.ready.is.reason == "NodeStatusNeverUpdated" ||
  size(variables.ready.is.reason) > 1024 || !variables.ready.is.reason.matches("^[A-Z][A-Za-z0-9]*$"))`,
			about("reason", `"is not a clear reason"`, `"send one CamelCase word of your own, such as OutOfBandProbeFailed"`)},
		{contract.HeartbeatModified,
			`variables.ready.is.judged && variables.ready.is.heartbeat != variables.ready.was.heartbeat`,
			about("lastHeartbeatTime", `"is the kubelet's and must stay as it is"`,
				`(variables.ready.was.heartbeat == "" ? "leave lastHeartbeatTime out: the kubelet has not set one" :
  (variables.ready.is.heartbeat == "" ? "leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send " :
  "leave lastHeartbeatTime out of the patch, or send ") + `+stamp("variables.ready.was.heartbeat")+`)`)},
		{contract.TransitionTimeMissing,
			`variables.ready.is.transition == ""`,
			about("lastTransitionTime", `"is missing"`, `advice.stamp`)},
		{contract.TransitionTimeImplausible,
			`variables.ready.is.transition != "" && variables.ready.is.transitionAt == 0`,
			about("lastTransitionTime", `"is not between the years 2000 and 2200"`, `advice.stamp`)},
		{contract.TransitionTimeUnchanged,
			changedStatus + ` && variables.ready.is.transition != "" && variables.ready.is.transition == variables.ready.was.transition`,
			about("lastTransitionTime", `"did not move with the status"`, `advice.stamp`)},
		{contract.NewerReady,
			becameUnknown + ` && variables.ready.is.transitionAt > 0 && size(` + notLater + `) > 0`,
			about("lastTransitionTime", `"is not later than the kubelet's last word at " + `+instantOf(notLater+"[0]"), `advice.stamp`)},
		{contract.RecoveryHold,
			takesBack + ` && variables.ready.is.transitionAt > 0 && (` + measured + ` || variables.ready.was.transitionAt > 0) &&
  ` + younger(recoveryAge, hold),
			about("lastTransitionTime", `"takes back a recovery that is " + `+span(recoveryAge)+` + " old"`,
				`(`+measured+` ? "leave the recovery alone for `+hold.String()+`, then look again; " + `+
					span(atLeast(hold)+" - "+recoveryAge)+` + " remain" : advice.stamp)`)},
		{contract.SignalTooYoung,
			becameUnknown + ` && variables.ready.is.transitionAt > 0 && (` + measured + ` || variables.ready.was.heartbeatAt > 0) &&
  ` + younger(silence, persistence),
			about("lastTransitionTime", `"follows a silence of only " + `+span(silence),
				`(`+measured+` ? "wait until the failure has lasted `+persistence.String()+`, then look again; " + `+
					span(atLeast(persistence)+" - "+silence)+` + " remain" : advice.stamp)`)},
		{contract.TransitionTimeMoved,
			`variables.ready.is.judged && variables.ready.was.status == "Unknown" && variables.ready.is.status == "Unknown" &&
  variables.ready.was.transitionAt > 0 && variables.ready.is.transition != "" && variables.ready.is.transition != variables.ready.was.transition`,
			about("lastTransitionTime", `"moved without a transition"`,
				`"leave it at " + variables.ready.was.transition + ": a timer that is re-stamped never expires, and a node that is already Unknown need not be written"`)},
		{contract.ClockSkew,
			`variables.ready.is.judged && variables.ready.is.transition != variables.ready.was.transition && variables.ready.is.transitionAt > 0 && variables.ready.now > 0 &&
  (` + skew + ` > ` + atMost(p.MaxClockSkew) + ` || ` + skew + ` < -` + atMost(p.MaxClockSkew) + `)`,
			about("lastTransitionTime", `"is " + `+span(skew)+` + " from the API server's clock, " + `+instantOf("variables.ready.now"),
				`"set the detector's clock"`)},
		{contract.UnauthorizedDetector,
			`variables.detector.changesLabels || variables.detector.changesReady && !variables.ready.is.repairs && !variables.detector.listed`,
			unauthorized(len(p.Detectors))},
	}
	return slices.DeleteFunc(all, func(c clause) bool {
		return p.Action(c.rule) == contract.Off || c.rule == contract.UnauthorizedDetector && len(p.Detectors) == 0
	})
}

const skew = `variables.ready.is.transitionAt - variables.ready.now`

// stampVerdict is the first of the rules on a new lastTransitionTime that is
// broken, or empty.
func stampVerdict(on []clause) string {
	var ladder string
	for _, c := range on {
		if c.rule.JudgesTransitionTime() {
			ladder += c.broken + ` ? "` + string(c.rule) + `" :` + "\n"
		}
	}
	return `!variables.ready.is.judged ? "" :` + "\n" + ladder + `""`
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
		was, is = "advice.wasStatus", "advice.isStatus"
	case "reason":
		was, is = "advice.wasReason", "advice.isReason"
	case "lastHeartbeatTime":
		was, is = stamp("variables.ready.was.heartbeat"), stamp("variables.ready.is.heartbeat")
	case "lastTransitionTime":
		was, is = stamp("variables.ready.was.transition"), stamp("variables.ready.is.transition")
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
