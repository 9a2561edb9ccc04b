package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

var graces = Graces{Monitor: 50 * time.Second, Startup: 60 * time.Second}

// node builds the Node of a test; it is created at noon.
type node struct{ *corev1.Node }

func named(name string) node {
	return node{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-1", CreationTimestamp: metav1.NewTime(noon)}}}
}

func (n node) with(t corev1.NodeConditionType, s corev1.ConditionStatus, change ...func(*corev1.NodeCondition)) node {
	c := corev1.NodeCondition{Type: t, Status: s, Reason: "Some", LastHeartbeatTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(noon)}
	for _, f := range change {
		f(&c)
	}
	out := node{n.DeepCopy()}
	for i := range out.Status.Conditions {
		if out.Status.Conditions[i].Type == t {
			out.Status.Conditions[i] = c
			return out
		}
	}
	out.Status.Conditions = append(out.Status.Conditions, c)
	return out
}

func (n node) ready(s corev1.ConditionStatus, change ...func(*corev1.NodeCondition)) node {
	return n.with(corev1.NodeReady, s, change...)
}

func (n node) taint(key string, effect corev1.TaintEffect) node {
	out := node{n.DeepCopy()}
	out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: key, Effect: effect, TimeAdded: &metav1.Time{Time: noon}})
	return out
}

func reason(r string) func(*corev1.NodeCondition) {
	return func(c *corev1.NodeCondition) { c.Reason = r }
}

func beat(at time.Time) func(*corev1.NodeCondition) {
	return func(c *corev1.NodeCondition) { c.LastHeartbeatTime = metav1.NewTime(at) }
}

func since(at time.Time) func(*corev1.NodeCondition) {
	return func(c *corev1.NodeCondition) { c.LastTransitionTime = metav1.NewTime(at) }
}

const (
	isTrue    = corev1.ConditionTrue
	isFalse   = corev1.ConditionFalse
	isUnknown = corev1.ConditionUnknown
)
