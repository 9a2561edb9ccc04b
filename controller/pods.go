package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

const (
	// podWriters is how many pods are written at once, over all nodes. Whoever
	// waits is served in order of arrival, so a node with many pods does not
	// hold up one with few.
	podWriters = 16
	// podNodes is how many nodes have their pods marked at once.
	podNodes = 16
	// batch is how many pods of a node are written before the node is looked
	// at again.
	batch = 16
)

// podRef is a pod as it was listed, as far as a write needs it.
type podRef struct {
	namespace, name string
	uid             types.UID
	resourceVersion string
	// conditions are the types of its conditions, in their order.
	conditions []string
}

// marker makes the pods of nodes that are down NotReady. It keeps no pods: those
// of one node are listed when it goes down, from the API server's own cache.
type marker struct {
	*nodes
	slots *semaphore.Weighted
	// arrivals knows which pods have been seen arriving on nodes.
	arrivals *arrivals
}

// Reconcile pays what is owed for a node that went down: the announcement and
// the pods.
func (m *marker) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	d := m.memory.debt(r.Name)
	if d.none() {
		return reconcile.Result{}, nil
	}
	pods, due, err := m.podsDue(ctx, r.Name, d)
	// The event goes out while the pods are written, and whatever becomes of
	// them. The first thing a failure costs is a list, so that the taint, which
	// keeps new pods away, is not held up.
	announced := make(chan error, 1)
	go func() { announced <- m.announce(ctx, r.Name, d) }()
	if due {
		err = m.markNode(ctx, r.Name, d, pods)
	}
	err = errors.Join(<-announced, err)
	if errors.Is(err, errStale) {
		return reconcile.Result{RequeueAfter: m.options.NodeMonitorPeriod}, nil
	}
	return reconcile.Result{}, err
}

func (m *marker) announce(ctx context.Context, name string, d debt) error {
	for _, since := range d.announce {
		if err := m.herald.nodeNotReady(ctx, name, d.uid, since); err != nil {
			return err
		}
		m.memory.announced(name, d.uid, since)
		log.FromContext(ctx).Info("announced that a node is not ready", "since", since)
	}
	return nil
}

// podsDue lists the pods that a node owes. None are due while it does not look
// down: it has recovered, and the next look cancels the debt, or the cache is
// behind, and the next look renews it.
func (m *marker) podsDue(ctx context.Context, name string, d debt) (pods []podRef, due bool, err error) {
	if !d.pods {
		return nil, false, nil
	}
	if down, err := m.down(ctx, name, d.uid); !down {
		return nil, false, err
	}
	pods, err = m.podsOf(ctx, name)
	return pods, err == nil, err
}

// markNode marks the pods of a node batch by batch, for as long as it is down.
func (m *marker) markNode(ctx context.Context, name string, d debt, pods []podRef) error {
	var failed []error
	for next := 0; next < len(pods); next += batch {
		if down, err := m.down(ctx, name, d.uid); !down {
			log.FromContext(ctx).Info("stopped marking pods", "left", len(pods)-next, "reason", "the node is not down any more")
			return err
		}
		failed = append(failed, m.markBatch(ctx, name, d.uid, pods[next:min(len(pods), next+batch)]))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("mark the pods of node %s: %w", name, err)
	}
	m.paid(ctx, name, d, len(pods))
	return nil
}

// paid takes note that the pods of a transition have been marked.
func (m *marker) paid(ctx context.Context, name string, d debt, pods int) {
	if fell := m.memory.podsMarked(name, d); !fell.IsZero() {
		m.metrics.Reacted(m.clock.Since(fell))
	}
	if pods > 0 {
		log.FromContext(ctx).Info("marked the pods of a node", "pods", pods)
	}
}

// down says whether this very node is still down, as far as anybody knows.
func (m *marker) down(ctx context.Context, name string, uid types.UID) (bool, error) {
	if m.fresh.stale() {
		return false, errStale
	}
	n, err := m.current(ctx, name)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return n.UID == uid && lifecycle.ReadyOf(n).Down(), nil
}

// podsOf lists the pods of a node that are not NotReady. The answer may come from
// an API server's cache, but not from one older than the latest pod seen
// arriving: whatever arrives after that is noticed on arrival.
func (m *marker) podsOf(ctx context.Context, node string) ([]podRef, error) {
	version, err := m.arrivals.seen(ctx)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	err = m.writer.live.List(ctx, &list, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node),
		Raw:           &metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	var out []podRef
	for i := range list.Items {
		if p := &list.Items[i]; losesReadiness(p) {
			out = append(out, refOf(p))
		}
	}
	return out, nil
}

func refOf(p *corev1.Pod) podRef {
	out := podRef{namespace: p.Namespace, name: p.Name, uid: p.UID, resourceVersion: p.ResourceVersion}
	for _, c := range p.Status.Conditions {
		out.conditions = append(out.conditions, string(c.Type))
	}
	return out
}

// losesReadiness says that the pod has a Ready condition and it is not False. No
// pod is spared: what runs on a node that is down cannot be reached.
func losesReadiness(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status != corev1.ConditionFalse
		}
	}
	return false
}

func (m *marker) markBatch(ctx context.Context, node string, uid types.UID, pods []podRef) error {
	errs := make([]error, len(pods))
	var all sync.WaitGroup
	for i := range pods {
		if err := m.slots.Acquire(ctx, 1); err != nil {
			errs[i] = err
			break
		}
		all.Go(func() {
			defer m.slots.Release(1)
			errs[i] = m.markPod(ctx, node, uid, pods[i])
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// markPod makes one pod NotReady. When somebody else wrote to it first, both the
// pod and its node are looked at again.
func (m *marker) markPod(ctx context.Context, node string, uid types.UID, p podRef) error {
	for try := 1; ; try++ {
		at := m.clock.Now().Truncate(time.Second)
		err := m.writer.pod(ctx, p, at)
		switch {
		case err == nil:
			m.metrics.PodMarked()
			m.herald.podNotReady(p, at)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == tries:
			m.metrics.PodFailed()
			return fmt.Errorf("pod %s/%s: %w", p.namespace, p.name, err)
		}
		var fresh corev1.Pod
		if err := m.writer.live.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: p.name}, &fresh); err != nil {
			return client.IgnoreNotFound(err)
		}
		if down, err := m.down(ctx, node, uid); !down || fresh.UID != p.uid || !losesReadiness(&fresh) {
			return err
		}
		p = refOf(&fresh)
	}
}
