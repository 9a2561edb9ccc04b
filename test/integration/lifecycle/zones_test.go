package lifecycle_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/controller/zone"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

const (
	size    = "node_collector_zone_size"
	stateOf = "nodewarden_controller_zone_state"
)

func label(t *testing.T, node, key, value string) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
	if _, err := r.Admin.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// B10.
func TestANodeThatChangesItsZoneTakesEverythingAlong(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "home", "b10-up", "b10-a")
	c := r.Start(t, rig.Alone, rig.External)
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(size, "home", ""), 2))
	r.Detect(t, "b10-a")
	both := r.TaintsAre(t, "b10-a", "unreachable:NoSchedule", "unreachable:NoExecute")
	rig.Eventually(t, soon, both)
	before := timeAdded(t, "b10-a")
	label(t, "b10-a", corev1.LabelTopologyZone, `"z9"`)
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(size, "z9", ""), 1))
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(size, "home", ""), 1))
	label(t, "b10-a", corev1.LabelTopologyZone, `null`)
	rig.Eventually(t, soon, c.MetricIs(t, size+`{zone=""}`, 1))
	page, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, there := rig.Metric(page, rig.InZone(size, "z9", "")); there {
		t.Error("a zone without nodes still has a size")
	}
	rig.Never(t, time.Second, both)
	if after := timeAdded(t, "b10-a"); after != before {
		t.Errorf("the taints were rewritten: %s, then %s", before, after)
	}
}

func timeAdded(t *testing.T, node string) string {
	t.Helper()
	n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(n.Spec.Taints)
}

// B12.
func TestWhenEveryZoneIsDownNobodyIsEvictedAndAfterwardsThoseStillDownAre(t *testing.T) {
	needsControlPlane(t)
	y, z := []string{"b12-y1", "b12-y2", "b12-y3"}, []string{"b12-z1", "b12-z2", "b12-z3", "b12-z4"}
	r.Ready(t, "y", y...)
	r.Ready(t, "z", z...)
	c := r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=2"})
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(stateOf, "z", `state="Normal",`), 1))
	r.Detect(t, y...)
	for _, n := range y {
		rig.Eventually(t, soon, r.TaintsAre(t, n, "unreachable:NoSchedule", "unreachable:NoExecute"))
	}
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(stateOf, "y", `state="FullDisruption",`), 1))
	r.Detect(t, z...)
	all := append(append([]string{}, y...), z...)
	for _, n := range all {
		rig.Eventually(t, soon, r.TaintsAre(t, n, "unreachable:NoSchedule"))
	}
	rig.Never(t, 2*time.Second, func() error {
		for _, n := range all {
			if err := r.TaintsAre(t, n, "unreachable:NoSchedule")(); err != nil {
				return err
			}
		}
		return nil
	})
	// One node back: its zone is partly disrupted and small, so nobody goes there;
	// the other zone is down alone, and is emptied at the full rate.
	r.Report(t, corev1.ConditionTrue, z[0])
	for _, n := range y {
		rig.Eventually(t, soon, r.TaintsAre(t, n, "unreachable:NoSchedule", "unreachable:NoExecute"))
	}
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(stateOf, "z", `state="PartialDisruption",`), 1))
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone("node_collector_unhealthy_nodes_in_zone", "z", ""), 3))
	rig.Never(t, time.Second, r.TaintsAre(t, z[1], "unreachable:NoSchedule"))
	// A node that is excluded leaves the count: two of three down are normal.
	label(t, z[1], zone.Excluded, `"false"`)
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone(stateOf, "z", `state="Normal",`), 1))
	for _, n := range z[1:] {
		rig.Eventually(t, soon, r.TaintsAre(t, n, "unreachable:NoSchedule", "unreachable:NoExecute"))
	}
}

// B16.
func TestAStartWithEverythingDownEvictsNothing(t *testing.T) {
	needsControlPlane(t)
	eviction, err := r.CP.StartControllerManager(t.Context(), controlplane.CMOptions{Controllers: []string{"taint-eviction-controller", "daemonset-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eviction.Stop)
	names := []string{"b16-1", "b16-2", "b16-3", "b16-4", "b16-5", "b16-6"}
	r.Ready(t, "z", names...)
	five := int64(5)
	for _, n := range names {
		r.Pod(t, n, n+"-p", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, Operator: corev1.TolerationOpExists, TolerationSeconds: &five}}
		})
	}
	r.Detect(t, names...)
	c := r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=0.2"})
	for _, n := range names {
		rig.Eventually(t, soon, r.PodIs(t, n+"-p", corev1.ConditionFalse))
	}
	rig.Never(t, 6*time.Second, func() error {
		for _, n := range names {
			if err := r.TaintsAre(t, n, "unreachable:NoSchedule")(); err != nil {
				return err
			}
		}
		return nil
	})
	r.Report(t, corev1.ConditionTrue, names...)
	for _, n := range names {
		rig.Eventually(t, soon, r.TaintsAre(t, n))
		if err := r.PodIs(t, n+"-p", corev1.ConditionFalse)(); err != nil {
			t.Error(err)
		}
	}
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone("node_collector_evictions_total", "z", ""), 0))
}
