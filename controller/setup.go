package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

// nodeWorkers is how many nodes are looked at, and written, at once.
const nodeWorkers = 16

// Parts are what the controller is built from.
type Parts struct {
	Options Options
	Clock   clock.WithTicker
	// Server must wrap the transport of the manager's rest.Config.
	Server  *ServerClock
	Metrics *Metrics
}

// Probes answer whoever supervises the process.
type Probes struct {
	// Healthy returns why the process should be restarted, or nil.
	Healthy func() error
	// Ready returns why it could not take over at once, or nil.
	Ready func() error
}

// Setup adds the controller to a manager whose cache is built with
// Options.Cache. Everything runs on the leader only.
func Setup(m manager.Manager, p Parts) (Probes, error) {
	pods, err := client.NewWithWatch(m.GetConfig(), client.Options{Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient()})
	if err != nil {
		return Probes{}, fmt.Errorf("make a client that watches pods: %w", err)
	}
	c := newNodes(m, p)
	informers, err := c.warm(m, pods)
	if err != nil {
		return Probes{}, err
	}
	c.expose()
	marker := &marker{nodes: c, slots: semaphore.NewWeighted(podWriters), arrivals: newArrivals(c, pods)}
	for _, setup := range []func(manager.Manager) error{c.setup, marker.setup, marker.setupArrivals} {
		if err := setup(m); err != nil {
			return Probes{}, err
		}
	}
	for _, r := range []manager.Runnable{c.herald, turns{c}, pass{c}} {
		if err := m.Add(r); err != nil {
			return Probes{}, fmt.Errorf("add to the manager: %w", err)
		}
	}
	return Probes{Healthy: c.fresh.healthy, Ready: func() error { return synced(informers) }}, nil
}

func synced(informers []cache.Informer) error {
	for _, i := range informers {
		if !i.HasSynced() {
			return errors.New("the caches are being filled")
		}
	}
	return nil
}

func newNodes(m manager.Manager, p Parts) *nodes {
	return &nodes{
		options: p.Options,
		clock:   p.Clock,
		server:  p.Server,
		cache:   m.GetCache(),
		writer:  writer{client: m.GetClient(), status: m.GetClient().Status(), live: m.GetAPIReader(), slim: p.Options.slim},
		memory:  newMemory(),
		zones:   newZones(p.Options),
		herald:  newHerald(m.GetClient(), p.Clock),
		metrics: p.Metrics,
		fresh:   &freshness{clock: p.Clock, period: p.Options.NodeMonitorPeriod},
	}
}

func (c *nodes) expose() {
	c.metrics.Sources(c.options.sources())
	c.metrics.CacheAge(c.fresh.age)
	if c.options.Mode == Replace {
		c.metrics.Zones(c.zones.figures)
	}
}

// versioned is the part of an informer that knows how far it has come.
type versioned interface{ LastSyncResourceVersion() string }

// warm fills the caches before this replica is elected, so that it can take over
// at once, and ties freshness to the cache of nodes.
func (c *nodes) warm(m manager.Manager, pods client.WithWatch) ([]cache.Informer, error) {
	nodes, err := m.GetCache().GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cache nodes: %w", err)
	}
	v, ok := nodes.(versioned)
	if !ok {
		return nil, fmt.Errorf("the informer of nodes, a %T, does not say how far it has come", nodes)
	}
	c.fresh.version = v.LastSyncResourceVersion
	c.fresh.since = func(ctx context.Context, version string) (watch.Interface, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		second := int64(1)
		return pods.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: &second}})
	}
	if !c.options.readsLeases() {
		return []cache.Informer{nodes}, nil
	}
	leases, err := m.GetCache().GetInformer(context.Background(), &coordinationv1.Lease{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cache leases: %w", err)
	}
	return []cache.Informer{nodes, leases}, nil
}

// retries grows the wait between failed attempts from a blink to the node monitor
// period, which is how long a failure may go unnoticed.
func retries[T comparable](o Options) workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](20*time.Millisecond, o.NodeMonitorPeriod)
}

// plain work queues hand a request on sooner than those with priorities, and
// nothing here has any.
var plain = false

// logged names the node in every line that a look at it writes.
func logged(m manager.Manager) func(*reconcile.Request) logr.Logger {
	return func(r *reconcile.Request) logr.Logger {
		if r == nil {
			return m.GetLogger()
		}
		return m.GetLogger().WithValues("node", r.Name)
	}
}

func (c *nodes) setup(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).Named("nodes").
		WithOptions(crcontroller.Options{UsePriorityQueue: &plain, MaxConcurrentReconciles: nodeWorkers, RateLimiter: retries[reconcile.Request](c.options), LogConstructor: logged(mgr)}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			c.looks.open(q)
			return nil
		})).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Node{}, c.nodeEvents()))
	if c.options.readsLeases() {
		b = b.WatchesRawSource(source.Kind(mgr.GetCache(), &coordinationv1.Lease{}, c.leaseEvents()))
	}
	if err := b.Complete(c); err != nil {
		return fmt.Errorf("set up the controller of nodes: %w", err)
	}
	return nil
}

func isUnknown(n *corev1.Node) bool {
	return lifecycle.ReadyOf(n).Status == corev1.ConditionUnknown
}

// nodeEvents asks for a look at every node that changed, and notes when the news
// of an Unknown, which costs pods, came.
func (c *nodes) nodeEvents() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	look := func(n *corev1.Node, q queue) {
		c.fresh.confirm(c.clock.Now())
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: n.Name}})
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { look(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) { look(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			if n := e.ObjectNew; !isUnknown(e.ObjectOld) && isUnknown(n) {
				c.memory.fell(n.Name, n.UID, c.clock.Now())
			}
			look(e.ObjectNew, q)
		},
	}
}

// leaseEvents notes renewals when they arrive and asks for nothing: a node is
// looked at when its grace would have ended.
func (c *nodes) leaseEvents() handler.TypedEventHandler[*coordinationv1.Lease, reconcile.Request] {
	renew := func(l *coordinationv1.Lease) { c.memory.renew(l.Name, renewalOf(l), c.clock.Now()) }
	return handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], _ queue) { renew(e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], _ queue) { renew(e.ObjectNew) },
	}
}

func (m *marker) setup(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).Named("pods").
		WithOptions(crcontroller.Options{UsePriorityQueue: &plain, MaxConcurrentReconciles: podNodes, RateLimiter: retries[reconcile.Request](m.options), LogConstructor: logged(mgr)}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			m.pods.open(q)
			return nil
		})).
		Complete(m)
	if err != nil {
		return fmt.Errorf("set up the controller of pods: %w", err)
	}
	return nil
}

func (m *marker) setupArrivals(mgr manager.Manager) error {
	err := builder.TypedControllerManagedBy[arrival](mgr).Named("arrivals").
		WithOptions(crcontroller.TypedOptions[arrival]{
			UsePriorityQueue: &plain, MaxConcurrentReconciles: podNodes, RateLimiter: retries[arrival](m.options),
			LogConstructor: func(a *arrival) logr.Logger {
				if a == nil {
					return mgr.GetLogger()
				}
				return mgr.GetLogger().WithValues("node", a.node, "pod", a.pod)
			},
		}).
		WatchesRawSource(source.TypedFunc[arrival](func(ctx context.Context, q workqueue.TypedRateLimitingInterface[arrival]) error {
			go m.arrivals.watch(ctx, q)
			return nil
		})).
		Complete(newcomers{m})
	if err != nil {
		return fmt.Errorf("set up the controller of arriving pods: %w", err)
	}
	return nil
}
