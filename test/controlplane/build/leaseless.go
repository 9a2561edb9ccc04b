package main

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leaseless is a client whose Leases never leave the process. A kubelet uses
// its heartbeat client for its status and its Lease and for nothing else, so
// that with this one it reports its status as ever and has no Lease.
type leaseless struct{ kubernetes.Interface }

func (c leaseless) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return leaselessGroup{c.Interface.CoordinationV1()}
}

type leaselessGroup struct {
	coordinationclient.CoordinationV1Interface
}

func (g leaselessGroup) Leases(namespace string) coordinationclient.LeaseInterface {
	return &ownLease{LeaseInterface: g.CoordinationV1Interface.Leases(namespace), namespace: namespace}
}

// ownLease answers the three calls that a kubelet makes.
type ownLease struct {
	coordinationclient.LeaseInterface
	namespace string

	mu    sync.Mutex
	lease *coordinationv1.Lease
}

func (l *ownLease) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		l.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
	}
	return l.lease.DeepCopy(), nil
}

func (l *ownLease) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.keep(lease)
}

func (l *ownLease) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.keep(lease)
}

func (l *ownLease) keep(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease = lease.DeepCopy()
	return lease.DeepCopy(), nil
}
