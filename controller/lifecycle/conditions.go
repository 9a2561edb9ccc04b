package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// timed are the conditions a kubelet owns, in the order they are appended to a
// node that lacks them. NetworkUnavailable belongs to the network.
var timed = []corev1.NodeConditionType{
	corev1.NodeReady,
	corev1.NodeMemoryPressure,
	corev1.NodeDiskPressure,
	corev1.NodePIDPressure,
}

// unknownConditions are the conditions that change when a silent node is given
// up. lastHeartbeatTime stays out of those that exist: it is the kubelet's last
// word, and a patch that does not mention it keeps it.
func unknownConditions(n *corev1.Node, now time.Time) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	at := metav1.NewTime(now.Truncate(time.Second))
	for _, t := range timed {
		switch c := condition(n, t); {
		case c == nil:
			out = append(out, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown,
				Reason: ReasonNeverUpdated, Message: "Kubelet never posted node status.",
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: at,
			})
		case c.Status != corev1.ConditionUnknown:
			out = append(out, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown,
				Reason: ReasonUnknown, Message: "Kubelet stopped posting node status.",
				LastTransitionTime: at,
			})
		}
	}
	return out
}

func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// readyIn is Ready as it will read once the conditions are written.
func readyIn(written []corev1.NodeCondition, before Ready) Ready {
	for _, c := range written {
		if c.Type != corev1.NodeReady {
			continue
		}
		after := Ready{Status: c.Status, Since: c.LastTransitionTime.Time, Reason: c.Reason, Heartbeat: before.Heartbeat}
		if !c.LastHeartbeatTime.IsZero() {
			after.Heartbeat = c.LastHeartbeatTime.Time
		}
		return after
	}
	return before
}
