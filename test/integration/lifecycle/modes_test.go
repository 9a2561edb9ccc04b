package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

const source = "node_collector_liveness_source"

func TestTheGateAndTheFlagGoOnOffAndOnAgain(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "gate-a", "gate-b")
	r.Pod(t, "gate-a", "gate-p")
	outage := func(wantEvents int, wantPod corev1.ConditionStatus, flags ...string) {
		t.Helper()
		c := r.Start(t, rig.Alone, flags)
		defer c.Stop()
		rig.Eventually(t, soon, r.TaintsAre(t, "gate-a"))
		r.Detect(t, "gate-a")
		rig.Eventually(t, soon, r.TaintsAre(t, "gate-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
		rig.Eventually(t, soon, r.PodIs(t, "gate-p", wantPod))
		rig.Eventually(t, soon, r.EventsAre(t, "gate-a", "NodeNotReady", wantEvents))
		r.Report(t, corev1.ConditionTrue, "gate-a")
		if _, err := r.SetPodReady(t.Context(), "gate-p", corev1.ConditionTrue); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, soon, r.TaintsAre(t, "gate-a"))
		time.Sleep(time.Second) // stamps have whole seconds
	}
	outage(1, corev1.ConditionFalse, rig.External...)
	outage(1, corev1.ConditionTrue)
	outage(1, corev1.ConditionTrue, "--feature-gates=ExternalNodeLivenessDetection=true")
	outage(2, corev1.ConditionFalse, rig.External...)
}

func TestExternalWithoutItsGateIsRefusedAtStart(t *testing.T) {
	needsControlPlane(t)
	c, err := r.Launch(t.Context(), r.CP.ServiceAccount(rig.Namespace, rig.Account), rig.Alone, []string{"--node-liveness-source=external", "--node-monitor-period=0s"})
	if err == nil {
		c.Stop()
		t.Fatal("it started")
	}
	for _, want := range []string{"--node-liveness-source", "ExternalNodeLivenessDetection=true", "--node-monitor-period"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from: %v", want, err)
		}
	}
}

func TestTwoPoolsLiveByTheirOwnSource(t *testing.T) {
	needsControlPlane(t)
	const pool = "node-restriction.kubernetes.io/liveness"
	r.Ready(t, "z", "pool-in", "pool-out", "pool-up")
	r.Pod(t, "pool-in", "pool-in-p")
	r.Pod(t, "pool-out", "pool-out-p")
	label(t, "pool-out", pool, `"external"`)
	c := r.Start(t, rig.Alone, rig.Fast, []string{"--feature-gates=ExternalNodeLivenessDetection=true", "--external-nodes=" + pool + "=external"})
	rig.Eventually(t, soon, c.MetricIs(t, source+`{source="external"}`, 1))
	rig.Eventually(t, soon, c.MetricIs(t, source+`{source="kubelet"}`, 1))

	// Nobody speaks for either node: the kubelet source gives its own up.
	rig.Eventually(t, soon, readyIs(t, "pool-in", corev1.ConditionUnknown))
	rig.Eventually(t, soon, r.PodIs(t, "pool-in-p", corev1.ConditionFalse))
	if err := readyIs(t, "pool-out", corev1.ConditionTrue)(); err != nil {
		t.Error(err)
	}
	r.Detect(t, "pool-out")
	rig.Eventually(t, soon, r.PodIs(t, "pool-out-p", corev1.ConditionFalse))

	// Both move while they are down, and nothing is told again.
	label(t, "pool-out", pool, `null`)
	label(t, "pool-in", pool, `"external"`)
	rig.Never(t, 2*time.Second, r.EventsAre(t, "pool-in", "NodeNotReady", 1))
	rig.Never(t, 100*time.Millisecond, r.EventsAre(t, "pool-out", "NodeNotReady", 1))

	// They are back. The one without a heartbeat now lives by the kubelet's word.
	r.Report(t, corev1.ConditionTrue, "pool-in", "pool-out")
	rig.Eventually(t, soon, r.TaintsAre(t, "pool-out"))
	rig.Eventually(t, soon, readyIs(t, "pool-out", corev1.ConditionUnknown))
	if err := readyIs(t, "pool-in", corev1.ConditionTrue)(); err != nil {
		t.Error(err)
	}
	rig.Eventually(t, soon, r.EventsAre(t, "pool-out", "NodeNotReady", 2))
}

func TestBesideTheInTreeControllerOnlyTheGapIsFilled(t *testing.T) {
	needsControlPlane(t)
	cm, err := r.CP.StartControllerManager(t.Context(), controlplane.CMOptions{Controllers: []string{"node-lifecycle-controller"}, Args: []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=6s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cm.Stop)
	r.Ready(t, "z", "beside-out", "beside-dead", "beside-up")
	r.Pod(t, "beside-out", "beside-out-p")
	r.Pod(t, "beside-dead", "beside-dead-p")
	since := time.Now()
	r.Start(t, rig.Alone, rig.External, []string{"--mode=beside"})
	alive := func() {
		r.Renew(t, "beside-out", time.Now())
		r.Renew(t, "beside-up", time.Now())
	}
	alive()
	rig.Eventually(t, soon, r.TaintsAre(t, "beside-out"))
	r.Detect(t, "beside-out")
	rig.Eventually(t, soon, r.PodIs(t, "beside-out-p", corev1.ConditionFalse))
	rig.Eventually(t, soon, r.EventsAre(t, "beside-out", "NodeNotReady", 1))
	rig.Eventually(t, soon, r.TaintsAre(t, "beside-out", "unreachable:NoSchedule", "unreachable:NoExecute"))
	rig.Eventually(t, soon, func() error { alive(); return readyIs(t, "beside-dead", corev1.ConditionUnknown)() })
	rig.Eventually(t, soon, r.PodIs(t, "beside-dead-p", corev1.ConditionFalse))
	rig.Never(t, time.Second, func() error { alive(); return r.EventsAre(t, "beside-dead", "NodeNotReady", 1)() })
	writes, err := r.CP.Audit(controlplane.AuditFilter{User: rig.Username, Resource: "nodes", Verbs: []string{"patch", "update", "create"}, Since: since})
	if err != nil {
		t.Fatal(err)
	}
	if len(writes) > 0 {
		t.Errorf("beside the in-tree controller, %d writes to nodes: first %s", len(writes), writes[0].RequestURI)
	}
}
