package guard

import (
	"context"
	"encoding/json"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// flavour is one way to send a status write.
type flavour struct {
	name string
	// can says whether this flavour can turn before into after.
	can  func(before, after *corev1.Node) bool
	send func(ctx context.Context, c kubernetes.Interface, before, after *corev1.Node) error
}

func always(_, _ *corev1.Node) bool { return true }

func flavours() []flavour {
	return []flavour{
		{"strategic merge patch", distinct, patchWith(types.StrategicMergePatchType, func(before, after []byte) ([]byte, error) {
			return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
		})},
		{"JSON merge patch", always, patchWith(types.MergePatchType, jsonpatch.CreateMergePatch)},
		{"JSON patch", always, patchWith(types.JSONPatchType, replacing)},
		{"PUT", always, put},
		{"server-side apply", appliable, apply},
	}
}

func patchWith(kind types.PatchType, diff func(before, after []byte) ([]byte, error)) func(context.Context, kubernetes.Interface, *corev1.Node, *corev1.Node) error {
	return func(ctx context.Context, c kubernetes.Interface, before, after *corev1.Node) error {
		b, err := json.Marshal(before)
		if err != nil {
			return err
		}
		a, err := json.Marshal(after)
		if err != nil {
			return err
		}
		body, err := diff(b, a)
		if err != nil {
			return err
		}
		_, err = c.CoreV1().Nodes().Patch(ctx, before.Name, kind, body, metav1.PatchOptions{}, "status")
		return err
	}
}

// replacing is a JSON patch that puts the conditions, and the annotations if
// they changed, in place of the old ones.
func replacing(before, after []byte) ([]byte, error) {
	var b, a corev1.Node
	if err := json.Unmarshal(before, &b); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &a); err != nil {
		return nil, err
	}
	ops := []map[string]any{{"op": "replace", "path": "/status/conditions", "value": a.Status.Conditions}}
	if !equality.Semantic.DeepEqual(b.Annotations, a.Annotations) {
		ops = append(ops, map[string]any{"op": "add", "path": "/metadata/annotations", "value": a.Annotations})
	}
	return json.Marshal(ops)
}

func put(ctx context.Context, c kubernetes.Interface, _, after *corev1.Node) error {
	_, err := c.CoreV1().Nodes().UpdateStatus(ctx, after, metav1.UpdateOptions{})
	return err
}

// distinct says whether no condition type of after stands twice: a strategic
// merge has one entry a type.
func distinct(_, after *corev1.Node) bool {
	seen := map[corev1.NodeConditionType]bool{}
	for _, c := range after.Status.Conditions {
		if seen[c.Type] {
			return false
		}
		seen[c.Type] = true
	}
	return true
}

// appliable says whether applying the entries that differ turns before into
// after: an apply neither takes away what others own nor repeats a type.
func appliable(before, after *corev1.Node) bool {
	if !distinct(before, after) {
		return false
	}
	for _, b := range before.Status.Conditions {
		if find(after, b.Type) == nil {
			return false
		}
	}
	return true
}

func apply(ctx context.Context, c kubernetes.Interface, before, after *corev1.Node) error {
	object := map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": after.Name}}
	if !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) {
		object["metadata"].(map[string]any)["annotations"] = after.Annotations
	}
	var changed []any
	for _, a := range after.Status.Conditions {
		if b := find(before, a.Type); b == nil || !equality.Semantic.DeepEqual(*b, a) {
			entry, err := entryOf(b, a)
			if err != nil {
				return err
			}
			changed = append(changed, entry)
		}
	}
	object["status"] = map[string]any{"conditions": changed}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	force := true
	_, err = c.CoreV1().Nodes().Patch(ctx, after.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "detector", Force: &force}, "status")
	return err
}

// entryOf is what an author would apply: every field, but not a heartbeat that
// stays as it is.
func entryOf(before *corev1.NodeCondition, after corev1.NodeCondition) (map[string]any, error) {
	text, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	entry := map[string]any{}
	if err := json.Unmarshal(text, &entry); err != nil {
		return nil, err
	}
	if before != nil && before.LastHeartbeatTime.Equal(&after.LastHeartbeatTime) {
		delete(entry, "lastHeartbeatTime")
	}
	if after.Reason == "" {
		entry["reason"] = ""
	}
	return entry, nil
}

func find(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
