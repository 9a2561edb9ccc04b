package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
	"github.com/nodewarden/nodewarden/test/nodes"
)

// soon is how long anything may take that ought to happen at once; busy machines
// are slow.
const soon = 15 * time.Second

// B01.
func TestFalseThatBecomesUnknownCostsThePodsToo(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b01-a", "b01-b", "b01-c")
	r.Pod(t, "b01-a", "b01-p")
	r.Start(t, rig.Alone, rig.External)
	rig.Eventually(t, soon, r.TaintsAre(t, "b01-a"))
	r.Report(t, corev1.ConditionFalse, "b01-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "b01-a", "not-ready:NoSchedule", "not-ready:NoExecute"))
	if err := r.PodIs(t, "b01-p", corev1.ConditionTrue)(); err != nil {
		t.Error(err)
	}
	r.Detect(t, "b01-a")
	rig.Eventually(t, soon, r.PodIs(t, "b01-p", corev1.ConditionFalse))
	rig.Eventually(t, soon, r.TaintsAre(t, "b01-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	rig.Eventually(t, soon, r.EventsAre(t, "b01-a", "NodeNotReady", 1))
}

// B02.
func TestFalseTouchesNoPod(t *testing.T) {
	needsControlPlane(t)
	for mode, flags := range map[string][]string{"external": rig.External, "kubelet": nil} {
		t.Run(mode, func(t *testing.T) {
			a, b := "b02-a-"+mode, "b02-b-"+mode
			r.Ready(t, "z", a, b)
			p := r.Pod(t, a, "b02-p-"+mode)
			r.Start(t, rig.Alone, flags, []string{"--node-monitor-period=500ms"})
			rig.Eventually(t, soon, r.TaintsAre(t, a))
			r.Report(t, corev1.ConditionFalse, a)
			rig.Eventually(t, soon, r.TaintsAre(t, a, "not-ready:NoSchedule", "not-ready:NoExecute"))
			rig.Never(t, 1500*time.Millisecond, untouched(t, p))
		})
	}
}

// untouched is an error when a pod has been written to.
func untouched(t *testing.T, p *corev1.Pod) func() error {
	return func() error {
		now, err := r.Admin.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err == nil && now.ResourceVersion != p.ResourceVersion {
			err = fmt.Errorf("pod %s was written to: %+v", p.Name, now.Status.Conditions)
		}
		return err
	}
}

func TestAfterAStartThePodsOfNodesThatAreDownAreMarked(t *testing.T) {
	needsControlPlane(t)
	now := time.Now()
	down := func(name string, status corev1.ConditionStatus, since time.Time) {
		b := nodes.Reporting(name, now.Add(-time.Hour), now).Node()
		ready := nodes.Ready(b)
		ready.Status, ready.Reason, ready.LastTransitionTime = status, "Outside", metav1.NewTime(since)
		made := nodes.Named(name)
		for _, c := range b.Status.Conditions {
			made.Condition(c)
		}
		r.Node(t, made)
		r.Pod(t, name, name+"-p")
	}
	r.Ready(t, "z", "first-up")
	down("first-false", corev1.ConditionFalse, now)
	down("first-young", corev1.ConditionUnknown, now.Add(-10*time.Minute))
	down("first-old", corev1.ConditionUnknown, now.Add(-20*time.Minute))
	r.Start(t, rig.Alone, rig.External)
	for _, name := range []string{"first-false", "first-young", "first-old"} {
		rig.Eventually(t, soon, r.PodIs(t, name+"-p", corev1.ConditionFalse))
	}
	rig.Eventually(t, soon, r.EventsAre(t, "first-young", "NodeNotReady", 1))
	rig.Never(t, time.Second, r.EventsAre(t, "first-old", "NodeNotReady", 0))
	rig.Never(t, time.Second, r.EventsAre(t, "first-false", "NodeNotReady", 0))
}

func TestANodeThatNeverReportedIsMarkedUnknownAfterTheStartupGrace(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "never-up")
	r.Node(t, nodes.Named("never-a"))
	p := r.Pod(t, "never-a", "never-p")
	r.Start(t, rig.Alone, rig.External, rig.Fast)
	rig.Eventually(t, soon, func() error {
		n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), "never-a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, c := range n.Status.Conditions {
			got = append(got, fmt.Sprint(c.Type, c.Status, c.Reason, c.LastHeartbeatTime.Equal(&n.CreationTimestamp)))
		}
		want := []string{"ReadyUnknownNodeStatusNeverUpdatedtrue", "MemoryPressureUnknownNodeStatusNeverUpdatedtrue", "DiskPressureUnknownNodeStatusNeverUpdatedtrue", "PIDPressureUnknownNodeStatusNeverUpdatedtrue"}
		if !slices.Equal(got, want) {
			return fmt.Errorf("conditions %v, want %v", got, want)
		}
		return nil
	})
	rig.Eventually(t, soon, r.TaintsAre(t, "never-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	rig.Never(t, time.Second, untouched(t, p))
	rig.Never(t, 100*time.Millisecond, r.EventsAre(t, "never-a", "NodeNotReady", 0))
}

func TestAnExternalNodeThatStopsHeartbeatingStaysReady(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "mute-a")
	r.Start(t, rig.Alone, rig.External, rig.Fast)
	rig.Eventually(t, soon, r.TaintsAre(t, "mute-a"))
	rig.Never(t, 6*time.Second, r.TaintsAre(t, "mute-a"))
}

// B04.
func TestPodsThatArriveAreJudgedByTheNodeAsItIs(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b04-a", "b04-b")
	r.Start(t, rig.Alone, rig.External)
	rig.Eventually(t, soon, r.TaintsAre(t, "b04-a"))
	r.Detect(t, "b04-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "b04-a", "unreachable:NoSchedule", "unreachable:NoExecute"))

	r.ArrivingPod(t, "b04-a", "b04-bound")
	rig.Eventually(t, soon, r.PodIs(t, "b04-bound", corev1.ConditionFalse))

	// The node recovers with a write that does not move its heartbeat.
	now := metav1.Now()
	if err := rig.Write(t.Context(), r.Kubelet(t, "b04-a"), "b04-a", rig.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady", LastTransitionTime: &now}); err != nil {
		t.Fatal(err)
	}
	fresh := r.Pod(t, "b04-a", "b04-fresh")
	rig.Eventually(t, soon, r.TaintsAre(t, "b04-a"))
	rig.Never(t, 2*time.Second, untouched(t, fresh))
	if err := r.PodIs(t, "b04-bound", corev1.ConditionFalse)(); err != nil {
		t.Errorf("only the kubelet makes a pod Ready again: %v", err)
	}
}

// B06.
func TestTaintsEditedByHandArePutRight(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b06-a", "b06-b", "b06-c", "b06-d")
	r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=10"})
	r.Detect(t, "b06-a")
	both := r.TaintsAre(t, "b06-a", "unreachable:NoSchedule", "unreachable:NoExecute")
	rig.Eventually(t, soon, both)
	setTaints(t, "b06-a", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
	rig.Eventually(t, soon, both)
	setTaints(t, "b06-a")
	rig.Eventually(t, soon, both)
	setTaints(t, "b06-b", corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	rig.Eventually(t, soon, r.TaintsAre(t, "b06-b"))
}

func setTaints(t *testing.T, node string, taints ...corev1.Taint) {
	t.Helper()
	rig.Eventually(t, soon, func() error {
		n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = taints
		_, err = r.Admin.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	})
}

// B07.
func TestNoTaintOfAnotherClientIsEverLost(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b07-a", "b07-b", "b07-c")
	r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=1000"})
	rig.Eventually(t, soon, r.TaintsAre(t, "b07-a"))
	const rounds = 200
	var want []string
	for i := range rounds {
		key := fmt.Sprintf("example.com/t%03d", i)
		want = append(want, key+":NoSchedule")
		if i%2 == 0 {
			addTaint(t, "b07-a", key)
		}
		if i%4 < 2 {
			r.Detect(t, "b07-a")
		} else {
			r.Report(t, corev1.ConditionTrue, "b07-a")
		}
		if i%2 == 1 {
			addTaint(t, "b07-a", key)
		}
	}
	r.Report(t, corev1.ConditionTrue, "b07-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "b07-a", want...))
}

// addTaint appends with a JSON patch, so it never depends on what it has read.
func addTaint(t *testing.T, node, key string) {
	t.Helper()
	rig.Eventually(t, soon, func() error {
		n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		body := fmt.Sprintf(`[{"op":"add","path":"/spec/taints/-","value":{"key":%q,"effect":"NoSchedule"}}]`, key)
		if len(n.Spec.Taints) == 0 {
			body = fmt.Sprintf(`[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/spec/taints","value":[{"key":%q,"effect":"NoSchedule"}]}]`, n.ResourceVersion, key)
		}
		_, err = r.Admin.CoreV1().Nodes().Patch(t.Context(), node, types.JSONPatchType, []byte(body), metav1.PatchOptions{})
		return err
	})
}

// B08.
func TestNoExecuteNeverStaysBehindNoSchedule(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b08-a", "b08-b", "b08-c")
	r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=1000"})
	rig.Eventually(t, soon, r.TaintsAre(t, "b08-a"))
	var seen [][]string
	wait := eachTaints(t, "b08-a", func(taints []string) bool {
		seen = append(seen, taints)
		return !slices.Contains(taints, "example.com/last:NoSchedule")
	})
	const rounds = 10
	for range rounds {
		r.Detect(t, "b08-a")
		rig.Eventually(t, soon, r.TaintsAre(t, "b08-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
		r.Report(t, corev1.ConditionFalse, "b08-a")
		rig.Eventually(t, soon, r.TaintsAre(t, "b08-a", "not-ready:NoSchedule", "not-ready:NoExecute"))
		r.Report(t, corev1.ConditionTrue, "b08-a")
		rig.Eventually(t, soon, r.TaintsAre(t, "b08-a"))
	}
	addTaint(t, "b08-a", "example.com/last")
	wait()
	// Each round was seen to pass through three states above, so the watch saw them too.
	if len(seen) < 3*rounds {
		t.Errorf("the taints changed only %d times in %d rounds", len(seen), rounds)
	}
	for _, got := range seen {
		exec := slices.ContainsFunc(got, func(s string) bool { return s == "unreachable:NoExecute" || s == "not-ready:NoExecute" })
		if exec && !closed(got) || slices.Contains(got, "unreachable:NoExecute") && slices.Contains(got, "not-ready:NoExecute") {
			t.Errorf("for a moment the taints were %v", got)
		}
	}
}

// closed is whether our taints keep new pods away.
func closed(taints []string) bool {
	return slices.Contains(taints, "unreachable:NoSchedule") || slices.Contains(taints, "not-ready:NoSchedule")
}

// eachTaints watches a node and calls do whenever its taints have changed, as long
// as do wants more. wait returns when it does not.
func eachTaints(t *testing.T, node string, do func([]string) (more bool)) (wait func()) {
	t.Helper()
	w, err := r.Admin.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer w.Stop()
		var last []string
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok || slices.Equal(rig.TaintsOf(n), last) {
				continue
			}
			last = rig.TaintsOf(n)
			if !do(last) {
				close(done)
				return
			}
		}
	}()
	return func() {
		t.Helper()
		select {
		case <-done:
		case <-time.After(soon):
			t.Fatalf("the watch of node %s did not see what it waits for", node)
		}
	}
}

// B08, the pod that is bound at once.
func TestAPodThatIsBoundTheMomentNoScheduleIsGoneStays(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b08-d", "b08-e", "b08-f")
	// The first finds pods by an index that only the second makes.
	evictions, err := r.CP.StartControllerManager(t.Context(), controlplane.CMOptions{Controllers: []string{"taint-eviction-controller", "daemonset-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(evictions.Stop)
	r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=1000"})
	rig.Eventually(t, soon, r.TaintsAre(t, "b08-d"))
	r.Pod(t, "b08-d", "b08-p1", intolerant)
	r.Pod(t, "", "b08-p2", intolerant)
	down := false
	wait := eachTaints(t, "b08-d", func(taints []string) bool {
		if down && !closed(taints) {
			if err := r.Bind(t.Context(), "b08-d", "b08-p2"); err != nil {
				t.Error(err)
			}
			return false
		}
		down = closed(taints)
		return true
	})
	r.Detect(t, "b08-d")
	rig.Eventually(t, soon, func() error {
		if kept(t, "b08-p1")() == nil {
			return fmt.Errorf("pod b08-p1 is not evicted, so this test shows nothing")
		}
		return nil
	})
	r.Report(t, corev1.ConditionTrue, "b08-d")
	wait()
	rig.Never(t, 2*time.Second, kept(t, "b08-p2"))
}

// intolerant makes a pod that a NoExecute taint ends at once; pods that say nothing
// are given five minutes.
func intolerant(p *corev1.Pod) {
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64)})
	}
}

// kept is an error when a pod is deleted.
func kept(t *testing.T, name string) func() error {
	return func() error {
		p, err := r.Admin.CoreV1().Pods(rig.Pods).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp != nil {
			err = fmt.Errorf("pod %s was deleted at %v", name, p.DeletionTimestamp)
		}
		return err
	}
}

// B17.
func TestEveryOutageIsToldOnceHoweverManyRestartsAndConflictsItSees(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b17-a", "b17-b")
	r.Pod(t, "b17-a", "b17-p")
	proxy := r.Proxy(t, r.CP.ServiceAccount(rig.Namespace, rig.Account))
	c := r.StartAs(t, proxy.Config(), rig.Alone, rig.External)
	rig.Eventually(t, soon, r.TaintsAre(t, "b17-a"))
	proxy.Conflict(t, "/pods/b17-p/status", 2)
	r.Detect(t, "b17-a")
	rig.Eventually(t, soon, r.PodIs(t, "b17-p", corev1.ConditionFalse))
	rig.Eventually(t, soon, r.EventsAre(t, "b17-a", "NodeNotReady", 1))
	for range 3 {
		c.Stop()
		c = r.StartAs(t, proxy.Config(), rig.Alone, rig.External)
		rig.Eventually(t, soon, c.MetricIs(t, rig.InZone("nodewarden_controller_zone_state", "z", `state="Normal",`), 1))
	}
	rig.Never(t, time.Second, r.EventsAre(t, "b17-a", "NodeNotReady", 1))
	rig.Never(t, 100*time.Millisecond, r.EventsAre(t, "b17-p", "NodeNotReady", 1))
	r.Report(t, corev1.ConditionTrue, "b17-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "b17-a"))
	time.Sleep(time.Second) // stamps have whole seconds
	r.Detect(t, "b17-a")
	rig.Eventually(t, soon, r.EventsAre(t, "b17-a", "NodeNotReady", 2))
}

// B18.
func TestANodeDeletedWhileItWaitsForItsTurnLeavesNothingBehind(t *testing.T) {
	needsControlPlane(t)
	r.Ready(t, "z", "b18-a", "b18-b", "b18-c", "b18-d", "b18-e")
	c := r.Start(t, rig.Alone, rig.External, []string{"--node-eviction-rate=0.2"})
	rig.Eventually(t, soon, r.TaintsAre(t, "b18-a"))
	r.Detect(t, "b18-a")
	rig.Eventually(t, soon, r.TaintsAre(t, "b18-a", "unreachable:NoSchedule", "unreachable:NoExecute"))
	r.Detect(t, "b18-b")
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone("nodewarden_controller_zone_waiting_nodes", "z", ""), 1))
	r.Forget(t, "b18-b")
	r.Ready(t, "z", "b18-b")
	rig.Eventually(t, soon, c.MetricIs(t, rig.InZone("nodewarden_controller_zone_waiting_nodes", "z", ""), 0))
	rig.Eventually(t, soon, r.TaintsAre(t, "b18-b"))
	rig.Never(t, 6*time.Second, r.TaintsAre(t, "b18-b"))
	rig.Eventually(t, soon, r.EventsAre(t, "b18-b", "RemovingNode", 1))
	rig.Eventually(t, soon, r.EventsAre(t, "b18-b", "RegisteredNode", 2))
}
