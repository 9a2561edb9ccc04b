package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

func readyIs(t *testing.T, node string, want corev1.ConditionStatus) func() error {
	return func() error {
		n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != want {
				return fmt.Errorf("node %s is Ready=%s (%s), want %s", node, c.Status, c.Reason, want)
			}
		}
		return nil
	}
}

func TestHollowKubeletsDieAndComeBack(t *testing.T) {
	needsControlPlane(t)
	c := r.Start(t, rig.Alone, rig.Fast)
	h, err := r.CP.StartHollow(t.Context(), controlplane.HollowOptions{Names: []string{"hollow-a", "hollow-b"}, Reporting: controlplane.Reporting{StatusEvery: time.Second, LeaseDuration: 4 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Stop()
		r.Forget(t, "hollow-a")
		r.Forget(t, "hollow-b")
	})
	rig.Eventually(t, soon, r.TaintsAre(t, "hollow-a"))
	if _, err := r.CreatePod(t.Context(), "hollow-a", "hollow-p"); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, soon, r.PodIs(t, "hollow-p", corev1.ConditionTrue))
	if err := h.Cut("hollow-a"); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, soon, readyIs(t, "hollow-a", corev1.ConditionUnknown))
	rig.Eventually(t, soon, r.PodIs(t, "hollow-p", corev1.ConditionFalse))
	rig.Eventually(t, soon, r.TaintsAre(t, "hollow-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	rig.Eventually(t, soon, r.EventsAre(t, "hollow-a", "NodeNotReady", 1))
	if err := h.Mend("hollow-a"); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, soon, r.TaintsAre(t, "hollow-a"))
	rig.Eventually(t, 30*time.Second, r.PodIs(t, "hollow-p", corev1.ConditionTrue))
	rig.Never(t, 500*time.Millisecond, r.EventsAre(t, "hollow-a", "NodeNotReady", 1))
	rig.Eventually(t, soon, c.MetricIs(t, "nodewarden_controller_unleased_nodes", 0))
	if err := readyIs(t, "hollow-b", corev1.ConditionTrue)(); err != nil {
		t.Error(err)
	}
}

// KEP-4781: a kubelet that restarts is no outage.
func TestARestartedKubeletCostsNoPod(t *testing.T) {
	needsControlPlane(t)
	o := controlplane.HollowOptions{Names: []string{"k4781"}, Reporting: controlplane.Reporting{StatusEvery: time.Second, LeaseDuration: 4 * time.Second}}
	for mode, flags := range map[string][]string{"external": rig.External, "kubelet": {"--node-monitor-grace-period=20s"}} {
		t.Run(mode, func(t *testing.T) {
			h, err := r.CP.StartHollow(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			r.Start(t, rig.Alone, flags)
			t.Cleanup(func() { h.Stop(); r.Forget(t, "k4781") })
			rig.Eventually(t, soon, r.TaintsAre(t, "k4781"))
			since := time.Now()
			if _, err := r.CreatePod(t.Context(), "k4781", "k4781-p-"+mode); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, soon, r.PodIs(t, "k4781-p-"+mode, corev1.ConditionTrue))
			h.Kill()
			again, err := r.CP.StartHollow(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			h = again
			rig.Never(t, 3*time.Second, r.TaintsAre(t, "k4781"))
			rig.Eventually(t, soon, renewedSince(t, "k4781", time.Now()))
			writes, err := r.CP.Audit(controlplane.AuditFilter{User: rig.Username, Resource: "pods", Subresource: "status", Name: "k4781-p-" + mode, Since: since})
			if err != nil {
				t.Fatal(err)
			}
			if len(writes) > 0 {
				t.Errorf("the pod was written to %d times", len(writes))
			}
		})
	}
}

// renewedSince is an error unless the node's kubelet has renewed its Lease since.
func renewedSince(t *testing.T, node string, since time.Time) func() error {
	return func() error {
		l, err := r.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node, metav1.GetOptions{})
		if err == nil && !l.Spec.RenewTime.After(since) {
			err = fmt.Errorf("the Lease of node %s was renewed at %v and not since", node, l.Spec.RenewTime)
		}
		return err
	}
}

// KEP-6371, integration tests, third line; Version Skew Strategy.
func TestWithoutLeasesTheKubeletSourceFlapsAndSaysSo(t *testing.T) {
	needsControlPlane(t)
	c := r.Start(t, rig.Alone, rig.Fast)
	h, err := r.CP.StartHollow(t.Context(), controlplane.HollowOptions{Names: []string{"skew-a"}, Reporting: controlplane.Reporting{StatusEvery: time.Second, ReportEvery: 5 * time.Minute, NoLease: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Stop(); r.Forget(t, "skew-a") })
	for round := range 2 {
		rig.Eventually(t, soon, r.TaintsAre(t, "skew-a"))
		rig.Eventually(t, soon, func() error {
			if got := r.Events(t, "skew-a", "NodeNotReady"); got <= round {
				return fmt.Errorf("%d outages so far", got)
			}
			return nil
		})
	}
	rig.Eventually(t, soon, c.MetricIs(t, "nodewarden_controller_unleased_nodes", 1))
}

func TestOnTheKubeletSourceAnOutsideUnknownCostsNoPod(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "inside-a", "inside-b")
	p := r.Pod(t, "inside-a", "inside-p")
	r.Start(t, rig.Alone)
	rig.Eventually(t, soon, r.TaintsAre(t, "inside-a"))
	r.Detect(t, "inside-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "inside-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	late := r.Pod(t, "inside-a", "inside-late")
	rig.Never(t, 1500*time.Millisecond, untouched(t, p))
	rig.Never(t, 500*time.Millisecond, untouched(t, late))
	rig.Never(t, 100*time.Millisecond, r.EventsAre(t, "inside-a", "NodeNotReady", 0))
}

// B14.
func TestClocksOfKubeletsDoNotMatter(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b14-behind", "b14-ahead", "b14-back", "b14-up")
	r.Start(t, rig.Alone, rig.Fast)
	began := time.Now()
	r.Renew(t, "b14-ahead", began.Add(time.Hour))
	for i := range 12 {
		now := time.Now()
		r.Renew(t, "b14-behind", now.Add(-10*time.Minute))
		back := now
		if i > 2 {
			back = now.Add(-5 * time.Minute)
		}
		r.Renew(t, "b14-back", back)
		r.Renew(t, "b14-up", now)
		for _, name := range []string{"b14-behind", "b14-back", "b14-up"} {
			if err := readyIs(t, name, corev1.ConditionTrue)(); err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
		}
		time.Sleep(700 * time.Millisecond)
	}
	if err := readyIs(t, "b14-ahead", corev1.ConditionUnknown)(); err != nil {
		t.Errorf("a stamp in the future extends life: %v", err)
	}
}

// B15, kubelet source.
func TestAStalledLeaseWatchKillsNoNode(t *testing.T) { stallLeases(t, 100, 4*time.Second) }

func TestSoakAStalledLeaseWatchKillsNoNode(t *testing.T) {
	stallLeases(t, rig.Soak(t, 500), 10*time.Second)
}

// stallLeases freezes the watch of Leases for two and a half grace periods, of
// which nodes renew theirs four times in each.
func stallLeases(t *testing.T, nodes int, grace time.Duration) {
	t.Helper()
	needsControlPlane(t)
	sim, err := r.CP.SimulateNodes(t.Context(), controlplane.SimOptions{Prefix: "b15-", Count: nodes, Reporting: controlplane.Reporting{LeaseDuration: grace, StatusEvery: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Pause(sim.Names()...); err != nil {
			t.Error(err)
		}
		for _, n := range sim.Names() {
			r.Forget(t, n)
		}
	})
	proxy := r.Proxy(t, r.CP.ServiceAccount(rig.Namespace, rig.Account))
	r.StartAs(t, proxy.Config(), rig.Alone, rig.Fast, []string{"--node-monitor-grace-period=" + grace.String()})
	rig.Eventually(t, soon, r.TaintsAre(t, sim.Names()[nodes-1]))
	proxy.Freeze("leases")
	began := time.Now()
	rig.Never(t, grace*5/2, func() error {
		list, err := r.Admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for _, n := range list.Items {
			if err := readyIsOf(&n, corev1.ConditionTrue); err != nil {
				return fmt.Errorf("after %v: %w", time.Since(began), err)
			}
		}
		return nil
	})
	// A node that really dies is found although the watch is still stalled.
	if err := sim.Pause("b15-1"); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, soon, readyIs(t, "b15-1", corev1.ConditionUnknown))
}

func readyIsOf(n *corev1.Node, want corev1.ConditionStatus) error {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != want {
			return fmt.Errorf("node %s is Ready=%s (%s), want %s", n.Name, c.Status, c.Reason, want)
		}
	}
	return nil
}

// B15, external source.
func TestAStaleCacheOfNodesIsNotActedOn(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "stale-a", "stale-b")
	proxy := r.Proxy(t, r.CP.ServiceAccount(rig.Namespace, rig.Account))
	c := r.StartAs(t, proxy.Config(), rig.Alone, rig.External, []string{"--node-monitor-period=500ms"})
	rig.Eventually(t, soon, r.TaintsAre(t, "stale-a"))
	r.Detect(t, "stale-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "stale-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	proxy.Freeze("nodes")
	r.Report(t, corev1.ConditionTrue, "stale-a")
	rig.Eventually(t, soon, func() error {
		page, err := c.Metrics(t.Context())
		if err != nil {
			return err
		}
		if age, _ := rig.Metric(page, "nodewarden_controller_node_cache_age_seconds"); age < 6 {
			return fmt.Errorf("the cache is said to be %v s old", age)
		}
		return nil
	})
	// The node is well; only the controller cannot know.
	p := r.ArrivingPod(t, "stale-a", "stale-p")
	rig.Never(t, 2*time.Second, untouched(t, p))
	proxy.Thaw()
	rig.Eventually(t, soon, r.TaintsAre(t, "stale-a"))
	rig.Never(t, time.Second, untouched(t, p))
}

func TestAQuietClusterIsNotAStaleOne(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "quiet-a")
	c := r.Start(t, rig.Alone, rig.External, []string{"--node-monitor-period=500ms"})
	rig.Eventually(t, soon, r.TaintsAre(t, "quiet-a"))
	rig.Never(t, 5*time.Second, func() error {
		page, err := c.Metrics(t.Context())
		if err != nil {
			return err
		}
		if age, _ := rig.Metric(page, "nodewarden_controller_node_cache_age_seconds"); age > 3.5 {
			return fmt.Errorf("the cache is said to be %v s old", age)
		}
		return nil
	})
}

// The in-tree controller never gets its write in between (134 conflicts in 15 s at
// 500 writes a second).
func TestANodeThatIsWrittenToAllTheTimeIsStillGivenUp(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "busy-a")
	r.Start(t, rig.Alone, rig.Fast)
	rig.Eventually(t, soon, r.TaintsAre(t, "busy-a"))
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	writes := make([]int, 2)
	for w := range writes {
		writers.Go(func() {
			for ; ctx.Err() == nil; writes[w]++ {
				body := fmt.Appendf(nil, `{"metadata":{"annotations":{"busy%d":"%d"}}}`, w, writes[w])
				_, _ = r.Admin.CoreV1().Nodes().Patch(ctx, "busy-a", types.MergePatchType, body, metav1.PatchOptions{})
			}
		})
	}
	defer func() {
		stop()
		writers.Wait()
		t.Logf("%v writes meanwhile", writes)
	}()
	rig.Eventually(t, 30*time.Second, readyIs(t, "busy-a", corev1.ConditionUnknown))
	// It is the only node, so that the whole cluster is down.
	rig.Eventually(t, soon, r.TaintsAre(t, "busy-a", "unreachable:NoSchedule"))
}
