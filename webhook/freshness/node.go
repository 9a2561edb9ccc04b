package freshness

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/contract"
)

// state is what the last write of a node's Ready condition comes to.
type state int

const (
	noReady     state = iota // the node has no Ready condition
	fresh                    // Ready is True or False, and somebody still says so
	stalled                  // Ready is True or False, and nobody says so any more
	unknown                  // recorded as failed
	longUnknown              // recorded as failed for as long as makes others stalled
)

// node is what is known of one node's Ready condition. The zero node has none.
type node struct {
	uid types.UID
	// reported is whether there is a Ready condition at all, status its status.
	reported bool
	status   corev1.ConditionStatus
	// heartbeat and transition are Ready's own times, by its writers' clocks.
	heartbeat, transition time.Time
	// written is when Ready was last written and writer the manager that did
	// it, from managedFields and so by the API server's clock; zero where
	// managedFields do not tell.
	written time.Time
	writer  string
	// noticed is when this process saw Ready change, by the API server's clock;
	// zero where it did not.
	noticed time.Time
}

// read returns what n says of its Ready condition: of the first one, where
// there are several, which is the one that core components read. Its writers
// are those that managedFields name.
func read(n *corev1.Node, writers []contract.ReadyWriter) node {
	out := node{uid: n.UID}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type != corev1.NodeReady {
			continue
		}
		out.reported, out.status = true, c.Status
		out.heartbeat, out.transition = contract.Instant(c.LastHeartbeatTime.Time), contract.Instant(c.LastTransitionTime.Time)
		break
	}
	for _, w := range writers {
		if !w.At.Before(out.written) {
			out.written, out.writer = w.At, w.Manager
		}
	}
	return out
}

// following is n as somebody knows it who knew the node as before and learns
// of n now. A node of the same name with another uid is another node.
func (n node) following(before node, now time.Time) node {
	if n.uid == before.uid {
		n.noticed = before.noticed
		if !n.sameReady(before) {
			n.noticed = now
		}
	}
	if n.lastWritten().IsZero() {
		n.noticed = now // nothing tells when it was: count from here
	}
	return n
}

func (n node) sameReady(m node) bool {
	return n.reported == m.reported && n.status == m.status && n.heartbeat.Equal(m.heartbeat) && n.transition.Equal(m.transition)
}

// lastWritten is when anybody last wrote Ready, as far as can be told.
// managedFields are believed alone: whatever a kubelet's clock says, the API
// server stamped them.
func (n node) lastWritten() time.Time {
	if !n.written.IsZero() {
		return n.written
	}
	return latest(n.heartbeat, n.transition, n.noticed)
}

// at is the state of n at now, where a write counts as the last word for as
// long as stalledAfter.
func (n node) at(now time.Time, stalledAfter time.Duration) state {
	switch {
	case !n.reported:
		return noReady
	case n.status == corev1.ConditionTrue || n.status == corev1.ConditionFalse:
		if now.Sub(n.lastWritten()) > stalledAfter {
			return stalled
		}
		return fresh
	case now.Sub(n.unknownSince()) > stalledAfter:
		return longUnknown
	default:
		return unknown
	}
}

// unknownSince is when a node that is Unknown became so. Somebody who goes on
// writing to it, a new message say, does not make that younger.
func (n node) unknownSince() time.Time {
	if n.transition.IsZero() {
		return n.lastWritten()
	}
	return earliest(n.transition, n.lastWritten())
}

// age is for how long nobody has written Ready. A writer whose clock is ahead
// has written just now.
func (n node) age(now time.Time) time.Duration {
	return max(0, now.Sub(n.lastWritten()))
}

func latest(times ...time.Time) time.Time {
	var l time.Time
	for _, t := range times {
		if t.After(l) {
			l = t
		}
	}
	return l
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
