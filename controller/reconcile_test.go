package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

// line is a connection on which a Lease can be read and a status be patched, and
// on which the moment of either can be chosen, which no API server lets one do. It
// lists nothing.
type line struct {
	client.Reader
	client.SubResourceWriter
	lease   coordinationv1.Lease
	onRead  func()
	onPatch func() error
}

func (l *line) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	l.onRead()
	l.lease.DeepCopyInto(into.(*coordinationv1.Lease))
	return nil
}

func (l *line) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (l *line) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return l.onPatch()
}

func (l *line) renew(version string, at time.Time) {
	renewed := metav1.NewMicroTime(at)
	l.lease.Name, l.lease.ResourceVersion, l.lease.Spec.RenewTime = "a", version, &renewed
}

// watcher has looked at node a once, at noon, when its Lease was renewed; now it
// is a minute later. The cache has the Lease of noon, the line whatever comes.
func watcher(t *testing.T) (*nodes, *line) {
	t.Helper()
	k := clocktesting.NewFakeClock(noon)
	cached := &line{onRead: func() {}}
	cached.renew("1", noon)
	live := &line{lease: cached.lease, onRead: func() {}, onPatch: func() error {
		t.Error("the node is given up")
		return errGone
	}}
	o := DefaultOptions()
	c := &nodes{
		options: o, clock: k, server: NewServerClock(k.Now), cache: cached,
		writer: writer{status: live, live: live, slim: o.slim},
		memory: newMemory(), zones: newZones(o), fresh: &freshness{clock: k, period: o.NodeMonitorPeriod},
	}
	if _, _, err := c.decide(t.Context(), nodeAt("1", "u", corev1.ConditionTrue, noon), lifecycle.Kubelet); err != nil {
		t.Fatal(err)
	}
	k.Step(time.Minute)
	return c, live
}

func TestARenewalThatTheWatchDeliversBeforeTheLiveReadSparesTheNode(t *testing.T) {
	c, live := watcher(t)
	live.onRead = func() {
		live.renew("2", c.clock.Now())
		c.memory.renew("a", renewalOf(&live.lease), c.clock.Now())
	}
	if _, _, err := c.decide(t.Context(), nodeAt("1", "u", corev1.ConditionTrue, noon), lifecycle.Kubelet); err != nil {
		t.Error(err)
	}
}

func TestAWriteThatSucceededThoughItsAnswerWasLostIsFollowedUp(t *testing.T) {
	for name, retry := range map[string]bool{"at the next look": false, "after the answer to a second attempt was lost as well": true} {
		t.Run(name, func(t *testing.T) {
			c, live := watcher(t)
			at, lost := c.clock.Now(), errors.New("connection lost")
			live.onPatch = func() error { return lost }
			live.renew("1", noon)
			up := nodeAt("1", "u", corev1.ConditionTrue, noon)
			if _, _, err := c.decide(t.Context(), up, lifecycle.Kubelet); !errors.Is(err, lost) {
				t.Fatal(err)
			}
			if retry {
				c.clock.(*clocktesting.FakeClock).Step(10 * time.Second)
				_, _, _ = c.decide(t.Context(), up, lifecycle.Kubelet)
			}
			given := nodeAt("2", "u", corev1.ConditionUnknown, at)
			given.Status.Conditions[0].Reason = lifecycle.ReasonUnknown
			if _, plan, err := c.decide(t.Context(), given, lifecycle.Kubelet); err != nil || !plan.MarkPods || !plan.Announce {
				t.Errorf("plans %+v (%v), want pods and event", plan, err)
			}
			if d := c.memory.debt("a"); !d.pods || !slices.Equal(d.announce, []time.Time{at}) {
				t.Errorf("owes %+v, want the pods, and the event of %v", d, at)
			}
			if !c.memory.marksArrivals(given) {
				t.Error("pods that arrive keep their readiness")
			}
			if _, plan, _ := c.decide(t.Context(), given, lifecycle.Kubelet); plan.Announce {
				t.Error("announced twice")
			}
		})
	}
}

func TestANodeThatIsDeletedBeforeItsFirstLookIsNotCounted(t *testing.T) {
	c, _ := watcher(t)
	a, b := nodeAt("1", "u", corev1.ConditionUnknown, noon), nodeAt("1", "v", corev1.ConditionTrue, noon)
	b.Name = "b"
	c.zones.count(noon, a, b)
	c.gone(t.Context(), "b")
	if f := c.zones.figures(); len(f) != 1 || f[0].Counted != 1 || !c.zones.everywhere() {
		t.Errorf("counts %+v, and everything down: %v; want the one node that is left, which is down", f, c.zones.everywhere())
	}
}

func TestWhoeverWaitsForTheNextTurnIsWokenWhenANodeThatGoesRaisesTheRate(t *testing.T) {
	for name, gone := range map[string]bool{"deleted": true, "not judged": false} {
		t.Run(name, func(t *testing.T) {
			z := newZones(DefaultOptions())
			var all []*corev1.Node
			for _, name := range []string{"up", "a", "b", "c"} {
				n := nodeAt("1", "u", corev1.ConditionUnknown, noon)
				n.Name = name
				all = append(all, n)
			}
			all[0].Status.Conditions[0].Status = corev1.ConditionTrue
			z.count(noon, all...)
			<-z.kick
			now := noon.Add(time.Minute)
			if _, ok, wait := z.next(now); ok || wait >= 0 {
				t.Fatalf("a turn (%v) or a wait of %v, want to sleep until something changes", ok, wait)
			}
			z.without(now, "c", gone)
			select {
			case <-z.kick:
			default:
				_, _, wait := z.next(now)
				t.Errorf("sleeps on, although the next turn is %v away", wait)
			}
		})
	}
}

func TestAReactionIsTimedFromUnknownEvenIfFalseCameBefore(t *testing.T) {
	c, _ := watcher(t)
	k := c.clock.(*clocktesting.FakeClock)
	q := workqueue.NewTypedRateLimitingQueue(retries[reconcile.Request](c.options))
	t.Cleanup(q.ShutDown)
	n := nodeAt("1", "v", corev1.ConditionTrue, noon)
	c.memory.decide(lookAt(n, lifecycle.External, k.Now()))
	unknown := k.Now().Add(20 * time.Minute)
	for _, next := range []*corev1.Node{
		nodeAt("2", "v", corev1.ConditionFalse, noon),
		nodeAt("3", "v", corev1.ConditionUnknown, unknown),
		nodeAt("4", "v", corev1.ConditionUnknown, unknown),
	} {
		k.Step(10 * time.Minute)
		c.nodeEvents().Update(t.Context(), event.TypedUpdateEvent[*corev1.Node]{ObjectOld: n, ObjectNew: next}, q)
		c.memory.decide(lookAt(next, lifecycle.External, k.Now()))
		n = next
	}
	if fell := c.memory.podsMarked("a", c.memory.debt("a")); !fell.Equal(unknown) {
		t.Errorf("timed from %v, want %v, when the node became Unknown", fell, unknown)
	}
}
