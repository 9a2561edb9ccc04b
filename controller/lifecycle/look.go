package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Source says whose word on a node's liveness counts. The value is public: it
// is what --node-liveness-source takes and node_collector_liveness_source
// carries.
type Source string

const (
	// Kubelet means that this controller times the kubelet's own signals.
	Kubelet Source = "kubelet"
	// External means that somebody outside the core writes Ready=Unknown
	// (KEP-6371).
	External Source = "external"
)

// Reasons with which a lifecycle controller, and nobody else, writes Unknown.
const (
	ReasonUnknown      = "NodeStatusUnknown"
	ReasonNeverUpdated = "NodeStatusNeverUpdated"
)

// YoungFor is how long after a transition a controller that did not see it
// happen still announces it. It is well below the hour for which an API server
// keeps events, so that an event once written is still there to be found.
const YoungFor = 15 * time.Minute

// Graces are the two silences that are tolerated.
type Graces struct {
	// Monitor is for a node whose kubelet has posted Ready.
	Monitor time.Duration
	// Startup is for a node that has no Ready condition.
	Startup time.Duration
}

// Look is everything a decision may depend on.
type Look struct {
	// Node is the object as cached. Of its status only conditions are read.
	Node *corev1.Node
	// Lease is the node's Lease, nil when there is none. External nodes are
	// decided without it.
	Lease *Lease
	// Before is what the previous look in this process left, nil on the first.
	Before *Seen
	// Source is whose word counts for this node, now.
	Source Source
	// Beside limits the plan to what the in-tree controller leaves undone.
	Beside bool
	// Now is this process's clock. Only intervals of it are used.
	Now time.Time
	// ServerNow is the API server's clock, zero while unknown. It is compared
	// with the stamps of transitions nobody here saw.
	ServerNow time.Time
	// Graces are the tolerated silences.
	Graces Graces
}

// Lease is the part of a node's Lease that says something about liveness.
type Lease struct {
	// Version is its resourceVersion. It orders what a cache and a live read say.
	Version string
	// Renewed is spec.renewTime, zero when unset.
	Renewed time.Time
}

// Ready is a node's Ready condition, or its absence.
type Ready struct {
	// Status is empty when the node has no Ready condition.
	Status corev1.ConditionStatus
	// Since is lastTransitionTime, zero when unset.
	Since time.Time
	// Heartbeat is lastHeartbeatTime, zero when unset.
	Heartbeat time.Time
	// Reason is the condition's reason.
	Reason string
}

// ReadyOf reads the first Ready condition, the one core components read.
func ReadyOf(n *corev1.Node) Ready {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return Ready{Status: c.Status, Since: c.LastTransitionTime.Time, Heartbeat: c.LastHeartbeatTime.Time, Reason: c.Reason}
		}
	}
	return Ready{}
}

// Absent says that there is no Ready condition, which is not the same as
// Unknown: such a node is never tainted for it and its pods are left alone.
func (r Ready) Absent() bool { return r.Status == "" }

// Down says that there is a Ready condition and it is not True.
func (r Ready) Down() bool {
	return r.Status != "" && r.Status != corev1.ConditionTrue
}

// unknown says that Ready is Unknown. A status nobody defined is treated as
// neither True, False nor Unknown.
func (r Ready) unknown() bool { return r.Status == corev1.ConditionUnknown }

// byLifecycle says that a lifecycle controller wrote this Unknown.
func (r Ready) byLifecycle() bool {
	return r.Reason == ReasonUnknown || r.Reason == ReasonNeverUpdated
}
