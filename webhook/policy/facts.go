package policy

import (
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/nodewarden/nodewarden/contract"
)

// Fact is what the rules are stated in, under a name of the contract's own
// terms; they read it as facts.<name>. It would be a variable of the policy, but
// that an API server prepares every variable for every request that the policy
// matches, a kubelet's included, whether or not anything will read it. So each
// expression binds the facts that it reads.
type Fact struct{ Name, Expression string }

// factsOf are all facts, each after those it reads.
func factsOf(p *contract.Policy, on []clause) ([]Fact, error) {
	detector, err := detector(p.Detectors)
	if err != nil {
		return nil, err
	}
	return []Fact{
		{"changesReady", changesReady},
		{"detector", detector},
		{"ready", ready},
		{"was", `facts.ready[0]`},
		{"is", `facts.ready[1]`},
		{"repairs", `facts.is.entries == 1 && facts.was.entries > 1 && facts.is.entry == facts.was.entry`},
		{"judged", inScope(p) + `facts.is.entries > 0 && facts.is.entries <= ` + maxReady + ` && facts.was.entries <= ` + maxReady + ` && !facts.repairs`},
		{"clock", clock},
		{"spoke", `dyn(facts.clock[0])`},
		{"now", `dyn(facts.clock[1])`},
		{"measured", `facts.spoke > 0 && facts.now > 0`},
		{"recoveryAge", recoveryAge},
		{"silence", silence},
		{"lastWords", lastWords},
		{"notLater", `facts.lastWords.filter(t, t >= facts.is.transitionAt)`},
		{"stamp", stampVerdict(on)},
		{"lost", lost},
		{"changedPressures", changedPressures},
		{"touched", touched},
	}, nil
}

// read finds the facts that an expression reads, and passes over its texts: a
// name in them may be anything.
var read = regexp.MustCompile(`("(?:[^"\\]|\\.)*")|\bfacts\.(\w+)`)

// bound binds the facts that an expression reads, directly or not, but for those
// that are bound around it.
func bound(known []Fact, expression string, around ...string) string {
	needed := needs(known, expression)
	e := read.ReplaceAllString(expression, "$1$2")
	for _, f := range slices.Backward(known) {
		if slices.Contains(needed, f.Name) && !slices.Contains(around, f.Name) {
			e = `[` + read.ReplaceAllString(f.Expression, "$1$2") + `].map(` + f.Name + ",\n" + e + `)[0]`
		}
	}
	return e
}

// needs are the names of the facts that an expression reads, directly or not.
func needs(known []Fact, expression string) []string {
	var names []string
	need := func(expression string) {
		for _, m := range read.FindAllStringSubmatch(expression, -1) {
			if m[2] != "" {
				names = append(names, m[2])
			}
		}
	}
	need(expression)
	for _, f := range slices.Backward(known) {
		if slices.Contains(names, f.Name) {
			need(f.Expression)
		}
	}
	return names
}

// ready are Ready before and after the write: what matters of the first entry,
// e, and how many there are; of none, all texts are empty. An instant is a text,
// and seconds where it can be reckoned with, else 0.
var ready = beforeAndAfter + `.map(conditions,
  [conditions.filter(c, c.type == "Ready")].map(all,
  [size(all) == 0 ? dyn({"status": ""}) : all[0]].map(c, ` + entry("c") + `).map(e, {
  "entries": dyn(size(all)), "entry": dyn(e),
  "status": dyn(e[0]), "reason": dyn(e[1]), "message": dyn(e[2]), "heartbeat": dyn(e[3]), "transition": dyn(e[4]),
  "heartbeatAt": dyn(` + at("e[3]") + `),
  "transitionAt": dyn(` + at("e[4]") + `)
})[0])[0])`

// clock are what the API server's clock said, in seconds, when the kubelet last
// spoke, and at this write: the latest times of those status entries in the
// managedFields before and after that own fields of Ready, its heartbeat in the
// first case; 0 where that is not known or cannot be reckoned with, or takes too
// long to find.
var clock = `[[dyn(oldObject), dyn("f:lastHeartbeatTime")], [dyn(object), dyn("")]].map(of,
  [[of[0] == null ? [] : of[0].metadata.?managedFields.orValue([])].map(all, size(all) > ` + strconv.Itoa(contract.MaxManaged) + ` ? [] : all)[0].filter(m,
    m.?subresource.orValue("") == "status" && m.?time.orValue(null) != null &&
    [m.?fieldsV1[?"f:status"][?"f:conditions"][?'k:{"type":"Ready"}'].orValue(dyn(null))].exists(owned,
      type(owned) == map && (of[1] == "" || of[1] in owned))).map(m, string(m.time))].map(times,
    times.exists(t, size(t) == 20 ? t >= "2201" : !t.startsWith("-")) ? 0 : ([0] + times.map(t, ` + at("t") + `)).max())[0])`

// detector is what only the rule on listed detectors asks. No other reads it, for
// the list may be longer than what an API server takes as an audit annotation.
func detector(detectors []contract.Detector) (string, error) {
	listed, err := listed(detectors)
	if err != nil {
		return "", err
	}
	return `[` + nodeLabels + `].map(labels, {
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
	return `facts.changesReady && `
}

// lost are the types of the conditions that are gone, Ready aside.
var lost = `[` + beforeAndAfter + `].map(all,
  size(all[0]) * size(all[1]) > ` + strconv.Itoa(contract.MaxCompared) + ` ? [] : [all[1].map(c, string(c.type))].map(types,
  all[0].filter(c, c.type != "Ready" && !(c.type in types)).map(c, string(c.type)))[0])[0]`

// changedPressures are the types of the kubelet's other conditions that differ.
var changedPressures = texts(contract.Pressures()) + `.filter(t, ` + conditionsAfter + `.exists(c, c.type == t) &&
  [` + beforeAndAfter + `.map(all, all.filter(c, c.type == t).map(c, ` + entry("c") + `))].exists(e, e[0] != e[1]))`

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

// What the rules on lastTransitionTime are stated in; the ages are in seconds.
var (
	changedStatus = `facts.is.status != facts.was.status`
	becameUnknown = `facts.is.status == "Unknown" && facts.was.status != "Unknown"`
	takesBack     = `facts.was.status == "True" && facts.is.status != "True"`

	lastWords   = `facts.spoke > 0 ? [dyn(facts.spoke)] : [facts.was.transitionAt, facts.was.heartbeatAt]`
	recoveryAge = `facts.measured ? [dyn(0), ` + between("facts.was.transitionAt", "facts.was.heartbeatAt") + `].max() + facts.now - facts.spoke :
  ` + between("facts.was.transitionAt", "facts.is.transitionAt")
	silence = `facts.measured ? facts.now - facts.spoke : ` + between("facts.was.heartbeatAt", "facts.is.transitionAt")
)

// advice is what messages are made of, a list of texts: the values as a message
// shows them, and what to send instead of a lastTransitionTime.
func advice(p *contract.Policy) string {
	return `[facts.was.status, facts.is.status, facts.was.reason, facts.is.reason].map(t, ` + shown("t") + `) + [
` + stampRemedy(p) + `]`
}

const (
	wasStatus   = `advice[0]`
	isStatus    = `advice[1]`
	wasReason   = `advice[2]`
	isReason    = `advice[3]`
	stampToSend = `advice[4]`
)

func stampRemedy(p *contract.Policy) string {
	return changedStatus + ` || facts.was.transitionAt == 0 ?
  [` + floor(p) + `].map(t, t == facts.was.transitionAt ? t + 1 : t).map(t,
  "look again, then send the time of the transition" + (t == ` + theBeginning + ` ? "" : ", " + ` + instantOf("t") + ` + " or later"))[0] :
  "the status did not change: keep " + facts.was.transition`
}

// theBeginning is the first instant that can be reckoned with, in seconds.
var theBeginning = strconv.FormatInt(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), 10)

// floor is the earliest lastTransitionTime that all rules would accept, in
// seconds; it is contract's earliest, said in CEL.
func floor(p *contract.Policy) string {
	e := `([` + theBeginning + `] + facts.lastWords.map(t, t + 1)`
	if hold := effective(p, contract.RecoveryHold, p.RecoveryHold); hold > 0 {
		e += ` +
  (!facts.measured && ` + takesBack + ` && facts.was.transitionAt > 0 ? [facts.was.transitionAt + ` + atLeast(hold) + `] : [])`
	}
	if persistence := effective(p, contract.SignalTooYoung, p.SignalPersistence); persistence > 0 {
		e += ` +
  (!facts.measured && ` + becameUnknown + ` && facts.was.heartbeatAt > 0 ? [facts.was.heartbeatAt + ` + atLeast(persistence) + `] : [])`
	}
	return e + `).max()`
}

func effective(p *contract.Policy, r contract.Rule, d time.Duration) time.Duration {
	if p.Action(r) == contract.Off {
		return 0
	}
	return d
}
