package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
)

// What the policies cost one request in the API server, all of them together:
// the kubelet's report that is none of their business, another writer's report
// of another condition, and a detector's correct write.
func BenchmarkPolicies(b *testing.B) {
	e := enforce(b, contract.Default(contract.Enforce))
	g := writes.From(6)
	var w writes.Write
	for w.Before == nil || len(w.Before.Status.Conditions) < 4 || len(w.Before.ManagedFields) < 2 {
		w = g.Write()
	}
	other := w
	other.After = w.Before.DeepCopy()
	other.After.Status.Conditions = append(other.After.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: "False"})
	other.User = writes.Account("npd", "npd")
	kubelet := w
	kubelet.User = contract.User{Name: "system:node:" + writes.Node, Groups: []string{"system:nodes"}}
	detector := w
	detector.User = writes.Account("liveness", "detector")
	for _, c := range []struct {
		name string
		w    writes.Write
	}{{"kubelet", kubelet}, {"another condition", other}, {"detector", detector}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.judge(request(c.w)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
