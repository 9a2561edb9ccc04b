package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
	"github.com/nodewarden/nodewarden/controller/zone"
)

var (
	errGone   = errors.New("the node is gone")
	errSilent = errors.New("the node kept changing while it was given up")
)

// nodes looks at one node at a time and writes what comes of it.
type nodes struct {
	options Options
	clock   clock.WithTicker
	server  *ServerClock
	cache   client.Reader
	writer  writer
	memory  *memory
	zones   *zones
	herald  *herald
	metrics *Metrics
	fresh   *freshness

	// looks takes requests for another look, pods for the pods of a node.
	looks, pods inbox
	primed      sync.Once
}

// Reconcile looks at a node.
func (c *nodes) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	c.primed.Do(func() { c.prime(ctx) })
	started := c.clock.Now()
	n, err := c.current(ctx, r.Name)
	if apierrors.IsNotFound(err) {
		c.gone(ctx, r.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	source := c.options.sourceOf(n.Labels)
	if c.options.Mode == Beside && source != lifecycle.External {
		c.memory.forget(n.Name)
		return reconcile.Result{}, nil
	}
	c.greet(ctx, n)
	again, err := c.look(ctx, n, source)
	c.metrics.Looked(c.clock.Since(started))
	if errors.Is(err, errGone) || apierrors.IsNotFound(err) {
		// The watch brings the news of what is there instead.
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// current is the node as the cache has it, or newer where we wrote it ourselves.
func (c *nodes) current(ctx context.Context, name string) (*corev1.Node, error) {
	var n corev1.Node
	if err := c.cache.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
		return nil, err
	}
	return c.memory.newest(&n), nil
}

// prime counts all nodes before the first of them is acted on: a cluster that is
// down when we start is seen as such, and not node by node.
func (c *nodes) prime(ctx context.Context) {
	if c.options.Mode == Beside {
		return
	}
	list, err := c.list(ctx)
	if err != nil {
		// A cache that has synced does not fail to list; if it did, nodes would
		// be counted one by one as they are looked at.
		log.FromContext(ctx).Error(err, "could not count the nodes before the first look")
		return
	}
	all := make([]*corev1.Node, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	c.after(ctx, c.zones.count(c.clock.Now(), all...))
}

func (c *nodes) list(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := c.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes from the cache: %w", err)
	}
	return list.Items, nil
}

// greet registers a node that is new, or new under its name.
func (c *nodes) greet(ctx context.Context, n *corev1.Node) {
	uid, known := c.memory.known(n.Name)
	if known && uid == n.UID {
		return
	}
	if known {
		c.gone(ctx, n.Name)
	}
	log.FromContext(ctx).V(1).Info("looks at a node for the first time", "ready", lifecycle.ReadyOf(n).Status)
	if c.options.Mode == Replace {
		c.herald.registered(n.Name, n.UID)
	}
}

// gone forgets a node. One that nobody has looked at yet may have been counted all
// the same, with all others before the first look.
func (c *nodes) gone(ctx context.Context, name string) {
	uid, known := c.memory.known(name)
	c.memory.forget(name)
	if c.options.Mode == Beside {
		return
	}
	if known {
		c.herald.removing(name, uid)
	}
	c.after(ctx, c.zones.without(c.clock.Now(), name, true))
}

// look decides about a node and does what the plan says.
func (c *nodes) look(ctx context.Context, n *corev1.Node, source lifecycle.Source) (time.Duration, error) {
	n, plan, err := c.decide(ctx, n, source)
	if err != nil {
		return 0, errors.Join(err, c.unjudged(ctx, n, err))
	}
	if plan.MarkPods || plan.Announce {
		c.pods.add(n.Name)
	}
	if c.options.Mode == Beside {
		return 0, nil
	}
	c.metrics.ZoneSeen(zone.Key(n.Labels))
	c.after(ctx, c.zones.count(c.clock.Now(), n))
	return plan.LookAgainAfter, c.dress(ctx, n)
}

// unjudged leaves a node out of the count that could not be judged. What it says
// itself still decides about its taints.
func (c *nodes) unjudged(ctx context.Context, n *corev1.Node, err error) error {
	if c.options.Mode == Beside {
		return nil
	}
	c.after(ctx, c.zones.without(c.clock.Now(), n.Name, false))
	if errors.Is(err, errGone) || apierrors.IsNotFound(err) {
		return nil
	}
	return c.dress(ctx, n)
}

// decide plans, and writes Unknown where the plan says so. Each time somebody
// else was faster it decides again from what they wrote: a heartbeat that came
// in between saves the node.
func (c *nodes) decide(ctx context.Context, n *corev1.Node, source lifecycle.Source) (*corev1.Node, lifecycle.Plan, error) {
	for range tries {
		plan, after := c.memory.decide(c.lookAt(ctx, n, source))
		if len(plan.Unknown) == 0 {
			return n, plan, nil
		}
		if c.fresh.stale() {
			return n, plan, errStale
		}
		if plan.CheckLease {
			alive, err := c.renewedMeanwhile(ctx, n.Name, after.Alive)
			if err != nil {
				return n, plan, err
			}
			if alive {
				continue
			}
		}
		c.memory.attempt(n, plan)
		written, err := c.writer.unknown(ctx, n, plan.Unknown)
		if err == nil {
			c.memory.gaveUp(written, plan, after)
			log.FromContext(ctx).Info("gave up a node that has fallen silent", "source", source, "was", lifecycle.ReadyOf(n).Status)
			return written, plan, nil
		}
		if !apierrors.IsConflict(err) {
			return n, plan, err
		}
		fresh, err := c.writer.get(ctx, n.Name)
		if err != nil {
			return n, plan, err
		}
		if fresh.UID != n.UID {
			return n, plan, errGone
		}
		n = fresh
	}
	return n, lifecycle.Plan{}, errSilent
}

func (c *nodes) lookAt(ctx context.Context, n *corev1.Node, source lifecycle.Source) lifecycle.Look {
	now := c.clock.Now()
	l := lifecycle.Look{
		Node: n, Source: source, Beside: c.options.Mode == Beside,
		Now: now, ServerNow: c.server.At(now), Graces: c.options.graces(),
	}
	if source == lifecycle.Kubelet {
		var lease coordinationv1.Lease
		if err := c.cache.Get(ctx, leaseOf(n.Name), &lease); err == nil {
			l.Lease = renewalOf(&lease)
		}
	}
	return l
}

// renewedMeanwhile reads the Lease past the cache, for a watch that stalls must
// not cost a live node its pods, and says whether the node has been alive later
// than a decision took it to be, whoever brought the news of that: the watch may
// have been faster. A Lease that was merely touched does not count.
func (c *nodes) renewedMeanwhile(ctx context.Context, name string, than time.Time) (bool, error) {
	var lease coordinationv1.Lease
	err := c.writer.live.Get(ctx, leaseOf(name), &lease)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the lease of node %s: %w", name, err)
	}
	return c.memory.renew(name, renewalOf(&lease), c.clock.Now()).After(than), nil
}

func leaseOf(node string) types.NamespacedName {
	return types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: node}
}

func renewalOf(l *coordinationv1.Lease) *lifecycle.Lease {
	out := &lifecycle.Lease{Version: l.ResourceVersion}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.Time
	}
	return out
}

// after follows up on what changed in the zones.
func (c *nodes) after(ctx context.Context, o zone.Outcome) {
	logger := log.FromContext(ctx)
	for _, ch := range o.Changes {
		level := 0
		if ch.From == zone.Initial && ch.To == zone.Normal {
			level = 1
		}
		logger.V(level).Info("a zone changed its state", "zone", ch.Zone, "from", ch.From, "to", ch.To, "rate", ch.Rate)
	}
	switch {
	case o.Entered:
		logger.Info("every zone is down: no node is tainted for eviction, and those that were are spared")
	case o.Left:
		logger.Info("not every zone is down any more: all nodes get a new grace")
		c.memory.pardon(c.clock.Now())
	default:
		return
	}
	list, err := c.list(ctx)
	if err != nil {
		logger.Error(err, "the next pass has to find the nodes to look at")
		return
	}
	for i := range list {
		c.looks.add(list[i].Name)
	}
}

// dress writes taints and labels, using the node's turn if it has come.
func (c *nodes) dress(ctx context.Context, n *corev1.Node) error {
	granted := c.zones.turn(n.Name)
	awaited := lifecycle.AwaitsEviction(n)
	dressed, err := c.writer.dress(ctx, n, func() lifecycle.Eviction { return c.may(granted) }, c.clock.Now)
	if err != nil {
		if granted {
			c.zones.again(n.Name, c.clock.Now())
		}
		return err
	}
	if dressed != n {
		c.memory.wrote(dressed)
		log.FromContext(ctx).V(1).Info("wrote taints and labels", "ready", lifecycle.ReadyOf(dressed).Status, "turn", granted)
	}
	if !granted {
		return nil
	}
	if where := c.zones.done(n.Name); awaited && lifecycle.Evicting(dressed) {
		c.metrics.Evicted(where)
	}
	return nil
}

func (c *nodes) may(granted bool) lifecycle.Eviction {
	switch {
	case c.zones.everywhere():
		return lifecycle.Strip
	case granted:
		return lifecycle.Grant
	}
	return lifecycle.Hold
}
