package policy

import (
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// An API server prepares every variable of a policy for every request that the
// policy matches, a kubelet's included, whether or not anything will read it.
// So there are few variables, each a map of much, and a policy carries none
// that it does not read. What may be long is a variable of its own, for each
// has a cost limit of its own.

func variable(name, expression string) admissionv1.Variable {
	return admissionv1.Variable{Name: name, Expression: expression}
}

// facts are what the rules are stated in. They carry the names of the
// contract's own terms.
func facts(p *contract.Policy) ([]admissionv1.Variable, error) {
	detector, err := detector(p.Detectors)
	if err != nil {
		return nil, err
	}
	return []admissionv1.Variable{
		variable("detector", detector),
		variable("ready", ready(p)),
		variable("changedPressures", changedPressures),
		variable("touched", touched),
	}, nil
}

// ready is Ready before and after the write. Its is.judged is true where the
// rules on the entry itself have a say; spoke and now are what the API server's
// clock said, in seconds, when the kubelet last spoke, and at this write; 0 where
// that is not known.
func ready(p *contract.Policy) string {
	const repairs = `size(all) == 1 && was.entries > 1 && e == was.entry`
	return `[` + readyEntry(conditionsBefore, "") + `].map(was, {
"was": dyn(was),
"is": dyn(` + readyEntry(conditionsAfter, `,
  "repairs": dyn(`+repairs+`),
  "judged": dyn(`+inScope(p)+`size(all) > 0 && size(all) <= `+maxReady+` && was.entries <= `+maxReady+` && !(`+repairs+`))`) + `),
"spoke": dyn(` + newest("oldObject", ` && "f:lastHeartbeatTime" in ready`) + `),
"now": dyn(` + newest("object", "") + `)
})[0]`
}

// detector says what decides who may write this Node.
func detector(detectors []contract.Detector) (string, error) {
	listed, err := listed(detectors)
	if err != nil {
		return "", err
	}
	return `[` + nodeLabels + `].map(labels, {
  "changesReady": ` + changesReady + `,
  "changesLabels": ` + changesLabels + `,
  "listed": ` + listed + `
})[0]`, nil
}

// inScope begins a condition that holds only for writes that change Ready.
// Without detectors a policy sees no others.
func inScope(p *contract.Policy) string {
	if !p.NeedsLabels() {
		return ""
	}
	return `variables.detector.changesReady && `
}

// readyEntry is a map of what matters of the first Ready entry, e, and of how
// many there are; of none, all texts are empty. An instant is a text, and
// seconds where it can be reckoned with, else 0.
func readyEntry(conditions, more string) string {
	return `[` + conditions + `.filter(c, c.type == "Ready")].map(all,
  [size(all) == 0 ? dyn({"status": ""}) : all[0]].map(c, ` + entry("c") + `).map(e, {
  "entries": dyn(size(all)), "entry": dyn(e),
  "status": dyn(e[0]), "reason": dyn(e[1]), "message": dyn(e[2]), "heartbeat": dyn(e[3]), "transition": dyn(e[4]),
  "heartbeatAt": dyn(` + at("e[3]") + `),
  "transitionAt": dyn(` + at("e[4]") + `)` + more + `
})[0])[0]`
}

// newest is the latest time of those status entries in an object's managedFields
// that own fields of Ready and meet a condition, in seconds; or 0 where it
// cannot be reckoned with.
func newest(object, meets string) string {
	const ready = `m.?fieldsV1[?"f:status"][?"f:conditions"][?'k:{"type":"Ready"}'].orValue(dyn(null))`
	return `[(` + object + ` == null ? [] : dyn(` + object + `).metadata.?managedFields.orValue([])).filter(m,
    m.?subresource.orValue("") == "status" && m.?time.orValue(null) != null &&
    [` + ready + `].exists(ready, type(ready) == map` + meets + `)).map(m, string(m.time))].map(times,
    times.exists(t, size(t) == 20 ? t >= "2201" : !t.startsWith("-")) ? 0 : ([0] + times.map(t, ` + at("t") + `)).max())[0]`
}

// lost are the types of the conditions that are gone, Ready aside.
var lost = `[` + conditionsBefore + `].map(was, [` + conditionsAfter + `].map(is,
  size(was) * size(is) > ` + strconv.Itoa(contract.MaxCompared) + ` ? [] : [is.map(c, string(c.type))].map(types,
  was.filter(c, c.type != "Ready" && !(c.type in types)).map(c, string(c.type)))[0])[0])[0]`

// changedPressures are the types of the kubelet's other conditions that differ.
var changedPressures = func() string {
	all := func(conditions string) string {
		return conditions + `.filter(c, c.type == t).map(c, ` + entry("c") + `)`
	}
	return texts(contract.Pressures()) + `.filter(t, ` + conditionsAfter + `.exists(c, c.type == t) &&
` + all(conditionsBefore) + `
!=
` + all(conditionsAfter) + `)`
}()

// touched is the metadata that differs.
var touched = func() string {
	changed := func(field, empty string) string {
		return `dyn(oldObject).metadata.?` + field + `.orValue(` + empty + `) != dyn(object).metadata.?` + field + `.orValue(` + empty + `) ? "metadata.` + field + `" : ""`
	}
	return `oldObject == null ? [] : [
  ` + changed("labels", "{}") + `,
  ` + changed("annotations", "{}") + `,
  ` + changed("ownerReferences", "[]") + `,
  ` + changed("finalizers", "[]") + `].filter(f, f != "")`
}()

// What the rules on lastTransitionTime are stated in.
const (
	changedStatus = `variables.ready.is.status != variables.ready.was.status`
	becameUnknown = `variables.ready.is.status == "Unknown" && variables.ready.was.status != "Unknown"`
	takesBack     = `variables.ready.was.status == "True" && variables.ready.is.status != "True"`

	lastWords       = `(variables.ready.spoke > 0 ? [dyn(variables.ready.spoke)] : [variables.ready.was.transitionAt, variables.ready.was.heartbeatAt])`
	notLater        = lastWords + `.filter(t, t >= variables.ready.is.transitionAt)`
	measured        = `variables.ready.spoke > 0 && variables.ready.now > 0`
	measuredSilence = `variables.ready.now - variables.ready.spoke`
)

// recoveryAge and silence are in seconds.
var (
	recoveryAge = `(` + measured + ` ? [dyn(0), ` + between("variables.ready.was.transitionAt", "variables.ready.was.heartbeatAt") + `].max() + ` + measuredSilence + ` :
  ` + between("variables.ready.was.transitionAt", "variables.ready.is.transitionAt") + `)`
	silence = `(` + measured + ` ? ` + measuredSilence + ` : ` + between("variables.ready.was.heartbeatAt", "variables.ready.is.transitionAt") + `)`
)

// advice is what messages are made of: the values as a message shows them, and
// what to send instead of a lastTransitionTime.
func advice(p *contract.Policy) string {
	return `{
  "wasStatus": ` + shown("variables.ready.was.status") + `,
  "isStatus": ` + shown("variables.ready.is.status") + `,
  "wasReason": ` + shown("variables.ready.was.reason") + `,
  "isReason": ` + shown("variables.ready.is.reason") + `,
  "stamp": ` + stampRemedy(p) + `
}`
}

func stampRemedy(p *contract.Policy) string {
	return changedStatus + ` || variables.ready.was.transitionAt == 0 ?
  [` + floor(p) + `].map(t, t == variables.ready.was.transitionAt ? t + 1 : t).map(t, ` + changedStatus + ` ?
  "look again, then send the time of the transition, " + ` + instantOf("t") + ` + " or later" :
  "the status did not change: keep " + ` + instantOf("t") + `)[0] :
  "the status did not change: keep " + variables.ready.was.transition`
}

// floor is the earliest lastTransitionTime that all rules would accept, in
// seconds; it is contract's earliest, said in CEL.
func floor(p *contract.Policy) string {
	year2000 := strconv.FormatInt(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), 10)
	e := `([` + year2000 + `] +
  (` + becameUnknown + ` ? ` + lastWords + `.map(t, t + 1) : [])`
	if hold := effective(p, contract.RecoveryHold, p.RecoveryHold); hold > 0 {
		e += ` +
  (!(` + measured + `) && ` + takesBack + ` && variables.ready.was.transitionAt > 0 ? [variables.ready.was.transitionAt + ` + atLeast(hold) + `] : [])`
	}
	if persistence := effective(p, contract.SignalTooYoung, p.SignalPersistence); persistence > 0 {
		e += ` +
  (!(` + measured + `) && ` + becameUnknown + ` && variables.ready.was.heartbeatAt > 0 ? [variables.ready.was.heartbeatAt + ` + atLeast(persistence) + `] : [])`
	}
	return e + `).max()`
}

func effective(p *contract.Policy, r contract.Rule, d time.Duration) time.Duration {
	if p.Action(r) == contract.Off {
		return 0
	}
	return d
}
