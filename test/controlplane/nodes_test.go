package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// brisk is how nodes report in these tests.
var brisk = controlplane.Reporting{StatusEvery: 300 * time.Millisecond, ReportEvery: 300 * time.Millisecond, LeaseDuration: time.Second}

// statusWrites are the status reports of a node's kubelet since a moment.
func statusWrites(node string, since time.Time) controlplane.AuditFilter {
	return controlplane.AuditFilter{
		User: "system:node:" + node, Verbs: []string{"patch"}, Resource: "nodes", Subresource: "status", Name: node, Since: since,
	}
}

func leaseWrites(node string, since time.Time) controlplane.AuditFilter {
	return controlplane.AuditFilter{User: "system:node:" + node, Verbs: []string{"update"}, Resource: "leases", Name: node, Since: since}
}

func await(ctx context.Context, t *testing.T, f controlplane.AuditFilter, n int) {
	t.Helper()
	if _, err := plane.AwaitAudit(ctx, f, n); err != nil {
		t.Fatalf("%+v: %v", f, err)
	}
}

// markUnknown writes what a detector of node failures writes.
func markUnknown(ctx context.Context, t *testing.T, client kubernetes.Interface, node string) metav1.Time {
	t.Helper()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"LinkDown","lastTransitionTime":%q}]}}`, now.UTC().Format(time.RFC3339))
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	return now
}

func ready(ctx context.Context, client kubernetes.Interface, node string) (corev1.NodeCondition, error) {
	n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c, nil
		}
	}
	return corev1.NodeCondition{}, fmt.Errorf("node %s has no Ready condition", node)
}

// untilTrue waits for a kubelet to overwrite an Unknown of somebody else.
func untilTrue(ctx context.Context, t *testing.T, client kubernetes.Interface, node string) corev1.NodeCondition {
	t.Helper()
	var last corev1.NodeCondition
	eventually(ctx, t, func() (err error) {
		last, err = ready(ctx, client, node)
		if err == nil && last.Status != corev1.ConditionTrue {
			err = fmt.Errorf("%s is %s", node, last.Status)
		}
		return err
	})
	return last
}

func TestHollowKubeletsReportAndOneCanBeCutOffAndMended(t *testing.T) {
	cp, ctx := shared(t)
	h, err := cp.StartHollow(ctx, controlplane.HollowOptions{Prefix: "hollow-", Count: 2, Reporting: brisk})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Stop()
	await(ctx, t, leaseWrites("hollow-1", time.Time{}), 2)

	if err := h.Cut("hollow-1"); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(time.Second) // what was under way may still arrive
	await(ctx, t, statusWrites("hollow-2", since), 4)
	if events, err := cp.Audit(controlplane.AuditFilter{User: "system:node:hollow-1", Since: since}); err != nil || len(events) > 0 {
		t.Errorf("a node that is cut off sent %d requests, %v", len(events), err)
	}
	if err := h.Mend("hollow-1"); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, statusWrites("hollow-1", time.Now()), 2)
}

func TestAHollowKubeletOverwritesUnknownAtItsNextLook(t *testing.T) {
	cp, ctx := shared(t)
	h, err := cp.StartHollow(ctx, controlplane.HollowOptions{Names: []string{"stubborn"}, Reporting: controlplane.Reporting{StatusEvery: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Stop()
	admin := clientOf(t, cp.Admin())
	marked := markUnknown(ctx, t, admin, "stubborn")
	if c := untilTrue(ctx, t, admin, "stubborn"); c.LastTransitionTime.Before(&marked) {
		t.Errorf("its transition time %s is older than the outage, %s", c.LastTransitionTime, marked)
	}
}

func TestAKubeletWithoutALeaseHasNoneAndReportsItsStatusAsEver(t *testing.T) {
	cp, ctx := shared(t)
	frugal := brisk
	frugal.NoLease = true
	h, err := cp.StartHollow(ctx, controlplane.HollowOptions{Names: []string{"frugal"}, Reporting: frugal})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Stop()
	await(ctx, t, statusWrites("frugal", time.Time{}), 5)
	if _, err := clientOf(t, cp.Admin()).CoordinationV1().Leases("kube-node-lease").Get(ctx, "frugal", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its Lease: %v", err)
	}
	if events, err := cp.Audit(controlplane.AuditFilter{User: "system:node:frugal", Resource: "leases"}); err != nil || len(events) > 0 {
		t.Errorf("%d requests for Leases, %v", len(events), err)
	}
}

func TestAStartWithoutNodesSaysHowToNameThem(t *testing.T) {
	cp, ctx := shared(t)
	_, hollow := cp.StartHollow(ctx, controlplane.HollowOptions{})
	_, simulated := cp.SimulateNodes(ctx, controlplane.SimOptions{})
	for _, err := range []error{hollow, simulated} {
		if err == nil || !strings.Contains(err.Error(), "set Names, or Prefix and Count") {
			t.Errorf("%v", err)
		}
	}
}

func TestHollowKubeletsThatCannotStartSayWhy(t *testing.T) {
	cp, ctx := shared(t)
	_, err := cp.StartHollow(ctx, controlplane.HollowOptions{Names: []string{"never"}, Args: []string{"--lease-seconds=-1"}})
	if err == nil || !strings.Contains(err.Error(), "--lease-seconds=-1: must be more than 0") {
		t.Errorf("%v", err)
	}
}

func TestAKubeletThatCannotStartIsNotTakenForTheOneBeforeIt(t *testing.T) {
	cp, ctx := shared(t)
	o := controlplane.HollowOptions{Names: []string{"succeeded"}}
	h, err := cp.StartHollow(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	h.Kill()
	broken := o
	broken.Args = []string{"--lease-seconds=-1"}
	if _, err := cp.StartHollow(ctx, broken); err == nil || !strings.Contains(err.Error(), "must be more than 0") {
		t.Errorf("%v", err)
	}
	// One that can is found although it may report only once in five minutes.
	if h, err = cp.StartHollow(ctx, o); err != nil {
		t.Fatal(err)
	}
	h.Stop()
}

func TestARealKubeletRunsAndLeavesNoMounts(t *testing.T) {
	cp, ctx := shared(t)
	if !canRunKubelet() {
		t.Skip("a real kubelet needs Linux and root")
	}
	k, err := cp.StartKubelet(ctx, controlplane.KubeletOptions{Name: "genuine", Reporting: brisk})
	if err != nil {
		t.Fatal(err)
	}
	runPod(ctx, t, "genuine")
	if mounts(t) == 0 {
		t.Error("the pod's volume is not mounted, so this test shows nothing")
	}
	k.Stop()
	if n := mounts(t); n > 0 {
		t.Errorf("%d mounts are left", n)
	}
}

// runPod runs a pod with a volume in memory.
func runPod(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	pods := clientOf(t, plane.Admin()).CoreV1().Pods("default")
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Image: "example.com/i", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, func() error {
		p, err := pods.Get(ctx, "on-"+node, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("the pod is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
}

// mounts counts what is mounted below the control plane's folder.
func mounts(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), " "+plane.Dir()+"/")
}

func TestSimulatedNodesLookAndSpeakLikeKubelets(t *testing.T) {
	cp, ctx := shared(t)
	s, err := cp.SimulateNodes(ctx, controlplane.SimOptions{
		Prefix: "sim-", Count: 300, Zones: []string{"a", "b", "c"}, Labels: map[string]string{"example.com/pool": "blue"}, Reporting: brisk,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := clientOf(t, cp.Admin()).CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "example.com/pool=blue"})
	if err != nil || len(list.Items) != 300 {
		t.Fatalf("%d nodes, %v", len(list.Items), err)
	}
	zones := map[string]int{}
	for _, n := range list.Items {
		zones[n.Labels[corev1.LabelTopologyZone]]++
		if !spokeForReady(n) {
			t.Fatalf("nobody owns the heartbeat of %s: %+v", n.Name, n.ManagedFields)
		}
	}
	if len(zones) != 3 || zones["a"] != 100 {
		t.Errorf("zones %v", zones)
	}
	await(ctx, t, leaseWrites("sim-1", time.Time{}), 2)
	await(ctx, t, statusWrites("sim-300", time.Time{}), 2)
}

// spokeForReady reports whether managed fields show who last wrote the
// heartbeat of Ready, as they do for every real kubelet.
func spokeForReady(n corev1.Node) bool {
	for _, m := range n.ManagedFields {
		fields := m.FieldsV1.GetRawString()
		_, of, ok := strings.Cut(fields, `k:{\"type\":\"Ready\"}`)
		if m.Subresource == "status" && m.Manager == "kubelet" && ok && strings.Contains(of, "f:lastHeartbeatTime") {
			return true
		}
	}
	return false
}

func TestASimulatedNodeThatIsPausedIsSilentUntilItResumes(t *testing.T) {
	cp, ctx := shared(t)
	s, err := cp.SimulateNodes(ctx, controlplane.SimOptions{Names: []string{"mute", "lively"}, Reporting: brisk})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Pause("mute"); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(time.Second) // what was under way may still arrive
	await(ctx, t, leaseWrites("lively", since), 4)
	if events, err := cp.Audit(controlplane.AuditFilter{User: "system:node:mute", Since: since}); err != nil || len(events) > 0 {
		t.Errorf("a paused node sent %d requests, %v", len(events), err)
	}
	if err := s.Resume("mute"); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, leaseWrites("mute", time.Now()), 2)
	if err := s.Pause("nobody"); err == nil {
		t.Error("a node that does not exist can be paused")
	}
}

func TestASimulatedKubeletOverwritesUnknownAndReportsItsOpinion(t *testing.T) {
	cp, ctx := shared(t)
	slow := controlplane.Reporting{StatusEvery: 500 * time.Millisecond, NoLease: true}
	s, err := cp.SimulateNodes(ctx, controlplane.SimOptions{Names: []string{"opinionated"}, Reporting: slow, OwnConnections: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admin := clientOf(t, cp.Admin())
	marked := markUnknown(ctx, t, admin, "opinionated")
	if c := untilTrue(ctx, t, admin, "opinionated"); c.LastTransitionTime.Before(&marked) || c.Reason != "KubeletReady" {
		t.Errorf("%+v", c)
	}
	if err := s.Report(ctx, "opinionated", corev1.ConditionFalse, "KubeletNotReady", "no network"); err != nil {
		t.Fatal(err)
	}
	if c, err := ready(ctx, admin, "opinionated"); err != nil || c.Status != corev1.ConditionFalse || c.Message != "no network" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestASilentNodeKeepsWhatOthersWrite(t *testing.T) {
	cp, ctx := shared(t)
	s, err := cp.SimulateNodes(ctx, controlplane.SimOptions{Names: []string{"silent"}, Silent: true, Ballast: 20_000, Reporting: brisk})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admin := clientOf(t, cp.Admin())
	if c, err := ready(ctx, admin, "silent"); err != nil || c.Status != corev1.ConditionTrue {
		t.Fatalf("it registered as %+v, %v", c, err)
	}
	if got := s.Counts(); got.Statuses != 1 || got.Leases != 0 || got.Failures != 0 {
		t.Errorf("it wrote %+v", got)
	}
	n, err := admin.CoreV1().Nodes().Get(ctx, "silent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size := n.Size(); size < 18_000 || size > 24_000 {
		t.Errorf("with a ballast of 20,000 bytes it has %d", size)
	}
}
