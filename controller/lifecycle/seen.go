package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Seen is what one look leaves behind for the next. Whoever keeps it keys it by
// the node's UID, so that a node recreated under its name inherits nothing.
type Seen struct {
	// Source is whose word counted at that look.
	Source Source
	// Ready is the condition as of that look, our own write included.
	Ready Ready
	// Alive is when the node last gave a sign of life, on the local clock.
	Alive time.Time
	// Renewed is the renewTime last taken for a sign of life.
	Renewed time.Time
	// Leased says that a Lease has been seen at all, LeaseVersion the newest
	// resourceVersion of it.
	Leased       bool
	LeaseVersion string
	// Reported is the Ready status at the last heartbeat, or as we wrote it.
	// On the kubelet source it, and not Ready, decides about arriving pods.
	Reported corev1.ConditionStatus
	// Beats is when a heartbeat last moved while we watched, on the local
	// clock; zero before the first.
	Beats time.Time
	// Timed is since when the source has been listened to, or the last renewal
	// of the Lease if that came later, on the local clock.
	Timed time.Time
	// Tried are the transition times of the latest attempts to give the node up,
	// from True, that nobody said succeeded: a write can be done and its answer
	// be lost.
	Tried []time.Time
	// OwesPods says that pods of the node are still to be marked NotReady.
	OwesPods bool
}

// Renew takes a Lease that just arrived into account. Any change of renewTime is
// a renewal, a step backwards too: clocks differ, but a value that moved was
// moved by somebody alive. No renewTime counts only as the first Lease. A Lease
// older than one already seen says nothing, or a cache that lags behind a live
// read would keep a dead node alive.
func (s Seen) Renew(l *Lease, now time.Time) Seen {
	if l == nil || s.Leased && older(l.Version, s.LeaseVersion) {
		return s
	}
	known := s.Leased && (l.Renewed.IsZero() || l.Renewed.Equal(s.Renewed))
	s.Leased, s.LeaseVersion = true, l.Version
	if known {
		return s
	}
	s.Renewed, s.Alive, s.Timed = l.Renewed, now, now
	return s
}

func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// Pardon restarts the node's grace, as leaving full disruption does for every
// node: the silence was the control plane's.
func (s Seen) Pardon(now time.Time) Seen {
	s.Alive = now
	return s
}

// tries is how many attempts are remembered. The first that is answered after one
// that was done tells of it.
const tries = 8

// Try records that the node is about to be given up by the transition at since.
func (s Seen) Try(since time.Time) Seen {
	if slices.ContainsFunc(s.Tried, since.Equal) {
		return s
	}
	s.Tried = append(slices.Clone(s.Tried[max(0, len(s.Tried)+1-tries):]), since)
	return s
}

// tried says that this Unknown is an attempt of ours.
func (s Seen) tried(r Ready) bool {
	return r.unknown() && r.Reason == ReasonUnknown && slices.ContainsFunc(s.Tried, r.Since.Equal)
}

// PodsMarked records that no pod is left to mark.
func (s Seen) PodsMarked() Seen {
	s.OwesPods = false
	return s
}

// Unleased says that the node is on the kubelet source, posts its status and
// renews no Lease: the combination in which live nodes flap (KEP-6371, Version
// Skew Strategy). quiet is how long a renewal may be missing before a heartbeat
// gives it away.
func (s Seen) Unleased(quiet time.Duration) bool {
	return s.Source == Kubelet && s.Beats.Sub(s.Timed) > quiet
}

// MarksArrivals says whether a pod that was just bound to the node loses its
// readiness at once. current is the Ready condition the caller sees now: a node
// that has recovered is never held against its new pods.
func (s Seen) MarksArrivals(current Ready) bool {
	if !current.Down() {
		return false
	}
	if s.Source == External {
		return true
	}
	return s.Reported == corev1.ConditionFalse || s.Reported == corev1.ConditionUnknown
}
