package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/test/nodes"
)

// Node creates a node that goes with the test, its pods with it.
func (r *Rig) Node(t testing.TB, b *nodes.Builder) *corev1.Node {
	t.Helper()
	n, err := r.Admin.CoreV1().Nodes().Create(t.Context(), b.Node(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Forget(t, n.Name) })
	return n
}

// Ready creates a node whose kubelet is well, in a zone.
func (r *Rig) Ready(t testing.TB, zone string, names ...string) {
	t.Helper()
	now := time.Now()
	for _, name := range names {
		r.Node(t, nodes.Reporting(name, now.Add(-time.Hour), now).Label(corev1.LabelTopologyZone, zone))
	}
}

// Forget deletes a node, its Lease and its pods.
func (r *Rig) Forget(t testing.TB, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	now := int64(0)
	del := metav1.DeleteOptions{GracePeriodSeconds: &now}
	pods, err := r.Admin.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		t.Error(err)
		return
	}
	for _, p := range pods.Items {
		if err := r.Admin.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, del); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	if err := r.Admin.CoreV1().Nodes().Delete(ctx, name, del); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if err := r.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, del); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// Condition is a write to one condition; empty fields are left out of it.
type Condition struct {
	Type               string       `json:"type"`
	Status             string       `json:"status,omitempty"`
	Reason             string       `json:"reason,omitempty"`
	Message            string       `json:"message,omitempty"`
	LastHeartbeatTime  *metav1.Time `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// Write patches conditions into a node's status, as c.
func Write(ctx context.Context, c kubernetes.Interface, node string, conditions ...Condition) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// Detect writes Ready=Unknown as an outside detector does: one condition, its
// transition time, no heartbeat.
func (r *Rig) Detect(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		now := metav1.Now()
		if err := Write(t.Context(), r.Detector, name, Condition{Type: "Ready", Status: "Unknown", Reason: "OutOfBandProbeFailed", Message: "no answer", LastTransitionTime: &now}); err != nil {
			t.Fatal(err)
		}
	}
}

// Report writes Ready as a kubelet does that just noticed a change.
func (r *Rig) Report(t testing.TB, status corev1.ConditionStatus, names ...string) {
	t.Helper()
	reason := map[corev1.ConditionStatus]string{corev1.ConditionTrue: "KubeletReady", corev1.ConditionFalse: "KubeletNotReady"}[status]
	for _, name := range names {
		now := metav1.Now()
		c := Condition{Type: "Ready", Status: string(status), Reason: reason, Message: "kubelet says so", LastHeartbeatTime: &now, LastTransitionTime: &now}
		if err := Write(t.Context(), r.Kubelet(t, name), name, c); err != nil {
			t.Fatal(err)
		}
	}
}

// Kubelet is a client of a node's own kubelet.
func (r *Rig) Kubelet(t testing.TB, node string) kubernetes.Interface {
	t.Helper()
	c, err := client(r.CP.Kubelet(node))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Renew writes a Lease with a renewTime.
func (r *Rig) Renew(t testing.TB, node string, at time.Time) {
	t.Helper()
	leases := r.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renew := metav1.NewMicroTime(at)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: corev1.NamespaceNodeLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &renew}}
	_, err := leases.Create(t.Context(), l, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		body := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, at.UTC().Format("2006-01-02T15:04:05.000000Z"))
		_, err = leases.Patch(t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Pod creates a pod that runs and is Ready on a node.
func (r *Rig) Pod(t testing.TB, node, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p, err := r.CreatePod(t.Context(), node, name, change...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// CreatePod is Pod without a test.
func (r *Rig) CreatePod(ctx context.Context, node, name string, change ...func(*corev1.Pod)) (*corev1.Pod, error) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Pods, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, f := range change {
		f(p)
	}
	p, err := r.Admin.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return r.SetPodReady(ctx, p.Name, corev1.ConditionTrue)
}

// ArrivingPod is a pod that is bound, by the scheduler's call, while it says that
// it is Ready: one that a controller has to judge on its arrival.
func (r *Rig) ArrivingPod(t testing.TB, node, name string) *corev1.Pod {
	t.Helper()
	r.Pod(t, "", name)
	if err := r.Bind(t.Context(), node, name); err != nil {
		t.Fatal(err)
	}
	p, err := r.Admin.CoreV1().Pods(Pods).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Bind puts a pod on a node, by the scheduler's call.
func (r *Rig) Bind(ctx context.Context, node, name string) error {
	return r.Admin.CoreV1().Pods(Pods).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Pods}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
}

// SetPodReady writes a pod's status as its kubelet would.
func (r *Rig) SetPodReady(ctx context.Context, name string, status corev1.ConditionStatus) (*corev1.Pod, error) {
	body := fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q,"reason":"Probed","message":"probe says so","lastTransitionTime":%q}]}}`, status, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	return r.Admin.CoreV1().Pods(Pods).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// PodReady reads a pod's Ready condition.
func PodReady(p *corev1.Pod) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c
		}
	}
	return corev1.PodCondition{}
}

// PodIs is an error unless a pod's Ready has this status.
func (r *Rig) PodIs(t testing.TB, name string, want corev1.ConditionStatus) func() error {
	return func() error {
		p, err := r.Admin.CoreV1().Pods(Pods).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := PodReady(p).Status; got != want {
			return fmt.Errorf("pod %s is Ready=%s, want %s", name, got, want)
		}
		return nil
	}
}

// TaintsAre is an error unless a node has exactly these taints, as key:effect
// without the usual prefix, in any order.
func (r *Rig) TaintsAre(t testing.TB, node string, want ...string) func() error {
	slices.Sort(want)
	return func() error {
		n, err := r.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := TaintsOf(n); !slices.Equal(got, want) {
			return fmt.Errorf("node %s has taints %v, want %v", node, got, want)
		}
		return nil
	}
}

// TaintsOf are a node's taints, sorted, as key:effect without the usual prefix.
func TaintsOf(n *corev1.Node) []string {
	var out []string
	for _, t := range n.Spec.Taints {
		out = append(out, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	slices.Sort(out)
	return out
}

// Events are the events about an object with a reason, from the node lifecycle.
func (r *Rig) Events(t testing.TB, name, reason string) int {
	t.Helper()
	n, err := r.CountEvents(t.Context(), name, reason)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// CountEvents is Events without a test.
func (r *Rig) CountEvents(ctx context.Context, name, reason string) (int, error) {
	list, err := r.Admin.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
	if err != nil {
		return 0, err
	}
	count := 0
	for _, e := range list.Items {
		if e.Source.Component == "node-controller" {
			count += int(max(1, e.Count))
		}
	}
	return count, nil
}

// EventsAre is an error unless there are so many.
func (r *Rig) EventsAre(t testing.TB, name, reason string, want int) func() error {
	return func() error {
		if got := r.Events(t, name, reason); got != want {
			return fmt.Errorf("%d %s events about %s, want %d", got, reason, name, want)
		}
		return nil
	}
}

// InZone is the series of a zone that has no region; labels sort before it.
func InZone(name, zone, labels string) string {
	return name + "{" + labels + "zone=\":\x00:" + zone + "\"}"
}

// Metric finds one sample on a metrics page; series is the name with its labels
// as the page shows them.
func Metric(page, series string) (float64, bool) {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// MetricIs is an error unless the controller shows this value.
func (c *Controller) MetricIs(t testing.TB, series string, want float64) func() error {
	return func() error {
		page, err := c.Metrics(t.Context())
		if err != nil {
			return err
		}
		if got, ok := Metric(page, series); !ok || got != want {
			return fmt.Errorf("%s is %v (there: %v), want %v", series, got, ok, want)
		}
		return nil
	}
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, resp.Status, body)
	}
	return string(body), err
}
