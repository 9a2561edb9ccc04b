package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

// tries is how often one write is computed afresh after somebody else's came
// first. A node that is written to all the time needs more than a few.
const tries = 10

// writer sends patches, each with the UID and resourceVersion it was computed
// from: what has changed since is never overwritten, and a node recreated under
// its name never inherits a write.
type writer struct {
	client client.Writer
	status client.SubResourceWriter
	live   client.Reader
	slim   func(*corev1.Node) *corev1.Node
}

// get reads a node past the cache.
func (w writer) get(ctx context.Context, name string) (*corev1.Node, error) {
	var n corev1.Node
	if err := w.live.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
		return nil, err
	}
	return w.slim(&n), nil
}

// precondition is the part of a patch that makes the API server refuse it when
// the object is no longer the one it was computed from.
type precondition struct {
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
}

type conditionPatch struct {
	Type               string       `json:"type"`
	Status             string       `json:"status"`
	Reason             string       `json:"reason,omitempty"`
	Message            string       `json:"message,omitempty"`
	LastHeartbeatTime  *metav1.Time `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// statusPatch is a strategic merge patch: conditions merge by type, and a field
// that is left out keeps its value. Without an order the API server would move
// the conditions of the patch to the front, and there are readers that know a
// condition by its place.
type statusPatch struct {
	Metadata precondition `json:"metadata"`
	Status   struct {
		Order      []conditionKey   `json:"$setElementOrder/conditions"`
		Conditions []conditionPatch `json:"conditions"`
	} `json:"status"`
}

type conditionKey struct {
	Type string `json:"type"`
}

// patchOf begins a patch of an object whose conditions are of these types.
func patchOf(p precondition, order []string) statusPatch {
	out := statusPatch{Metadata: p}
	for _, t := range order {
		out.place(t)
	}
	return out
}

// place is the position of a condition, at the end if it is new.
func (p *statusPatch) place(t string) int {
	key := conditionKey{t}
	if i := slices.Index(p.Status.Order, key); i >= 0 {
		return i
	}
	p.Status.Order = append(p.Status.Order, key)
	return len(p.Status.Order) - 1
}

// set changes a condition. The API server refuses a patch whose list is in
// another order than the one it states.
func (p *statusPatch) set(c conditionPatch) {
	p.place(c.Type)
	p.Status.Conditions = append(p.Status.Conditions, c)
	slices.SortStableFunc(p.Status.Conditions, func(a, b conditionPatch) int { return p.place(a.Type) - p.place(b.Type) })
}

// unknown writes the conditions of a node that is given up.
func (w writer) unknown(ctx context.Context, n *corev1.Node, conditions []corev1.NodeCondition) (*corev1.Node, error) {
	var order []string
	for _, c := range n.Status.Conditions {
		order = append(order, string(c.Type))
	}
	p := patchOf(precondition{n.UID, n.ResourceVersion}, order)
	for _, c := range conditions {
		cp := conditionPatch{Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: &c.LastTransitionTime}
		if !c.LastHeartbeatTime.IsZero() {
			cp.LastHeartbeatTime = &c.LastHeartbeatTime
		}
		p.set(cp)
	}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if err := w.status.Patch(ctx, out, rawPatch(types.StrategicMergePatchType, p)); err != nil {
		return nil, fmt.Errorf("write the conditions of node %s: %w", n.Name, err)
	}
	return w.slim(out), nil
}

type nodePatch struct {
	Metadata struct {
		precondition
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec *taintPatch `json:"spec,omitempty"`
}

type taintPatch struct {
	Taints []corev1.Taint `json:"taints"`
}

// dress brings taints and labels of a node in line in one write, or none when
// they are. NoExecute thus never stays behind NoSchedule, nor is there a moment
// with both NoExecute keys, or with neither.
func (w writer) dress(ctx context.Context, n *corev1.Node, may func() lifecycle.Eviction, now func() time.Time) (*corev1.Node, error) {
	for try := 1; ; try++ {
		p, changed := dressing(n, may(), now())
		if !changed {
			return n, nil
		}
		out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		err := w.client.Patch(ctx, out, rawPatch(types.StrategicMergePatchType, p))
		if err == nil {
			return w.slim(out), nil
		}
		if !apierrors.IsConflict(err) || try == tries {
			return nil, fmt.Errorf("write taints and labels of node %s: %w", n.Name, err)
		}
		fresh, err := w.get(ctx, n.Name)
		if err != nil {
			return nil, fmt.Errorf("read node %s again: %w", n.Name, err)
		}
		if fresh.UID != n.UID {
			return nil, fmt.Errorf("node %s was recreated: %w", n.Name, errGone)
		}
		n = fresh
	}
}

func dressing(n *corev1.Node, may lifecycle.Eviction, now time.Time) (nodePatch, bool) {
	var p nodePatch
	p.Metadata.precondition = precondition{n.UID, n.ResourceVersion}
	p.Metadata.Labels = lifecycle.Labels(n)
	taints, changed := lifecycle.Taints(n, may, now)
	if changed {
		p.Spec = &taintPatch{Taints: taints}
	}
	return p, changed || p.Metadata.Labels != nil
}

// pod makes a pod NotReady, keeping the reason and all else it says.
func (w writer) pod(ctx context.Context, p podRef, now time.Time) error {
	at := metav1.NewTime(now)
	body := patchOf(precondition{p.uid, p.resourceVersion}, p.conditions)
	body.set(conditionPatch{Type: string(corev1.PodReady), Status: string(corev1.ConditionFalse), LastTransitionTime: &at})
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}}
	return w.status.Patch(ctx, out, rawPatch(types.StrategicMergePatchType, body))
}

func rawPatch(t types.PatchType, body any) client.Patch {
	// These are our own structs of strings and times: they always marshal.
	raw, _ := json.Marshal(body)
	return client.RawPatch(t, raw)
}
