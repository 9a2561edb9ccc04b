package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Eviction says what may happen to the NoExecute taint of a node that is down.
type Eviction string

const (
	// Hold adds none. One that is there is kept, and follows Ready between
	// False and Unknown.
	Hold Eviction = "Hold"
	// Grant adds the one that is missing: its zone's turn has come.
	Grant Eviction = "Grant"
	// Strip removes any: every zone is down, so the fault is elsewhere.
	Strip Eviction = "Strip"
)

// pressures are the conditions that taint while True.
var pressures = []struct {
	condition corev1.NodeConditionType
	taint     string
}{
	{corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.TaintNodeNetworkUnavailable},
}

// managed are the keys whose NoSchedule taints are ours to add and to remove,
// whoever put them there.
var managed = []string{
	corev1.TaintNodeNotReady,
	corev1.TaintNodeUnreachable,
	corev1.TaintNodeMemoryPressure,
	corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure,
	corev1.TaintNodeNetworkUnavailable,
	corev1.TaintNodeUnschedulable,
}

// Taints returns the taints the node should carry, in the order it carries them
// with new ones last, and whether that differs from what it has. A taint matches
// by key and effect: a different value, or a missing timeAdded, is left as it is,
// and so is every taint that is not ours.
func Taints(n *corev1.Node, e Eviction, now time.Time) ([]corev1.Taint, bool) {
	ready := ReadyOf(n)
	want := noSchedule(n, ready)
	if t := noExecute(n, ready, e); t != "" {
		want = append(want, corev1.Taint{Key: t, Effect: corev1.TaintEffectNoExecute})
	}
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if !ours(&t, ready, e) || has(want, &t) && !has(out, &t) {
			out = append(out, t)
		}
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	for _, t := range want {
		if !has(out, &t) {
			t.TimeAdded = &at
			out = append(out, t)
		}
	}
	return out, !slices.EqualFunc(out, n.Spec.Taints, same)
}

// Evicting says that the node carries the NoExecute taint its Ready asks for, or
// the opposite one, which is swapped without waiting for a turn.
func Evicting(n *corev1.Node) bool {
	return hasNoExecute(n, corev1.TaintNodeNotReady) || hasNoExecute(n, corev1.TaintNodeUnreachable)
}

// AwaitsEviction says that the node is down and has yet to be given a NoExecute
// taint.
func AwaitsEviction(n *corev1.Node) bool {
	return noExecuteKey(ReadyOf(n)) != "" && !Evicting(n)
}

func noSchedule(n *corev1.Node, ready Ready) []corev1.Taint {
	var want []corev1.Taint
	add := func(key string) {
		want = append(want, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	if key := noExecuteKey(ready); key != "" {
		add(key)
	}
	for _, p := range pressures {
		if c := condition(n, p.condition); c != nil && c.Status == corev1.ConditionTrue {
			add(p.taint)
		}
	}
	if n.Spec.Unschedulable {
		add(corev1.TaintNodeUnschedulable)
	}
	return want
}

// noExecuteKey is the key for a node that is down; both effects share it.
func noExecuteKey(ready Ready) string {
	switch ready.Status {
	case corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	}
	return ""
}

// noExecute is the key of the NoExecute taint the node should carry, if any.
func noExecute(n *corev1.Node, ready Ready, e Eviction) string {
	if e == Strip || e != Grant && !Evicting(n) {
		return ""
	}
	return noExecuteKey(ready)
}

// ours says that the taint is one this package may remove. Without a Ready
// condition nothing is known, and NoExecute is left as it was found, unless all
// of it goes.
func ours(t *corev1.Taint, ready Ready, e Eviction) bool {
	switch t.Effect {
	case corev1.TaintEffectNoSchedule:
		return slices.Contains(managed, t.Key)
	case corev1.TaintEffectNoExecute:
		return (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable) &&
			(!ready.Absent() || e == Strip)
	}
	return false
}

func hasNoExecute(n *corev1.Node, key string) bool {
	return has(n.Spec.Taints, &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
}

func has(list []corev1.Taint, t *corev1.Taint) bool {
	return slices.ContainsFunc(list, func(o corev1.Taint) bool { return o.MatchTaint(t) })
}

func same(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Effect == b.Effect && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}
