package differential_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
	"github.com/nodewarden/nodewarden/test/nodes"
)

const (
	// actEvery is from the end of an act, or of the beginning, to the next: more
	// than two passes, so that the in-tree controller, which compares from pass to
	// pass, sees each.
	actEvery = 1200 * time.Millisecond
	// acts is how long a history is.
	acts = 8
	// given is the first act in which a node that never reported has surely been
	// given up. Before that its pods stay Ready, from then on new ones do not, and
	// a pod in between is a matter of milliseconds.
	given = 7
	// grace is longer than any silence that is meant to be survived.
	grace = 6 * time.Second
	// renewEvery is how often a live kubelet renews its Lease.
	renewEvery = 1500 * time.Millisecond
)

// history is one random life of a few nodes. What it does depends on its seed
// alone, so both control planes are written to alike, stamps included.
type history struct {
	seed   uint64
	prefix string
	random *rand.Rand
	noon   time.Time
	nodes  []*subject
	pods   int
	told   []string
	act    int
	// foreseen says which NoExecute taint each node should end with, and
	// whether every node is down then. Nil where nobody foresees it.
	foreseen func() (evicting map[string]string, everywhere bool)
}

// subject is a node as the history knows it.
type subject struct {
	name string
	zone string

	mu    sync.Mutex
	alive bool // renews its Lease

	dead    bool // fell silent for good
	reports bool // has a kubelet that posts Ready
	gone    bool
	revive  int // act in which a short silence ends
}

func (s *subject) set(alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = alive
}

func (s *subject) renews() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive
}

func newHistory(seed uint64, noon time.Time) *history {
	h := &history{seed: seed, prefix: fmt.Sprintf("h%d", seed), random: rand.New(rand.NewPCG(seed, 6371)), noon: noon}
	for i := range 3 + h.random.IntN(2) {
		h.nodes = append(h.nodes, &subject{name: fmt.Sprintf("%s-n%d", h.prefix, i), zone: fmt.Sprintf("%s-z%d", h.prefix, i%2), reports: i != 2 || h.random.IntN(2) == 0})
	}
	return h
}

// say notes what is done, to be shown when the outcomes differ.
func (h *history) say(format string, args ...any) {
	h.told = append(h.told, fmt.Sprintf("%2d: ", h.act)+fmt.Sprintf(format, args...))
}

func (h *history) String() string { return strings.Join(h.told, "\n") }

// stamp is a time of this history; each act has a second of its own.
func (h *history) stamp() metav1.Time {
	return metav1.NewTime(h.noon.Add(time.Duration(h.act+1) * time.Second).Truncate(time.Second))
}

// write is one thing done to a control plane.
type write func(context.Context, *rig.Rig) error

// begin creates nodes, each with a pod.
func (h *history) begin(nodes []*subject) (out []write) {
	for _, n := range nodes {
		out = append(out, h.create(n), h.pod(n))
	}
	return out
}

func (h *history) create(n *subject) write {
	h.say("create %s in %s, reporting %v", n.name, n.zone, n.reports)
	n.set(n.reports)
	at := h.stamp().Time
	b := nodes.Named(n.name)
	if n.reports {
		b = nodes.Reporting(n.name, at, at)
	}
	b = b.Label(corev1.LabelTopologyZone, n.zone)
	return func(ctx context.Context, r *rig.Rig) error {
		_, err := r.Admin.CoreV1().Nodes().Create(ctx, b.Node(), metav1.CreateOptions{})
		return err
	}
}

// pod binds a pod that says it is Ready.
func (h *history) pod(n *subject) write {
	h.pods++
	name := fmt.Sprintf("%s-p%d", h.prefix, h.pods)
	h.say("bind %s to %s", name, n.name)
	return func(ctx context.Context, r *rig.Rig) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rig.Pods}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		if _, err := r.Admin.CoreV1().Pods(rig.Pods).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := r.SetPodReady(ctx, name, corev1.ConditionTrue); err != nil {
			return err
		}
		return r.Admin.CoreV1().Pods(rig.Pods).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rig.Pods}, Target: corev1.ObjectReference{Kind: "Node", Name: n.name}}, metav1.CreateOptions{})
	}
}

// next is the next act: what it writes, if anything.
func (h *history) next() (out []write) {
	h.act++
	for _, n := range h.nodes {
		if n.revive == h.act && n.revive > 0 {
			h.say("%s speaks again", n.name)
			n.set(true)
		}
	}
	n := h.nodes[h.random.IntN(len(h.nodes))]
	if n.gone {
		n.gone, n.dead, n.reports = false, false, true
		return []write{h.create(n)}
	}
	choices := []func(*subject) write{h.cordon, h.strangeTaint, h.untaint, h.pressure, h.relabel, h.exclude}
	if n.reports || h.act >= given {
		choices = append(choices, h.pod)
	}
	if n.reports && !n.dead && n.revive <= h.act {
		choices = append(choices, h.report, h.report, h.report, h.outside, h.outside, h.die, h.die, h.delete)
		if n.revive < h.act { // two silences without a word between them are a long one
			choices = append(choices, h.pause)
		}
	}
	if w := choices[h.random.IntN(len(choices))](n); w != nil {
		out = append(out, w)
	}
	return out
}

func (h *history) report(n *subject) write {
	status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse}[h.random.IntN(3)]
	at := h.stamp()
	if h.random.IntN(4) == 0 {
		at = metav1.NewTime(at.Add(-10 * time.Minute))
	}
	transition := h.stamp()
	h.say("the kubelet of %s reports %s at %s", n.name, status, at.Format(time.TimeOnly))
	return patch(n, rig.Condition{Type: "Ready", Status: string(status), Reason: "Kubelet" + string(status), LastHeartbeatTime: &at, LastTransitionTime: &transition})
}

func (h *history) outside(n *subject) write {
	at := h.stamp()
	h.say("an outsider writes Unknown to %s", n.name)
	return patch(n, rig.Condition{Type: "Ready", Status: "Unknown", Reason: "Outside", LastTransitionTime: &at})
}

func (h *history) pressure(n *subject) write {
	status := []string{"True", "False"}[h.random.IntN(2)]
	kind := []string{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}[h.random.IntN(4)]
	if !n.reports || n.dead {
		kind = "NetworkUnavailable" // the others are the kubelet's
	}
	at := h.stamp()
	h.say("%s of %s is %s", kind, n.name, status)
	return patch(n, rig.Condition{Type: kind, Status: status, Reason: "R", LastTransitionTime: &at})
}

func patch(n *subject, c rig.Condition) write {
	return func(ctx context.Context, r *rig.Rig) error { return rig.Write(ctx, r.Admin, n.name, c) }
}

func (h *history) cordon(n *subject) write {
	on := h.random.IntN(2) == 0
	h.say("cordon %s: %v", n.name, on)
	return merge(n, fmt.Sprintf(`{"spec":{"unschedulable":%v}}`, on))
}

func (h *history) relabel(n *subject) write {
	value := []string{`"linux"`, `"windows"`, `null`}[h.random.IntN(3)]
	key := []string{"kubernetes.io/os", "beta.kubernetes.io/os", "kubernetes.io/arch", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"}[h.random.IntN(5)]
	h.say("label %s of %s becomes %s", key, n.name, value)
	return merge(n, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value))
}

func (h *history) exclude(n *subject) write {
	value := []string{`"false"`, `null`}[h.random.IntN(2)]
	h.say("exclude %s: %s", n.name, value)
	return merge(n, fmt.Sprintf(`{"metadata":{"labels":{"node.kubernetes.io/exclude-disruption":%s}}}`, value))
}

func merge(n *subject, body string) write {
	return func(ctx context.Context, r *rig.Rig) error {
		_, err := r.Admin.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
}

func (h *history) strangeTaint(n *subject) write {
	t := []corev1.Taint{
		{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule},
		{Key: "example.com/a", Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule, Value: "v"},
	}[h.random.IntN(5)]
	h.say("somebody taints %s with %s", n.name, t.ToString())
	return retaint(n, func(all []corev1.Taint) []corev1.Taint {
		for _, have := range all {
			if have.MatchTaint(&t) {
				return all
			}
		}
		return append(all, t)
	})
}

func (h *history) untaint(n *subject) write {
	h.say("somebody takes the taints of %s away", n.name)
	return retaint(n, func([]corev1.Taint) []corev1.Taint { return nil })
}

func retaint(n *subject, change func([]corev1.Taint) []corev1.Taint) write {
	return func(ctx context.Context, r *rig.Rig) error {
		for {
			now, err := r.Admin.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Spec.Taints = change(now.Spec.Taints)
			if _, err = r.Admin.CoreV1().Nodes().Update(ctx, now, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				return err
			}
		}
	}
}

// die silences a kubelet for good.
func (h *history) die(n *subject) write {
	h.say("%s falls silent for good", n.name)
	n.dead = true
	n.set(false)
	return nil
}

// pause silences a kubelet for less than its grace.
func (h *history) pause(n *subject) write {
	h.say("%s falls silent for a moment", n.name)
	n.revive = h.act + 2
	n.set(false)
	return nil
}

func (h *history) delete(n *subject) write {
	h.say("delete %s", n.name)
	n.gone = true
	n.set(false)
	return func(ctx context.Context, r *rig.Rig) error {
		return r.Admin.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{})
	}
}

// renew renews the Leases of all live nodes.
func (h *history) renew(ctx context.Context, r *rig.Rig) error {
	var errs []error
	for _, n := range h.nodes {
		if !n.renews() {
			continue
		}
		leases := r.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		body := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
		_, err := leases.Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			at := metav1.NowMicro()
			_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}, metav1.CreateOptions{})
		}
		if ctx.Err() == nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
