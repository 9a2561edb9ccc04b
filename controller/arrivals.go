package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// arrival is a pod that was bound to a node which is down.
type arrival struct {
	pod  types.NamespacedName
	uid  types.UID
	node string
}

// bound are the pods that have a node: a pod that is bound enters the selection,
// and the watch reports that as an addition.
var bound = fields.OneTermNotEqualSelector("spec.nodeName", "")

// arrivals watches pods being bound to nodes. It keeps none of them, only how
// far it has seen.
type arrivals struct {
	*nodes
	client client.WithWatch

	mu      sync.Mutex
	version string
	begun   chan struct{}
}

func newArrivals(n *nodes, c client.WithWatch) *arrivals {
	return &arrivals{nodes: n, client: c, begun: make(chan struct{})}
}

// seen is the resourceVersion up to which arrivals have been noticed. It waits
// for the watch to begin.
func (a *arrivals) seen(ctx context.Context) (string, error) {
	select {
	case <-a.begun:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version, nil
}

func (a *arrivals) reached(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version == "" {
		close(a.begun)
	}
	a.version = version
}

// watch feeds arrivals to the queue until the context ends. Whenever the watch
// has to begin anew, the pods of nodes that are Unknown are gone through again,
// for some may have arrived in between.
func (a *arrivals) watch(ctx context.Context, q workqueue.TypedRateLimitingInterface[arrival]) {
	for again := false; ctx.Err() == nil; again = true {
		err := a.follow(ctx, q, again)
		if ctx.Err() != nil {
			return
		}
		log.FromContext(ctx).Info("the watch of pods begins anew", "because", fmt.Sprint(err))
		select {
		case <-ctx.Done():
		case <-a.clock.After(time.Second):
		}
	}
}

func (a *arrivals) follow(ctx context.Context, q workqueue.TypedRateLimitingInterface[arrival], again bool) error {
	var head corev1.PodList
	if err := a.client.List(ctx, &head, client.Limit(1)); err != nil {
		return fmt.Errorf("ask how far pods have come: %w", err)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, head.ResourceVersion, watchPods{a.client})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer w.Stop()
	a.reached(head.ResourceVersion)
	if again {
		for _, name := range a.memory.reload() {
			a.pods.add(name)
		}
	}
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		if p, ok := e.Object.(*corev1.Pod); ok {
			a.reached(p.ResourceVersion)
			if e.Type == watch.Added {
				a.noticed(ctx, q, p)
			}
		}
	}
	return nil
}

// noticed queues a pod that arrived on a node which is down. Pods of other nodes,
// and of nodes nobody has looked at yet, are none of our business: the first look
// at a node goes through its pods where that is called for.
func (a *arrivals) noticed(ctx context.Context, q workqueue.TypedRateLimitingInterface[arrival], p *corev1.Pod) {
	if !losesReadiness(p) {
		return
	}
	if n, err := a.current(ctx, p.Spec.NodeName); err == nil && a.memory.marksArrivals(n) {
		q.Add(arrival{pod: client.ObjectKeyFromObject(p), uid: p.UID, node: p.Spec.NodeName})
	}
}

// watchPods is how a retrying watch opens its next one.
type watchPods struct{ client client.WithWatch }

// WatchWithContext watches bound pods.
func (w watchPods) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return w.client.Watch(ctx, &corev1.PodList{}, &client.ListOptions{FieldSelector: bound, Raw: &o})
}

// newcomers marks pods that arrived on a node which is down.
type newcomers struct{ *marker }

// Reconcile marks one pod, if its node is still down.
func (m newcomers) Reconcile(ctx context.Context, a arrival) (reconcile.Result, error) {
	n, err := m.current(ctx, a.node)
	if err != nil || !m.memory.marksArrivals(n) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if m.fresh.stale() {
		return reconcile.Result{RequeueAfter: m.options.NodeMonitorPeriod}, nil
	}
	var p corev1.Pod
	if err := m.writer.live.Get(ctx, a.pod, &p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.UID != a.uid || !losesReadiness(&p) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, m.markBatch(ctx, a.node, n.UID, []podRef{refOf(&p)})
}
