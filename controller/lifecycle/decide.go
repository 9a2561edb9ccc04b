package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Plan is what to do about a look. The zero Plan asks for nothing.
type Plan struct {
	// Unknown are the conditions to write, in order; none when the node is not
	// overdue. Announce and MarkPods then hold only once the write succeeded.
	Unknown []corev1.NodeCondition
	// CheckLease asks for a live read of the Lease before Unknown is written: a
	// stalled watch must not look like a dead kubelet.
	CheckLease bool
	// Announce asks for the NodeNotReady event of the transition at Since.
	Announce bool
	// Since is the lastTransitionTime that identifies the transition.
	Since time.Time
	// MarkPods asks for every pod of the node to lose readiness.
	MarkPods bool
	// LookAgainAfter is how long nothing can fall due, zero for never.
	LookAgainAfter time.Duration
}

// Decide looks at a node once. The Seen it returns is to be kept when the plan's
// Unknown, if any, has been written, and thrown away when that write failed or
// nobody said how it ended. An announced one is to be noted by Try before it is
// written.
func Decide(l Look) (Plan, Seen) {
	ready := ReadyOf(l.Node)
	seen := l.remember(ready)
	var plan Plan
	if l.overdue(ready, seen) {
		plan.Unknown = unknownConditions(l.Node, l.Now)
		plan.CheckLease = l.Source == Kubelet
	}
	l.react(ready, &plan, &seen)
	if len(plan.Unknown) > 0 {
		l.written(ready, &plan, &seen)
	}
	if seen.OwesPods {
		plan.MarkPods = true
	}
	plan.LookAgainAfter = l.next(seen)
	return plan, seen
}

// remember brings memory up to date with the object and its Lease.
func (l Look) remember(ready Ready) Seen {
	if l.Before == nil {
		return l.renew(l.first(ready))
	}
	seen := *l.Before
	switch {
	case seen.Source != l.Source:
		// Whoever answers for the node now has not been timed yet.
		seen.Alive, seen.Timed = l.Now, l.Now
	case ready.Absent() && !seen.Ready.Absent() && l.Source == External:
		// The silence of a node that lost its Ready condition starts here: its
		// last heartbeat may be minutes old without meaning anything.
		seen.Alive = l.Now
	}
	if ready.Absent() {
		seen.Reported = ""
	} else if seen.Ready.Absent() || !ready.Heartbeat.Equal(seen.Ready.Heartbeat) {
		seen.Alive, seen.Reported, seen.Beats = l.Now, ready.Status, l.Now
	}
	seen.Source, seen.Ready = l.Source, ready
	return l.renew(seen)
}

// first is the memory of a node nobody here has seen before. Seeing it at all
// counts as a sign of life, except that a node without Ready has been silent
// since its creation.
func (l Look) first(ready Ready) Seen {
	alive := l.Now
	if ready.Absent() {
		alive = l.Node.CreationTimestamp.Time
	}
	return Seen{Source: l.Source, Ready: ready, Alive: alive, Reported: ready.Status, Timed: l.Now}
}

// renew lets the Lease speak, where Leases are listened to.
func (l Look) renew(seen Seen) Seen {
	if l.Source != Kubelet {
		return seen
	}
	return seen.Renew(l.Lease, l.Now)
}

// overdue says that Unknown is ours to write. Only a change of Ready is worth a
// write, so a node that is Unknown already is never overdue; and an external
// node is timed only while it has no Ready, for no detector can have observed it.
func (l Look) overdue(ready Ready, seen Seen) bool {
	if l.Beside || ready.unknown() || l.Source == External && !ready.Absent() {
		return false
	}
	return l.Now.Sub(seen.Alive) > l.grace(ready)
}

func (l Look) grace(ready Ready) time.Duration {
	if ready.Absent() {
		return l.Graces.Startup
	}
	return l.Graces.Monitor
}

// written completes the plan for the case that its Unknown reaches the API
// server. Pods follow only True to Unknown: a kubelet that said False had its
// pods in hand, which is how the kubelet source has always been.
func (l Look) written(ready Ready, plan *Plan, seen *Seen) {
	seen.Ready = readyIn(plan.Unknown, ready)
	seen.Reported, seen.Tried = corev1.ConditionUnknown, nil
	if ready.Status == corev1.ConditionTrue {
		plan.Announce, plan.Since = true, seen.Ready.Since
		seen.OwesPods = true
	}
}

// react compares with the previous look and notices what somebody else wrote, or
// we did without learning of it.
func (l Look) react(ready Ready, plan *Plan, seen *Seen) {
	if !ready.Down() {
		seen.OwesPods = false
		return
	}
	plan.Since = ready.Since
	if l.Before == nil {
		l.meet(ready, plan, seen)
		return
	}
	if seen.tried(ready) {
		plan.Announce = true
		seen.OwesPods, seen.Reported, seen.Tried = true, corev1.ConditionUnknown, nil
	}
	if l.Source != External && l.Before.Source != External {
		return
	}
	if l.Source == External && l.Before.Source != External {
		l.meet(ready, plan, seen)
	}
	if l.becameUnknown(ready) {
		plan.Announce = plan.Announce || !l.Before.Ready.Absent()
		seen.OwesPods = true
	}
}

// meet handles a node that is down when it is first seen, or first seen as an
// external one: what happened before is derived from the object alone.
func (l Look) meet(ready Ready, plan *Plan, seen *Seen) {
	if l.Source == External {
		seen.OwesPods = true
	}
	plan.Announce = ready.unknown() && l.ours(ready) && l.young(ready.Since)
}

// ours says that announcing this Unknown, which nobody here saw happen, falls to
// us. Never-reporting nodes are not announced by anybody. On the kubelet source
// only a lifecycle controller's Unknown is a transition; on the external source
// every Unknown is, and beside the in-tree controller all but its own.
func (l Look) ours(ready Ready) bool {
	switch {
	case ready.Reason == ReasonNeverUpdated:
		return false
	case l.Source == Kubelet:
		return ready.byLifecycle()
	case l.Beside:
		return !ready.byLifecycle()
	}
	return true
}

// becameUnknown says that an outside write since the previous look took Ready to
// Unknown. A second Unknown with a later stamp means that a recovery in between
// was missed; one that merely gained a stamp is the same transition.
func (l Look) becameUnknown(ready Ready) bool {
	if !ready.unknown() || l.Beside && ready.byLifecycle() {
		return false
	}
	before := l.Before.Ready
	if !before.unknown() {
		return true
	}
	return !before.Since.IsZero() && !ready.Since.IsZero() && !ready.Since.Equal(before.Since)
}

// young says that a transition is recent by the API server's clock, on either
// side: a stamp far in the future would otherwise stay young for ever.
func (l Look) young(since time.Time) bool {
	if l.ServerNow.IsZero() || since.IsZero() {
		return false
	}
	return l.ServerNow.Sub(since).Abs() < YoungFor
}

// next is when silence alone can make a difference.
func (l Look) next(seen Seen) time.Duration {
	ready := seen.Ready
	if l.Beside || ready.unknown() || l.Source == External && !ready.Absent() {
		return 0
	}
	// One more nanosecond, for a silence as long as the grace is still tolerated.
	left := seen.Alive.Add(l.grace(ready)).Sub(l.Now) + time.Nanosecond
	return max(left, time.Nanosecond)
}
