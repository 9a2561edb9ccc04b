package conformance

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// Function is the contract itself as a Target: no API server, no clock.
type Function struct {
	Policy contract.Policy
	User   contract.User
	// Silence is how long the kubelet has been silent when it is asked.
	Silence time.Duration
}

// Write asks contract.Check, with the managedFields that an API server would
// have added.
func (f Function) Write(_ context.Context, before, after *corev1.Node) ([]contract.Rule, error) {
	before, after = before.DeepCopy(), after.DeepCopy()
	before.ManagedFields = []metav1.ManagedFieldsEntry{entry("kubelet", Epoch, "lastHeartbeatTime")}
	after.ManagedFields = append(before.ManagedFields, entry("detector", Epoch.Add(max(f.Silence, time.Second)), "status"))
	var rules []contract.Rule
	for _, v := range contract.Check(contract.Between(before, after, f.User), f.Policy) {
		rules = append(rules, v.Rule)
	}
	return rules, nil
}

// entry is a managedFields entry that owns one field of Ready.
func entry(manager string, at time.Time, field string) metav1.ManagedFieldsEntry {
	owned, _ := json.Marshal(map[string]any{"f:status": map[string]any{"f:conditions": map[string]any{
		`k:{"type":"Ready"}`: map[string]any{"f:" + field: map[string]any{}},
	}}}) // a map of strings always marshals
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(owned)
	t := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Subresource: "status", Time: &t, FieldsType: "FieldsV1", FieldsV1: fields}
}
