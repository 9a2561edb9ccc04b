package controller

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

// memory is what this process remembers of nodes, by name and, since a name can
// be used again, guarded by UID. It holds nothing that a restart could not do
// without.
type memory struct {
	mu      sync.Mutex
	records map[string]*record
}

type record struct {
	uid  types.UID
	seen lifecycle.Seen
	// looked is the resourceVersion last looked at, due when silence makes the
	// next look necessary, zero for never.
	looked string
	due    time.Time
	// written is the node as our latest write left it, until the cache has it.
	written *corev1.Node
	// announce are transitions whose event is still to be created.
	announce []time.Time
	// fell is when the watch delivered that the node is Unknown.
	fell time.Time
}

func newMemory() *memory { return &memory{records: map[string]*record{}} }

// of returns the record of this very node, nil when there is none.
func (m *memory) of(name string, uid types.UID) *record {
	if r := m.records[name]; r != nil && r.uid == uid {
		return r
	}
	return nil
}

// known returns the UID last seen under a name.
func (m *memory) known(name string) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[name]
	if !ok {
		return "", false
	}
	return r.uid, true
}

func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, name)
}

// decide looks at a node and remembers the look, unless it calls for a write:
// what that would leave behind is kept by wrote, once it has succeeded.
func (m *memory) decide(l lifecycle.Look) (lifecycle.Plan, lifecycle.Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(l.Node.Name, l.Node.UID)
	if r != nil {
		l.Before = &r.seen
	}
	plan, after := lifecycle.Decide(l)
	if r == nil {
		r = &record{uid: l.Node.UID, seen: after}
		m.records[l.Node.Name] = r
		if len(plan.Unknown) > 0 {
			// The look is remembered as if nothing had been found: the write
			// may fail, and the node be silent for good reason then.
			l.Graces = lifecycle.Graces{Monitor: 1 << 62, Startup: 1 << 62}
			_, r.seen = lifecycle.Decide(l)
		}
	}
	r.looked, r.due = l.Node.ResourceVersion, time.Time{}
	if plan.LookAgainAfter > 0 {
		r.due = l.Now.Add(plan.LookAgainAfter)
	}
	if len(plan.Unknown) == 0 {
		r.keep(plan, after)
	}
	return plan, after
}

func (r *record) keep(plan lifecycle.Plan, after lifecycle.Seen) {
	r.seen = after
	if !after.Ready.Down() {
		r.fell = time.Time{}
	}
	if plan.Announce && !slices.ContainsFunc(r.announce, plan.Since.Equal) {
		r.announce = append(r.announce, plan.Since)
	}
}

// attempt notes a write that is about to be made, for its answer may be lost. One
// that nothing would follow is not worth it.
func (m *memory) attempt(n *corev1.Node, plan lifecycle.Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(n.Name, n.UID); r != nil && plan.Announce {
		r.seen = r.seen.Try(plan.Since)
	}
}

// gaveUp keeps a look whose write succeeded.
func (m *memory) gaveUp(written *corev1.Node, plan lifecycle.Plan, after lifecycle.Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(written.Name, written.UID); r != nil {
		r.keep(plan, after)
		r.written = written
	}
}

// wrote keeps a node as a write of ours left it.
func (m *memory) wrote(n *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(n.Name, n.UID); r != nil {
		r.written = n
	}
}

// newest is the cached node or, while the cache is behind our own writes, the
// node as they left it.
func (m *memory) newest(cached *corev1.Node) *corev1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(cached.Name, cached.UID)
	if r == nil || r.written == nil {
		return cached
	}
	if behind, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, r.written.ResourceVersion); err == nil && behind < 0 {
		return r.written
	}
	r.written = nil
	return cached
}

// renew notes a Lease that arrived for a node and returns when the node was last
// alive, zero when Leases say nothing about it.
func (m *memory) renew(name string, l *lifecycle.Lease, now time.Time) (alive time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	if r == nil || r.seen.Source != lifecycle.Kubelet {
		return time.Time{}
	}
	r.seen = r.seen.Renew(l, now)
	return r.seen.Alive
}

// pardon restarts everybody's grace.
func (m *memory) pardon(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		r.seen = r.seen.Pardon(now)
	}
}

// fell notes when the news arrived that a node is Unknown.
func (m *memory) fell(name string, uid types.UID, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(name, uid); r != nil {
		r.fell = at
	}
}

// debt is what is still owed for a node that went down.
type debt struct {
	uid      types.UID
	pods     bool
	since    time.Time
	announce []time.Time
}

func (d debt) none() bool { return !d.pods && len(d.announce) == 0 }

func (m *memory) debt(name string) debt {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[name]
	if r == nil {
		return debt{}
	}
	return debt{uid: r.uid, pods: r.seen.OwesPods, since: r.seen.Ready.Since, announce: slices.Clone(r.announce)}
}

// announced pays one announcement.
func (m *memory) announced(name string, uid types.UID, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(name, uid); r != nil {
		r.announce = slices.DeleteFunc(r.announce, since.Equal)
	}
}

// podsMarked pays for the transition at since, unless another came in between,
// and returns when the news of it arrived, zero when that is not known.
func (m *memory) podsMarked(name string, d debt) (fell time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(name, d.uid)
	if r == nil || !r.seen.Ready.Since.Equal(d.since) {
		return time.Time{}
	}
	r.seen = r.seen.PodsMarked()
	fell, r.fell = r.fell, time.Time{}
	return fell
}

// reload makes the pods of every external node that is Unknown due again. While a
// node is False its kubelet has them in hand, and a pod has no readiness to lose
// yet when it arrives.
func (m *memory) reload() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.records {
		if r.seen.Source == lifecycle.External && r.seen.Ready.Status == corev1.ConditionUnknown {
			r.seen.OwesPods = true
			names = append(names, name)
		}
	}
	return names
}

// marksArrivals says whether a pod just bound to this node loses readiness.
func (m *memory) marksArrivals(n *corev1.Node) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(n.Name, n.UID)
	return r != nil && r.seen.MarksArrivals(lifecycle.ReadyOf(n))
}

// missed are the nodes that need a look: changed, vanished or overdue without
// one, by more than slack.
func (m *memory) missed(nodes []corev1.Node, now time.Time, slack time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	there := make(map[string]bool, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		there[n.Name] = true
		r := m.of(n.Name, n.UID)
		switch {
		case r == nil, r.looked != n.ResourceVersion:
			out = append(out, n.Name)
		case !r.due.IsZero() && now.Sub(r.due) > slack:
			out = append(out, n.Name)
		}
	}
	for name := range m.records {
		if !there[name] {
			out = append(out, name)
		}
	}
	return out
}

// unleased counts the nodes that report and renew no Lease.
func (m *memory) unleased(quiet time.Duration) (count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if r.seen.Unleased(quiet) {
			count++
		}
	}
	return count
}
