package policy

import (
	"slices"
	"strconv"

	"github.com/nodewarden/nodewarden/contract"
)

// scope renders which writes of which writers the contract judges. It must say
// what contract.Policy's Class, InScope and Skew say.
type scope struct{ p *contract.Policy }

// is names one writer.
func is(i contract.Identity) string {
	e := username + ` == ` + quoted(i.User)
	if i.Group != "" {
		e += ` && ` + quoted(i.Group) + ` in ` + groups
	}
	return e
}

func anyIs(ids []contract.Identity) []string {
	var expressions []string
	for _, i := range ids {
		if i.User != "" { // names nobody
			expressions = append(expressions, is(i))
		}
	}
	return expressions
}

// own is true for the node's own kubelet.
const own = username + ` == "system:node:" + ` + nodeName + ` && "system:nodes" in ` + groups

// kubelet is true for the node's own kubelet and for stand-ins.
func (s scope) kubelet() string {
	return anyOf(append([]string{own}, anyIs(s.p.StandIns)...)...)
}

// judges is true for those writes that touch something, of everybody but
// kubelets and node lifecycle controllers, ours included. Every report of every
// kubelet comes by here, once for each policy: so it is asked first, and alone,
// whether the node's own kubelet writes.
func (s scope) judges(touches string) string {
	others := slices.Concat(s.p.StandIns, []contract.Identity{s.p.Controller}, s.p.Lifecycle)
	return own + ` ? false :
` + allOf(not(anyOf(anyIs(others)...)), "("+touches+")")
}

// skewing is true for the lifecycle identities that run in kubelet mode if
// they write the reserved reason.
func (s scope) skewing() string {
	others := allOf("("+anyOf(anyIs(s.p.Lifecycle)...)+")", not(s.kubelet()))
	if s.p.Controller.User == "" {
		return others
	}
	return allOf(others, not(is(s.p.Controller)))
}

// changesReady is true where the Ready entries before and after differ in any
// field, or are too many to tell. For most writers it is the only expression
// that is ever evaluated.
var changesReady = `[` + beforeAndAfter + `.map(all, all.filter(c, c.type == "Ready"))].exists(ready,
ready.exists(all, size(all) > ` + maxReady + `) ||
[ready.map(all, all.map(c, ` + entry("c") + `))].exists(e, e[0] != e[1]))`

var maxReady = strconv.Itoa(contract.MaxReady)

// entry is condition c as a list of texts, so that equal means equal in every field.
func entry(c string) string {
	return `[
  string(` + c + `.status), string(` + c + `.?reason.orValue("")), string(` + c + `.?message.orValue("")),
  ` + instant(c, "lastHeartbeatTime") + `,
  ` + instant(c, "lastTransitionTime") + `]`
}

// changesLabels is true where a status write changes the labels that decide
// which detector may write.
const changesLabels = `request.operation == "UPDATE" && oldObject != null && ` +
	`dyn(oldObject).metadata.?labels.orValue({}) != dyn(object).metadata.?labels.orValue({})`

// touched is true for the writes that the rules may have a say in, whoever sent them.
func (s scope) touched() string {
	if s.p.NeedsLabels() {
		return anyOf("("+changesReady+")", changesLabels)
	}
	return changesReady
}
