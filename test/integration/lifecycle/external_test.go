package lifecycle_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// KEP-6371, integration tests, first and second line.
func TestAnOutsideUnknownCostsThePodsOfThatNodeAndOfNoOther(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "out-a", "out-b", "out-c")
	r.Pod(t, "out-a", "out-p1")
	other := r.Pod(t, "out-b", "out-p2")
	c := r.Start(t, rig.Alone, rig.External)
	rig.Eventually(t, 10*time.Second, r.TaintsAre(t, "out-a"))

	r.Detect(t, "out-a")
	const period = 5 * time.Second
	rig.Eventually(t, period, r.PodIs(t, "out-p1", corev1.ConditionFalse))
	rig.Eventually(t, period, r.TaintsAre(t, "out-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	rig.Eventually(t, period, r.EventsAre(t, "out-a", "NodeNotReady", 1))
	rig.Eventually(t, period, r.EventsAre(t, "out-p1", "NodeNotReady", 1))
	rig.Eventually(t, period, c.MetricIs(t, "nodewarden_controller_reaction_seconds_count", 1))
	marked, err := r.Admin.CoreV1().Pods(rig.Pods).Get(t.Context(), "out-p1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := rig.PodReady(marked); got.Reason != "Probed" || got.Message != "probe says so" || time.Since(got.LastTransitionTime.Time) > 20*time.Second {
		t.Errorf("the pod's Ready is %+v: reason and message are to be kept, the transition to be now", got)
	}

	r.Report(t, corev1.ConditionTrue, "out-a")
	rig.Eventually(t, period, r.TaintsAre(t, "out-a"))
	rig.Never(t, time.Second, r.EventsAre(t, "out-a", "NodeNotReady", 1))
	rig.Never(t, 100*time.Millisecond, r.TaintsAre(t, "out-b"))
	untouched, err := r.Admin.CoreV1().Pods(rig.Pods).Get(t.Context(), "out-p2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if untouched.ResourceVersion != other.ResourceVersion {
		t.Error("a pod of another node was written to")
	}
	if err := r.PodIs(t, "out-p1", corev1.ConditionFalse)(); err != nil {
		t.Errorf("only the kubelet makes a pod Ready again: %v", err)
	}
}
