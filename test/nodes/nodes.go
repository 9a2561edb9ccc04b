// Package nodes builds Nodes for tests, as a kubelet would report them. It
// never reads a clock: every instant is the caller's.
package nodes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Builder builds one Node.
type Builder struct{ node corev1.Node }

// Named begins a Node without conditions.
func Named(name string) *Builder {
	return &Builder{corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
	}}
}

// Reporting begins the Node of a healthy kubelet: Ready since one instant and
// last heard of at another, without pressure.
func Reporting(name string, since, heartbeat time.Time) *Builder {
	b := Named(name)
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		b.Condition(corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: "KubeletHasNo" + string(t),
			LastHeartbeatTime: metav1.NewTime(heartbeat), LastTransitionTime: metav1.NewTime(since)})
	}
	return b.Condition(corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status", LastHeartbeatTime: metav1.NewTime(heartbeat), LastTransitionTime: metav1.NewTime(since)})
}

// Label sets a label.
func (b *Builder) Label(key, value string) *Builder {
	b.node.Labels[key] = value
	return b
}

// Condition appends a condition.
func (b *Builder) Condition(c corev1.NodeCondition) *Builder {
	b.node.Status.Conditions = append(b.node.Status.Conditions, c)
	return b
}

// Node is what was built; every call returns a copy of its own.
func (b *Builder) Node() *corev1.Node { return b.node.DeepCopy() }

// Ready is the first Ready entry of n, to look at or to change; nil where there
// is none.
func Ready(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
