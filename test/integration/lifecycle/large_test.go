package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// B15, large clusters.
func TestOneDeadNodeAmongManyIsDealtWithWithinOnePeriod(t *testing.T) { oneOfMany(t, 100) }

func TestSoakOneDeadNodeAmongManyIsDealtWithWithinOnePeriod(t *testing.T) {
	oneOfMany(t, rig.Soak(t, 2000))
}

// oneOfMany lets some nodes of a cluster with 30 pods a node fail, one at a time.
// Each must be tainted, told of and its pods NotReady within one node monitor
// period, no pass may take longer than that, and no other pod be touched.
func oneOfMany(t *testing.T, nodes int) {
	const (
		podsEach = 30
		failures = 5
		period   = time.Second
	)
	large, err := rig.New(t.Context(), controlplane.ForTest(t, controlplane.Options{APIServerArgs: []string{"--audit-log-path=", "--audit-policy-file="}}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := large.CP.SimulateNodes(t.Context(), controlplane.SimOptions{Prefix: "b15-large-", Count: nodes, Zones: []string{"a", "b", "c"}, Silent: true, Reporting: controlplane.Reporting{NoLease: true}})
	if err != nil {
		t.Fatal(err)
	}
	inParallel(t, sim.Names(), func(ctx context.Context, node string) error {
		for i := range podsEach {
			if _, err := large.CreatePod(ctx, node, fmt.Sprintf("%s-p%d", node, i)); err != nil {
				return err
			}
		}
		return nil
	})
	c := large.Start(t, rig.Alone, rig.External, []string{"--node-monitor-period=" + period.String()})
	rig.Eventually(t, time.Minute, func() error {
		list, err := large.Admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if taints := rig.TaintsOf(&list.Items[i]); len(taints) > 0 {
				return fmt.Errorf("node %s has taints %v", list.Items[i].Name, taints)
			}
		}
		return nil
	})
	for i := range failures {
		name := sim.Names()[i*nodes/failures]
		large.Detect(t, name)
		failed := time.Now()
		rig.Eventually(t, period, isDealtWith(t, large, name, podsEach))
		t.Logf("%s: dealt with after %v", name, time.Since(failed).Round(time.Millisecond))
	}
	if got, want := notReady(t, large, metav1.ListOptions{ResourceVersion: "0"}), failures*podsEach; got != want {
		t.Errorf("%d pods are NotReady, want %d", got, want)
	}
	rig.Eventually(t, soon, func() error {
		page, err := c.Metrics(t.Context())
		if err != nil {
			return err
		}
		if passes, _ := rig.Metric(page, "node_collector_update_all_nodes_health_duration_seconds_count"); passes < 2 {
			return fmt.Errorf("%v passes have been timed", passes)
		}
		return nil
	})
	if err := c.MetricIs(t, "nodewarden_controller_pass_overruns_total", 0)(); err != nil {
		t.Errorf("a pass took longer than %v: %v", period, err)
	}
}

// isDealtWith is an error unless a node has its taint and its event, and all its
// pods are NotReady.
func isDealtWith(t *testing.T, r *rig.Rig, name string, pods int) func() error {
	return func() error {
		n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taints := rig.TaintsOf(n); !slices.Contains(taints, "unreachable:NoSchedule") {
			return fmt.Errorf("node %s has taints %v", name, taints)
		}
		if got := notReady(t, r, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name}); got != pods {
			return fmt.Errorf("%d of %d pods of node %s are NotReady", got, pods, name)
		}
		return r.EventsAre(t, name, "NodeNotReady", 1)()
	}
}

func notReady(t *testing.T, r *rig.Rig, o metav1.ListOptions) (count int) {
	t.Helper()
	list, err := r.Admin.CoreV1().Pods(rig.Pods).List(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if rig.PodReady(&list.Items[i]).Status == corev1.ConditionFalse {
			count++
		}
	}
	return count
}
