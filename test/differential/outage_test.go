package differential_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
	corev1 "k8s.io/api/core/v1"
)

// Here every node of every zone goes down, and in most histories one comes back.
// What becomes of a node then depends on all others, so these histories are
// played one at a time; and the outcome is also compared with a model, which
// says no more than the documentation does: nodes that are down are tainted
// NoExecute, unless every node is down.
//
// In the first of the three everything ends down, after some nodes had been
// tainted NoExecute; in the others a node comes back.
func TestBothControllersAndTheModelAgreeOnFullDisruption(t *testing.T) { playOutages(t, 13, 3) }

func TestSoakBothControllersAndTheModelAgreeOnFullDisruption(t *testing.T) {
	histories := rig.Soak(t, 100)
	playOutages(t, rig.Seed(t), histories)
}

func playOutages(t *testing.T, seed uint64, histories int) {
	p := start(t)
	anchor := anchored(t, p)
	left, everywhere := 0, 0
	for range histories {
		o := newOutage(seed, time.Now(), anchor.nodes[0])
		run(t, p, []*history{o.history}, func() { o.play(t, p) })
		left += o.left
		if o.everywhere {
			everywhere++
		}
		seed++
	}
	t.Logf("%d histories, %d of them end with everything down; in those the in-tree controller left %d NoExecute taints behind (kubernetes#111385)", histories, everywhere, left)
}

// outage is a history in which everything goes down.
type outage struct {
	*history
	// own are its nodes without the anchor, which was there before.
	own    []*subject
	anchor *subject
	// ready is the model's memory: what each node was last told to be.
	ready map[*subject]corev1.ConditionStatus
	// everywhere says that it ended with everything down, left counts the taints
	// that the in-tree controller ought to have removed then.
	everywhere bool
	left       int
}

// step is one act, and how long to wait after it.
type step struct {
	writes []write
	wait   time.Duration
}

func newOutage(seed uint64, noon time.Time, anchor *subject) *outage {
	h := newHistory(seed, noon)
	h.prefix = fmt.Sprintf("o%d", seed)
	var own []*subject
	for z := range 1 + h.random.IntN(3) {
		for range 1 + h.random.IntN(3) {
			own = append(own, &subject{name: fmt.Sprintf("%s-n%d", h.prefix, len(own)), zone: fmt.Sprintf("%s-z%d", h.prefix, z), reports: true})
		}
	}
	h.nodes = append(slices.Clone(own), anchor)
	o := &outage{history: h, own: own, anchor: anchor, ready: map[*subject]corev1.ConditionStatus{}}
	for _, n := range h.nodes {
		o.ready[n] = corev1.ConditionTrue
	}
	h.foreseen = o.model
	return o
}

// model says what the outcome should be.
func (o *outage) model() (evicting map[string]string, everywhere bool) {
	evicting, everywhere = map[string]string{}, true
	for _, status := range o.ready {
		everywhere = everywhere && status != corev1.ConditionTrue
	}
	for n, status := range o.ready {
		evicting[n.name] = ""
		switch {
		case everywhere:
		case status == corev1.ConditionFalse:
			evicting[n.name] = "not-ready:NoExecute"
		case status == corev1.ConditionUnknown:
			evicting[n.name] = "unreachable:NoExecute"
		}
	}
	return evicting, everywhere
}

// unforeseen compares both outcomes with the model, where there is one. In a full
// disruption the in-tree controller may leave NoExecute taints behind, and those
// are taken out of the comparison.
func (h *history) unforeseen(theirs, ours map[string]string) (out string) {
	if h.foreseen == nil {
		return ""
	}
	evicting, everywhere := h.foreseen()
	for name, want := range evicting {
		key := name + " evicting"
		if everywhere {
			theirs[key] = want
		}
		if ours[key] != want || theirs[key] != want {
			out += fmt.Sprintf("  %s: in-tree %q, ours %q, the model says %q\n", key, theirs[key], ours[key], want)
		}
	}
	return out
}

func (o *outage) play(t *testing.T, p planes) {
	t.Helper()
	o.do(t, p, o.begin(o.own))
	time.Sleep(actEvery)
	for s := range o.steps {
		o.do(t, p, s.writes)
		time.Sleep(s.wait)
	}
	o.compare(t, p)
	if _, o.everywhere = o.model(); o.everywhere {
		o.countLeft(t, p[0])
	}
	// The anchor stays, and nodes may only go while one is up: with none left, or
	// none up, the in-tree controller's zones would not begin anew.
	o.act++
	o.do(t, p, []write{o.turn(o.anchor, corev1.ConditionTrue)})
	for _, r := range p {
		rig.Eventually(t, 30*time.Second, r.TaintsAre(t, o.anchor.name))
	}
	forget(t, p, o.own)
}

// countLeft counts the NoExecute taints that the in-tree controller left behind
// although everything is down.
func (o *outage) countLeft(t *testing.T, intree *rig.Rig) {
	t.Helper()
	theirs, err := o.outcome(t.Context(), intree)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range o.nodes {
		if theirs[n.name+" evicting"] != "" {
			o.left++
		}
	}
}

// steps are all acts: some of any kind, everything goes down, some more, in two
// of three histories a node comes back, and some more.
func (o *outage) steps(yield func(step) bool) {
	some := func(most int) bool {
		for range o.random.IntN(most + 1) {
			o.act++
			if !yield(step{o.anything(), actEvery}) {
				return false
			}
		}
		return true
	}
	if !some(2) {
		return
	}
	for s := range o.fall {
		if !yield(s) {
			return
		}
	}
	if !some(2) {
		return
	}
	if o.random.IntN(3) > 0 {
		o.act++
		if !yield(step{[]write{o.turn(o.nodes[o.random.IntN(len(o.nodes))], corev1.ConditionTrue)}, actEvery}) {
			return
		}
	}
	some(2)
}

// fall takes every node down: all in one act, zone after zone, or by silence.
func (o *outage) fall(yield func(step) bool) {
	switch o.random.IntN(3) {
	case 0:
		o.act++
		yield(step{o.turnDown(o.nodes), actEvery})
	case 1:
		zones := map[string][]*subject{}
		for _, n := range o.nodes {
			zones[n.zone] = append(zones[n.zone], n)
		}
		for _, zone := range slices.Sorted(maps.Keys(zones)) {
			o.act++
			if !yield(step{o.turnDown(zones[zone]), actEvery}) {
				return
			}
		}
	default:
		o.act++
		o.say("every kubelet falls silent")
		for _, n := range o.nodes {
			n.set(false)
			o.ready[n] = corev1.ConditionUnknown
		}
		yield(step{nil, grace + 2*actEvery})
	}
}

func (o *outage) turnDown(nodes []*subject) (out []write) {
	for _, n := range nodes {
		if o.ready[n] == corev1.ConditionTrue {
			out = append(out, o.turn(n, o.down()))
		}
	}
	return out
}

func (o *outage) down() corev1.ConditionStatus {
	return []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse}[o.random.IntN(2)]
}

// turn writes Ready: an outsider's Unknown, or a kubelet that speaks, and from
// then on renews its Lease.
func (o *outage) turn(n *subject, status corev1.ConditionStatus) write {
	o.ready[n] = status
	if status == corev1.ConditionUnknown {
		return o.outside(n)
	}
	n.set(true)
	at := o.stamp()
	o.say("the kubelet of %s reports %s", n.name, status)
	return patch(n, rig.Condition{Type: "Ready", Status: string(status), Reason: "Kubelet" + string(status), LastHeartbeatTime: &at, LastTransitionTime: &at})
}

// anything is one act that brings no node up and makes no zone vanish. It spares
// the anchor, which has to be clean again for the next history.
func (o *outage) anything() []write {
	n := o.own[o.random.IntN(len(o.own))]
	switch o.random.IntN(6) {
	case 0, 1:
		if status := o.down(); status != o.ready[n] {
			return []write{o.turn(n, status)}
		}
		return []write{o.cordon(n)}
	case 2:
		return []write{o.untaint(n)}
	case 3:
		return []write{o.pressure(n)}
	case 4:
		return []write{o.cordon(n)}
	}
	return []write{o.pod(n)}
}
