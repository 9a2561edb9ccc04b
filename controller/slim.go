package controller

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodewarden/nodewarden/controller/zone"
)

// usedLabels are the labels of a node that some decision reads, besides those an
// operator selects by.
var usedLabels = []string{
	corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion,
	corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	zone.Excluded,
}

// usedConditions are the conditions of a node that some decision reads.
var usedConditions = sets.New(
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
	corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
)

// Cache is how the manager must cache for this controller: Nodes and Leases cut
// down to what is read, and no Pods at all. What comes out of it must never be
// written back whole.
func (o Options) Cache() cache.Options {
	shared := true // nothing here changes a cached object
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: func(in any) (any, error) {
				if n, ok := in.(*corev1.Node); ok {
					return o.slim(n), nil
				}
				return in, nil
			}, UnsafeDisableDeepCopy: &shared},
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}},
				Transform: func(in any) (any, error) {
					if l, ok := in.(*coordinationv1.Lease); ok {
						return slimLease(l), nil
					}
					return in, nil
				}, UnsafeDisableDeepCopy: &shared},
		},
	}
}

// slim is the part of a Node that decisions read.
func (o Options) slim(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
			CreationTimestamp: n.CreationTimestamp, Labels: o.slimLabels(n.Labels),
		},
		Spec: corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints},
	}
	for _, c := range n.Status.Conditions {
		if c.Message = ""; !usedConditions.Has(c.Type) {
			// Of the others only the place in the list is needed, to keep it.
			c = corev1.NodeCondition{Type: c.Type}
		}
		out.Status.Conditions = append(out.Status.Conditions, c)
	}
	return out
}

func (o Options) slimLabels(all map[string]string) map[string]string {
	out := map[string]string{}
	keep := func(key string) {
		if v, ok := all[key]; ok {
			out[key] = v
		}
	}
	for _, key := range usedLabels {
		keep(key)
	}
	if o.ExternalNodes != nil {
		requirements, _ := o.ExternalNodes.Requirements()
		for _, r := range requirements {
			keep(r.Key())
		}
	}
	return out
}

func slimLease(l *coordinationv1.Lease) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace, UID: l.UID, ResourceVersion: l.ResourceVersion},
		Spec:       coordinationv1.LeaseSpec{RenewTime: l.Spec.RenewTime},
	}
}
