package freshness

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// ownsReady stands in for the fields of an entry that owns some of Ready's.
var ownsReady = func() *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	f.SetRawString(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{}}}}`)
	return f
}()

// trim returns the part of n that this package reads, a hundredth of a busy
// node. Thousands of nodes are held like this while they are being listed.
func trim(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
	for _, w := range contract.ReadyWriters(n.ManagedFields) {
		out.ManagedFields = append(out.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: w.Manager, Subresource: "status", Time: &metav1.Time{Time: w.At}, FieldsV1: ownsReady,
		})
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i >= 0 {
		c := n.Status.Conditions[i]
		c.Reason, c.Message = "", ""
		out.Status.Conditions = []corev1.NodeCondition{c}
	}
	return out
}
