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
	// said is the sentence about it.
	said string
}

// clauses holds every rule that p does not turn off, in table order.
func clauses(p *contract.Policy) []clause {
	hold, persistence, scoped := p.RecoveryHold, p.SignalPersistence, inScope(p)
	all := []clause{
		{contract.ReadyMissing,
			`facts.was.entries > 0 && facts.is.entries == 0`,
			sentence{`"status.conditions[Ready]"`, `"is gone"`, wasStatus, `"none"`,
				`"leave the entry in place; record a failure with a strategic merge patch of the Ready entry alone"`}.String()},
		{contract.ReadyDuplicated,
			scoped + `facts.is.entries > 1`,
			sentence{`"status.conditions[Ready]"`, `"stands more than once"`, entries(`facts.was.entries`), entries(`facts.is.entries`),
				`"change the entry that is there; do not append a second one"`}.String()},
		{contract.ConditionDropped,
			scoped + `size(facts.lost) > 0`,
			sentence{`"status.conditions"`, `"lost other conditions"`, list(`facts.lost`), `"none"`,
				`"use a strategic merge patch of the Ready entry alone; a JSON merge patch replaces the whole list"`}.String()},
		{contract.OtherConditionChanged,
			scoped + `size(facts.changedPressures) > 0`,
			sentence{`"status.conditions"`, `"changed beside Ready"`, `"as the kubelet wrote them"`, list(`facts.changedPressures`) + ` + " changed"`,
				`"change the Ready entry alone; the other conditions are the kubelet's"`}.String()},
		{contract.LabelsChanged,
			scoped + `size(facts.touched) > 0`,
			sentence{`facts.touched.join(",")`, `"changed together with Ready"`, `"unchanged by a status write"`, `"changed"`,
				`"change metadata through the node itself, not through nodes/status"`}.String()},
		{contract.StatusNotUnknown,
			`facts.judged && facts.is.status != "Unknown"`,
			about("status", `"may only become Unknown"`,
				`"send Unknown, or nothing: True, False and the recovery belong to the kubelet; whoever writes for kubelets is listed under standIns in the policy file"`)},
		{contract.ReservedReason,
			`facts.judged && facts.is.reason == "NodeStatusUnknown"`,
			about("reason", `"is reserved for the node lifecycle controller"`,
				`"send a reason of your own, such as OutOfBandProbeFailed"`)},
		{contract.ReasonMissing,
			`facts.judged && facts.is.reason == ""`,
			about("reason", `"is empty"`, `"say in one CamelCase word why, such as OutOfBandProbeFailed"`)},
		{contract.ReasonInherited,
			`facts.judged && (facts.is.reason in ["KubeletReady", "KubeletNotReady"] ||
  facts.was.entries > 0 && ` + becameUnknown + ` && facts.is.reason == facts.was.reason && facts.is.message == facts.was.message)`,
			about("reason", `"is not the detector's own"`,
				`"send reason and message together with the status; a patch without them keeps the kubelet's"`)},
		{contract.ReasonUnclear,
			`facts.judged && facts.is.reason != "" && (facts.is.reason == "NodeStatusNeverUpdated" ||
  size(facts.is.reason) > 1024 || !facts.is.reason.matches("^[A-Z][A-Za-z0-9]*$"))`,
			about("reason", `"is not a clear reason"`, `"send one CamelCase word of your own, such as OutOfBandProbeFailed"`)},
		{contract.HeartbeatModified,
			`facts.judged && facts.is.heartbeat != facts.was.heartbeat`,
			about("lastHeartbeatTime", `"is the kubelet's and must stay as it is"`,
				`(facts.was.heartbeat == "" ? "leave lastHeartbeatTime out: the kubelet has not set one" :
  "leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send " + `+stamp("facts.was.heartbeat")+`)`)},
		{contract.TransitionTimeMissing,
			`facts.is.transition == ""`,
			about("lastTransitionTime", `"is missing"`, stampToSend)},
		{contract.TransitionTimeImplausible,
			`facts.is.transition != "" && facts.is.transitionAt == 0`,
			about("lastTransitionTime", `"is not between the years 2000 and 2200"`, stampToSend)},
		{contract.TransitionTimeUnchanged,
			changedStatus + ` && facts.is.transition != "" && facts.is.transition == facts.was.transition`,
			about("lastTransitionTime", `"did not move with the status"`, stampToSend)},
		{contract.NewerReady,
			becameUnknown + ` && facts.is.transitionAt > 0 && size(facts.notLater) > 0`,
			about("lastTransitionTime", `"is not later than the kubelet's last word at " + `+instantOf("facts.notLater[0]"), stampToSend)},
		{contract.RecoveryHold,
			takesBack + ` && facts.is.transitionAt > 0 && (facts.measured || facts.was.transitionAt > 0) &&
  ` + younger("facts.recoveryAge", hold),
			about("lastTransitionTime", `"takes back a recovery that is " + `+span("facts.recoveryAge")+` + " old"`,
				`(facts.measured ? "leave the recovery alone for `+hold.String()+`, then look again; " + `+
					span(atLeast(hold)+" - facts.recoveryAge")+` + " remain" : `+stampToSend+`)`)},
		{contract.SignalTooYoung,
			becameUnknown + ` && facts.is.transitionAt > 0 && (facts.measured || facts.was.heartbeatAt > 0) &&
  ` + younger("facts.silence", persistence),
			about("lastTransitionTime", `"follows a silence of only " + `+span("facts.silence"),
				`(facts.measured ? "wait until the failure has lasted `+persistence.String()+`, then look again; " + `+
					span(atLeast(persistence)+" - facts.silence")+` + " remain" : `+stampToSend+`)`)},
		{contract.TransitionTimeMoved,
			`facts.judged && facts.was.status == "Unknown" && facts.is.status == "Unknown" &&
  facts.was.transitionAt > 0 && facts.is.transition != "" && facts.is.transition != facts.was.transition`,
			about("lastTransitionTime", `"moved without a transition"`,
				`"leave it at " + facts.was.transition + ": a timer that is re-stamped never expires, and a node that is already Unknown need not be written"`)},
		{contract.ClockSkew,
			`facts.judged && facts.is.transition != facts.was.transition && facts.is.transitionAt > 0 && facts.now > 0 &&
  (` + skew + ` > ` + atMost(p.MaxClockSkew) + ` || ` + skew + ` < -` + atMost(p.MaxClockSkew) + `)`,
			about("lastTransitionTime", `"is " + `+span(skew)+` + " from the API server's clock, " + `+instantOf("facts.now"),
				`"set the detector's clock"`)},
		{contract.UnauthorizedDetector,
			`facts.detector.changesLabels || facts.changesReady && !facts.repairs && !facts.detector.listed`,
			unauthorized(len(p.Detectors))},
	}
	return slices.DeleteFunc(all, func(c clause) bool {
		return p.Action(c.rule) == contract.Off || c.rule == contract.UnauthorizedDetector && len(p.Detectors) == 0
	})
}

const skew = `facts.is.transitionAt - facts.now`

// stampVerdict is the first of the rules on a new lastTransitionTime that is
// broken, or empty.
func stampVerdict(on []clause) string {
	var ladder string
	for _, c := range on {
		if c.rule.JudgesTransitionTime() {
			ladder += c.broken + ` ? "` + string(c.rule) + `" :` + "\n"
		}
	}
	return `!facts.judged ? "" :` + "\n" + ladder + `""`
}

// isBroken is true where a write breaks the rule.
func (c clause) isBroken() string {
	if c.rule.JudgesTransitionTime() {
		return `facts.stamp == "` + string(c.rule) + `"`
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
	return `[` + names + `.map(t, ` + shown("t") + `).join(", ")].map(all, size(` + names + `) <= 8 ? all : all.substring(0, 32) + "..., and more")[0]`
}

// sentence is what contract.Violation says, as an expression: a list of five
// texts, which told puts together.
type sentence struct{ field, problem, was, is, remedy string }

func (s sentence) String() string {
	texts := strings.Join([]string{s.field, s.problem, s.was, s.is, s.remedy}, ", ")
	return "[" + strings.ReplaceAll(texts, `" + "`, "") + "]" // neighbouring literals become one
}

// told is the text of sentence s.
func told(s string) string {
	return s + `[0] + " " + ` + s + `[1] + " (was " + ` + s + `[2] + ", is " + ` + s + `[3] + "): " + ` + s + `[4]`
}

// about is a sentence on one field of the Ready entry.
func about(field, problem, remedy string) string {
	was, is := "", ""
	switch field {
	case "status":
		was, is = wasStatus, isStatus
	case "reason":
		was, is = wasReason, isReason
	case "lastHeartbeatTime":
		was, is = stamp("facts.was.heartbeat"), stamp("facts.is.heartbeat")
	case "lastTransitionTime":
		was, is = stamp("facts.was.transition"), stamp("facts.is.transition")
	}
	return sentence{quoted("status.conditions[Ready]." + field), problem, was, is, remedy}.String()
}

func unauthorized(detectors int) string {
	labels := sentence{`"metadata.labels"`, `"decide which detector may write"`, `"unchanged by a status write"`, `"changed"`,
		`"change labels through the node itself, not through nodes/status"`}
	writer := sentence{`"request.userInfo.username"`, `"is not a listed detector of this node"`, `"one of ` + strconv.Itoa(detectors) + ` listed"`, shown(username),
		`"add the writer under detectors in the policy file, with a node selector that matches the node"`}
	return `facts.detector.changesLabels ?
  ` + labels.String() + ` :
  ` + writer.String()
}
