package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is the work queue of a controller whose requests are names of nodes.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// inbox is where others put requests for a controller. It keeps those that come
// before the controller has started.
type inbox struct {
	mu    sync.Mutex
	queue queue
	early []string
}

func (i *inbox) add(node string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queue == nil {
		i.early = append(i.early, node)
		return
	}
	i.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
}

func (i *inbox) open(q queue) {
	i.mu.Lock()
	i.queue = q
	early := i.early
	i.early = nil
	i.mu.Unlock()
	for _, node := range early {
		i.add(node)
	}
}
