package policy

import (
	"fmt"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// ready are the fields of Ready that a managedFields entry m owns.
const ready = `m.?fieldsV1[?"f:status"][?"f:conditions"][?'k:{"type":"Ready"}']`

// spokenBy are the times of the status entries in an object's managedFields
// that own any field of Ready, or the one field named.
func spokenBy(object, field string) string {
	owned := `type(` + ready + `.orValue(null)) == map`
	if field != "" {
		owned += ` && ` + ready + `[?"` + field + `"].hasValue()`
	}
	return `(` + object + ` == null ? [] : dyn(` + object + `).metadata.?managedFields.orValue([])).filter(m, m.?subresource.orValue("") == "status" &&
  m.?time.orValue(null) != null && ` + owned + `).map(m, string(m.time))`
}

// newest is the latest of several instants, or empty where it cannot be
// reckoned with.
func newest(times string) string {
	late := `(size(t) == 20 ? t >= "2201" : !t.startsWith("-"))`
	return times + `.exists(t, ` + late + `) ? "" : ([""] + ` + times + `.filter(t, ` + plausible("t") + `)).max()`
}

// fields is the entry c of Ready as a map of texts; of an empty c, all empty.
func fields(c string) string {
	return `{"status": string(` + c + `.?status.orValue("")), "reason": string(` + c + `.?reason.orValue("")), "message": string(` + c + `.?message.orValue("")),
  "heartbeat": ` + instant(c, "lastHeartbeatTime") + `,
  "transition": ` + instant(c, "lastTransitionTime") + `}`
}

func first(entries string) string {
	return `[size(` + entries + `) == 0 ? dyn({}) : ` + entries + `[0]].map(c, ` + fields("c") + `)[0]`
}

// changed is true where a piece of metadata differs.
func changed(field, empty string) string {
	return `dyn(oldObject).metadata.?` + field + `.orValue(` + empty + `) != dyn(object).metadata.?` + field + `.orValue(` + empty + `)`
}

func variable(name, expression string) admissionv1.Variable {
	return admissionv1.Variable{Name: name, Expression: expression}
}

// facts are what the rules are stated in. They carry the names of the
// contract's own terms.
func facts(p *contract.Policy) ([]admissionv1.Variable, error) {
	authorized, err := listed(p.Detectors)
	if err != nil {
		return nil, err
	}
	inScope := "true" // the match condition has seen to it
	if p.NeedsLabels() {
		inScope = scope{p}.changesReady()
	}
	entries := func(list string) string { return list + `.map(c, ` + entry("c") + `)` }
	changedPressure := `variables.newPressures.exists(c, c.type == t) && ` +
		entries(`variables.oldPressures.filter(c, c.type == t)`) + ` != ` + entries(`variables.newPressures.filter(c, c.type == t)`)

	return []admissionv1.Variable{
		variable("before", conditionsBefore),
		variable("after", conditionsAfter),
		variable("oldReady", `variables.before.filter(c, c.type == "Ready")`),
		variable("newReady", `variables.after.filter(c, c.type == "Ready")`),
		variable("was", first("variables.oldReady")),
		variable("is", first("variables.newReady")),
		variable("inScope", inScope),
		variable("repairs", `size(variables.oldReady) > 1 && size(variables.newReady) == 1 && variables.is == variables.was`),
		variable("judged", `variables.inScope && size(variables.newReady) > 0 && !variables.repairs`),
		variable("changedStatus", `variables.is.status != variables.was.status`),
		variable("becameUnknown", `variables.is.status == "Unknown" && variables.was.status != "Unknown"`),
		variable("takesBack", `variables.was.status == "True" && variables.is.status != "True"`),
		variable("stampPlausible", plausible("variables.is.transition")),
		variable("afterTypes", `variables.after.map(c, string(c.type))`),
		variable("lost", fmt.Sprintf(`size(variables.before) * size(variables.after) > %d ? [] :
  variables.before.filter(c, c.type != "Ready" && !(c.type in variables.afterTypes)).map(c, string(c.type))`, contract.MaxCompared)),
		variable("oldPressures", `variables.before.filter(c, c.type in `+texts(contract.Pressures())+`)`),
		variable("newPressures", `variables.after.filter(c, c.type in `+texts(contract.Pressures())+`)`),
		variable("changedPressures", texts(contract.Pressures())+`.filter(t, `+changedPressure+`)`),
		variable("touched", `oldObject == null ? [] : [
  `+changed("labels", "{}")+` ? "metadata.labels" : "",
  `+changed("annotations", "{}")+` ? "metadata.annotations" : "",
  `+changed("ownerReferences", "[]")+` ? "metadata.ownerReferences" : "",
  `+changed("finalizers", "[]")+` ? "metadata.finalizers" : ""].filter(f, f != "")`),
		variable("labels", nodeLabels),
		variable("authorized", authorized),
		variable("changesLabels", changesLabels()),

		variable("spokeTimes", spokenBy("oldObject", "f:lastHeartbeatTime")),
		variable("spoke", newest("variables.spokeTimes")),
		variable("nowTimes", spokenBy("object", "")),
		variable("now", newest("variables.nowTimes")),
		variable("lastWords", `variables.spoke != "" ? [variables.spoke] : [variables.was.transition, variables.was.heartbeat]`),
		variable("notLater", `variables.lastWords.filter(t, `+plausible("t")+` && variables.is.transition <= t)`),
		variable("measured", `variables.spoke != "" && variables.now != ""`),
		variable("measuredSilence", seconds("variables.now")+` - `+seconds("variables.spoke")),
		variable("recoveryAge", `variables.measured ?
  [0, `+between("variables.was.transition", "variables.was.heartbeat")+`].max() + variables.measuredSilence :
  `+between("variables.was.transition", "variables.is.transition")),
		variable("silence", `variables.measured ? variables.measuredSilence :
  `+between("variables.was.heartbeat", "variables.is.transition")),
		variable("skew", seconds("variables.is.transition")+` - `+seconds("variables.now")),
	}, nil
}

// advice are what only messages need.
func advice(p *contract.Policy) []admissionv1.Variable {
	return []admissionv1.Variable{
		variable("wasStatus", shown("variables.was.status")),
		variable("isStatus", shown("variables.is.status")),
		variable("wasReason", shown("variables.was.reason")),
		variable("isReason", shown("variables.is.reason")),
		variable("wasHeartbeat", stamp("variables.was.heartbeat")),
		variable("isHeartbeat", stamp("variables.is.heartbeat")),
		variable("wasTransition", stamp("variables.was.transition")),
		variable("isTransition", stamp("variables.is.transition")),
		variable("keepsStamp", `!variables.changedStatus && `+plausible("variables.was.transition")),
		variable("floor", floor(p)),
		variable("earliest", `variables.keepsStamp ? variables.was.transition :
  string(timestamp(variables.floor + (`+plausible("variables.was.transition")+` && variables.floor == `+seconds("variables.was.transition")+` ? 1 : 0)))`),
		variable("stampRemedy", `variables.changedStatus ?
  "look again, then send the time of the transition, " + variables.earliest + " or later" :
  "the status did not change: keep " + variables.earliest`),
	}
}

// floor is the earliest lastTransitionTime that all rules would accept, in
// seconds; it is contract's earliest, said in CEL.
func floor(p *contract.Policy) string {
	year2000 := strconv.FormatInt(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), 10)
	e := `([` + year2000 + `] +
  (variables.becameUnknown ? variables.lastWords.filter(t, ` + plausible("t") + `).map(t, ` + seconds("t") + ` + 1) : [])`
	if hold := effective(p, contract.RecoveryHold, p.RecoveryHold); hold > 0 {
		e += ` +
  (!variables.measured && variables.takesBack && ` + plausible("variables.was.transition") + ` ? [` + seconds("variables.was.transition") + ` + ` + atLeast(hold) + `] : [])`
	}
	if persistence := effective(p, contract.SignalTooYoung, p.SignalPersistence); persistence > 0 {
		e += ` +
  (!variables.measured && variables.becameUnknown && ` + plausible("variables.was.heartbeat") + ` ? [` + seconds("variables.was.heartbeat") + ` + ` + atLeast(persistence) + `] : [])`
	}
	return e + `).max()`
}

func effective(p *contract.Policy, r contract.Rule, d time.Duration) time.Duration {
	if p.Action(r) == contract.Off {
		return 0
	}
	return d
}
