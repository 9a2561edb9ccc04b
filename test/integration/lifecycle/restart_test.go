package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
// at a random moment while it deals with them.
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
	for round := 1; round <= rounds; round++ {
		after := time.Duration(rand.Int64N(int64(600 * time.Millisecond)))
		dead := make(chan struct{})
		time.AfterFunc(after, func() { leader.Kill(); close(dead) })
		inParallel(t, names[:failing], func(ctx context.Context, name string) error {
			now := metav1.Now()
			return rig.Write(ctx, r.Detector, name, rig.Condition{Type: "Ready", Status: "Unknown", Reason: "OutOfBandProbeFailed", LastTransitionTime: &now})
		})
		<-dead
		leader, standby = standby, r.Start(t, rig.External, twoReplicas)
		rig.Eventually(t, time.Minute, outageIsHandled(t, names[:failing], podsEach, round))
		t.Logf("round %d: killed after %v", round, after)
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
		down := map[string]bool{}
		nodes, err := r.Admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			down[n.Name] = strings.Contains(fmt.Sprint(rig.TaintsOf(&n)), "unreachable:NoSchedule")
		}
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
