package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

func TestWhereNothingIsLeftToDoARestartWritesNothing(t *testing.T) {
	needsControlPlane(t)
	for mode, flags := range map[string][]string{"external": rig.External, "kubelet": nil} {
		t.Run(mode, func(t *testing.T) {
			a, b, up := mode+"-still-a", mode+"-still-b", mode+"-still-up"
			r.Ready(t, "z", a, b, up)
			r.Pod(t, a, a+"-p")
			c := r.Start(t, rig.Alone, flags, []string{"--node-eviction-rate=10"})
			rig.Eventually(t, soon, r.TaintsAre(t, a))
			r.Detect(t, a)
			r.Report(t, corev1.ConditionFalse, b)
			rig.Eventually(t, soon, r.TaintsAre(t, a, "unreachable:NoSchedule", "unreachable:NoExecute"))
			rig.Eventually(t, soon, r.TaintsAre(t, b, "not-ready:NoSchedule", "not-ready:NoExecute"))
			if mode == "external" {
				rig.Eventually(t, soon, r.PodIs(t, a+"-p", corev1.ConditionFalse))
			}
			before := timeAdded(t, a) + timeAdded(t, b)
			c.Stop()
			since := time.Now()
			c = r.Start(t, rig.Alone, flags, []string{"--node-eviction-rate=10"})
			rig.Eventually(t, soon, c.MetricIs(t, rig.InZone("nodewarden_controller_zone_state", "z", `state="Normal",`), 1))
			rig.Never(t, 2*time.Second, func() error {
				if after := timeAdded(t, a) + timeAdded(t, b); after != before {
					return fmt.Errorf("taints %s, then %s", before, after)
				}
				return nil
			})
			writes, err := r.CP.Audit(controlplane.AuditFilter{User: rig.Username, Since: since, Verbs: []string{"patch", "update"}})
			if err != nil {
				t.Fatal(err)
			}
			if len(writes) > 0 {
				t.Errorf("%d writes, the first to %s", len(writes), writes[0].RequestURI)
			}
			events, err := r.CP.Audit(controlplane.AuditFilter{User: rig.Username, Since: since, Resource: "events", Where: func(e auditv1.Event) bool {
				return e.ResponseStatus != nil && e.ResponseStatus.Code == 201
			}})
			if err != nil {
				t.Fatal(err)
			}
			if want := 3; len(events) != want { // RegisteredNode of each node
				t.Errorf("%d events, want %d", len(events), want)
			}
		})
	}
}

var twoReplicas = []string{"--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms", "--leader-elect-retry-period=300ms", "--node-eviction-rate=1000"}

func TestALeaderKilledInTheMiddleOfAnOutageLosesAndRepeatsNothing(t *testing.T) { killLeaders(t, 3) }

func TestSoakALeaderKilledInTheMiddleOfAnOutageLosesAndRepeatsNothing(t *testing.T) {
	killLeaders(t, rig.Soak(t, 50))
}

// killLeaders lets 100 nodes fail in each round, and kills the leader with SIGKILL
// when it has tainted some of them, at random how many.
func killLeaders(t *testing.T, rounds int) {
	needsControlPlane(t)
	const failing, podsEach = 100, 2
	sim, err := r.CP.SimulateNodes(t.Context(), controlplane.SimOptions{Prefix: "kill-", Count: failing + 20, Reporting: controlplane.Reporting{NoLease: true, StatusEvery: time.Hour}, Silent: true})
	if err != nil {
		t.Fatal(err)
	}
	names := sim.Names()
	t.Cleanup(func() {
		for _, n := range names {
			r.Forget(t, n)
		}
		// Events outlive their nodes, and the soak has nodes of the same names.
		if err := r.Admin.CoreV1().Events("default").DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "reason=NodeNotReady"}); err != nil {
			t.Error(err)
		}
	})
	inParallel(t, names[:failing], func(ctx context.Context, name string) error {
		var errs []error
		for i := range podsEach {
			_, err := r.CreatePod(ctx, name, fmt.Sprintf("%s-p%d", name, i))
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	leader := r.Start(t, rig.External, twoReplicas)
	rig.Eventually(t, soon, untainted(t, names))
	standby := r.Start(t, rig.External, twoReplicas)
	midway := 0
	for round := 1; round <= rounds; round++ {
		leader, standby = inLead(t, leader, standby)
		holder := holds(t)
		after := 1 + rand.IntN(failing/2)
		tainted := whenUnreachable(t, after)
		dead := make(chan struct{})
		go func() { <-tainted; leader.Kill(); close(dead) }()
		inParallel(t, names[:failing], func(ctx context.Context, name string) error {
			now := metav1.Now()
			return rig.Write(ctx, r.Detector, name, rig.Condition{Type: "Ready", Status: "Unknown", Reason: "OutOfBandProbeFailed", LastTransitionTime: &now})
		})
		select {
		case <-dead:
		case <-time.After(time.Minute):
			t.Fatalf("round %d: not even %d nodes were tainted", round, after)
		}
		// One that loses the lead ends by itself.
		if got := leader.State(); got != "signal: killed" {
			t.Fatalf("round %d: the leader ended otherwise: %s", round, got)
		}
		done := len(unreachable(t))
		if done < failing {
			midway++
		}
		leader, standby = standby, r.Start(t, rig.External, twoReplicas)
		rig.Eventually(t, time.Minute, outageIsHandled(t, names[:failing], podsEach, round))
		rig.Eventually(t, soon, func() error {
			if now := holds(t); now == "" || now == holder {
				return fmt.Errorf("the Lease is held by %q, as before the kill", now)
			}
			return nil
		})
		t.Logf("round %d: killed at %d tainted nodes, with %d done", round, after, done)
		inParallel(t, names[:failing], func(ctx context.Context, name string) error {
			now := metav1.Now()
			err := rig.Write(ctx, r.Admin, name, rig.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady", LastHeartbeatTime: &now, LastTransitionTime: &now})
			for i := range podsEach {
				_, perr := r.SetPodReady(ctx, fmt.Sprintf("%s-p%d", name, i), corev1.ConditionTrue)
				err = errors.Join(err, perr)
			}
			return err
		})
		rig.Eventually(t, time.Minute, untainted(t, names))
	}
	// A busy machine may be late with a kill, but not always.
	if midway == 0 {
		t.Errorf("in all %d rounds the leader had tainted every node before it was killed", rounds)
	}
}

// inLead waits until one of two replicas leads, and returns that one first.
func inLead(t *testing.T, a, b *rig.Controller) (leader, standby *rig.Controller) {
	t.Helper()
	leads := func(c *rig.Controller) error {
		return c.MetricIs(t, `leader_election_master_status{name="nodewarden-controller"}`, 1)()
	}
	rig.Eventually(t, soon, func() error {
		if leads(b) == nil {
			a, b = b, a
		}
		return leads(a)
	})
	return a, b
}

// holds is who holds the Lease of the leader.
func holds(t *testing.T) string {
	t.Helper()
	l, err := r.Admin.CoordinationV1().Leases(rig.Namespace).Get(t.Context(), "nodewarden-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// whenUnreachable is closed when so many nodes have been tainted as unreachable.
func whenUnreachable(t *testing.T, n int) <-chan struct{} {
	t.Helper()
	w, err := r.Admin.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{})
	go func() {
		defer w.Stop()
		down := map[string]bool{}
		for e := range w.ResultChan() {
			if node, ok := e.Object.(*corev1.Node); ok && isUnreachable(node) {
				down[node.Name] = true
			}
			if len(down) >= n {
				close(reached)
				return
			}
		}
	}()
	return reached
}

// unreachable are the nodes that are tainted as such.
func unreachable(t *testing.T) map[string]bool {
	t.Helper()
	list, err := r.Admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	down := map[string]bool{}
	for _, n := range list.Items {
		if isUnreachable(&n) {
			down[n.Name] = true
		}
	}
	return down
}

func isUnreachable(n *corev1.Node) bool {
	return slices.Contains(rig.TaintsOf(n), "unreachable:NoSchedule")
}

func inParallel(t *testing.T, names []string, do func(context.Context, string) error) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for _, name := range names {
		g.Go(func() error { return do(ctx, name) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func untainted(t *testing.T, names []string) func() error {
	return func() error {
		list, err := r.Admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		clean := 0
		for _, n := range list.Items {
			if len(n.Spec.Taints) == 0 {
				clean++
			}
		}
		if clean < len(names) {
			return fmt.Errorf("%d of %d nodes without taints", clean, len(names))
		}
		return nil
	}
}

// outageIsHandled is an error unless every node has its NoSchedule taint and its
// pods are NotReady, and every outage so far was told exactly once.
func outageIsHandled(t *testing.T, names []string, podsEach, outages int) func() error {
	return func() error {
		down := unreachable(t)
		marked := map[string]int{}
		pods, err := r.Admin.CoreV1().Pods(rig.Pods).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if rig.PodReady(&p).Status == corev1.ConditionFalse {
				marked[p.Spec.NodeName]++
			}
		}
		told := map[string]int{}
		events, err := r.Admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NodeNotReady"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			told[e.InvolvedObject.Name]++
		}
		for _, name := range names {
			if !down[name] || marked[name] != podsEach || told[name] != outages {
				return fmt.Errorf("node %s: tainted %v, %d pods marked, %d events; want true, %d, %d", name, down[name], marked[name], told[name], podsEach, outages)
			}
		}
		return nil
	}
}
