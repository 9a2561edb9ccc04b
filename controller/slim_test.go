package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

func TestTheSlimNodeKeepsWhatDecisionsRead(t *testing.T) {
	o := DefaultOptions()
	o.ExternalNodes = labels.SelectorFromSet(labels.Set{"pool": "x"})
	full := nodeAt("1", "u", corev1.ConditionUnknown, noon)
	full.Labels = map[string]string{"pool": "x", "other": "y", "topology.kubernetes.io/zone": "z", "kubernetes.io/os": "linux"}
	full.Annotations = map[string]string{"big": "one"}
	full.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule, Value: "v"}}
	full.Status.Images = []corev1.ContainerImage{{Names: []string{"i"}}}
	full.Status.Conditions = append(full.Status.Conditions, corev1.NodeCondition{Type: "Custom"}, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
	slim := o.slim(full)
	if len(slim.Labels) != 3 || slim.Annotations != nil || slim.Status.Images != nil || len(slim.Status.Conditions) != 3 {
		t.Errorf("kept %+v", slim)
	}
	a, _ := lifecycle.Taints(full, lifecycle.Grant, noon)
	b, _ := lifecycle.Taints(slim, lifecycle.Grant, noon)
	if len(a) != len(b) || o.sourceOf(full.Labels) != o.sourceOf(slim.Labels) || lifecycle.ReadyOf(full) != lifecycle.ReadyOf(slim) {
		t.Error("a decision about the slim node differs from one about the whole")
	}
	if again := o.slim(slim); len(again.Status.Conditions) != 3 {
		t.Error("cutting twice cuts more")
	}
}

func TestAStatusPatchLeavesOutWhatItDoesNotChange(t *testing.T) {
	at := metav1.NewTime(noon)
	p := patchOf(precondition{"u", "7"}, []string{"Other", "Ready", "Ready", "Last", "New"})
	p.set(conditionPatch{Type: "New", Status: "Unknown"})
	p.set(conditionPatch{Type: "Ready", Status: "Unknown", LastTransitionTime: &at})
	raw, err := rawPatch("application/strategic-merge-patch+json", p).Data(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"$setElementOrder/conditions":[{"type":"Other"},{"type":"Ready"},{"type":"Last"},{"type":"New"}],"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-29T12:00:00Z"},{"type":"New","status":"Unknown"}]}}`
	if string(raw) != want {
		t.Errorf("sends %s, want %s", raw, want)
	}
	merged, err := strategicpatch.StrategicMergePatch([]byte(`{"metadata":{},"status":{"conditions":[{"type":"Other"},{"type":"Ready","status":"True","reason":"R","lastHeartbeatTime":"2026-01-01T00:00:00Z"},{"type":"Last"},{"type":"New"}]}}`), raw, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"conditions":[{"type":"Other"},{"lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-11-29T12:00:00Z","reason":"R","status":"Unknown","type":"Ready"},{"type":"Last"},{"status":"Unknown","type":"New"}]}}`; string(merged) != want {
		t.Errorf("merges to %s", merged)
	}
}
