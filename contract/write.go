package contract

import (
	"slices"
	"time"
)

// Verb is how a Node is written.
type Verb string

const (
	// Update is any write to nodes/status of a Node that exists: PUT, every
	// kind of PATCH, server-side apply.
	Update Verb = "UPDATE"
	// Create is the creation of a Node.
	Create Verb = "CREATE"
)

// Write is one write to a Node, reduced to what the rules look at.
type Write struct {
	Verb Verb
	// Node is the name of the Node.
	Node string
	User User

	// Before and After are the conditions of the Node as stored and as they
	// would be. Before is empty on Create.
	Before, After []Condition
	// Touched is what the write does to the metadata; nothing on Create.
	Touched Touched
	// Labels are the Node's labels: before the write on Update, the new ones on
	// Create. Read only where Policy.NeedsLabels.
	Labels map[string]string

	// Spoke is the API server's time of the kubelet's last word: of the newest
	// status entry in Before's managedFields that owns Ready's
	// lastHeartbeatTime. Zero where there is none, as on Create.
	Spoke time.Time
	// Now is the API server's time of this write: of the newest status entry in
	// After's managedFields that owns any field of Ready. Zero where there is none.
	Now time.Time
}

// Condition is one entry of a Node's status.conditions. Instants are in UTC
// and in whole seconds; the zero time stands for absent and for null.
type Condition struct {
	Type, Status, Reason, Message string
	Heartbeat, Transition         time.Time
}

// same says whether c and d are equal in every field.
func (c Condition) same(d Condition) bool {
	return c.Type == d.Type && c.Status == d.Status && c.Reason == d.Reason && c.Message == d.Message &&
		c.Heartbeat.Equal(d.Heartbeat) && c.Transition.Equal(d.Transition)
}

// Touched says which metadata a write to nodes/status changes beside the status.
type Touched struct {
	Labels, Annotations, OwnerReferences, Finalizers bool
}

// names returns what is touched, as field paths.
func (t Touched) names() []string {
	var names []string
	for _, f := range []struct {
		touched bool
		path    string
	}{
		{t.Labels, "metadata.labels"}, {t.Annotations, "metadata.annotations"},
		{t.OwnerReferences, "metadata.ownerReferences"}, {t.Finalizers, "metadata.finalizers"},
	} {
		if f.touched {
			names = append(names, f.path)
		}
	}
	return names
}

const (
	typeReady     = "Ready"
	statusTrue    = "True"
	statusUnknown = "Unknown"
)

// ready returns the first Ready entry, which is the one core components read.
func ready(conditions []Condition) (Condition, bool) {
	for i := range conditions {
		if conditions[i].Type == typeReady {
			return conditions[i], true
		}
	}
	return Condition{}, false
}

func count(conditions []Condition, typ string) int {
	n := 0
	for i := range conditions {
		if conditions[i].Type == typ {
			n++
		}
	}
	return n
}

// entriesEqual says whether a and b hold the same entries of one type, in the
// same order.
func entriesEqual(a, b []Condition, typ string) bool {
	j := 0
	for i := range a {
		if a[i].Type != typ {
			continue
		}
		for j < len(b) && b[j].Type != typ {
			j++
		}
		if j == len(b) || !a[i].same(b[j]) {
			return false
		}
		j++
	}
	return !hasType(b[j:], typ)
}

func hasType(conditions []Condition, typ string) bool {
	return slices.ContainsFunc(conditions, func(c Condition) bool { return c.Type == typ })
}

// MaxReady bounds the Ready entries that are looked into. A Node with more,
// before or after, counts as changed by every write, and then the rules on the
// entry itself say nothing: ReadyDuplicated says it all. It keeps every
// enforcer's work short.
const MaxReady = 64

// changesReady says whether the Ready entries differ in any field, or are too
// many to tell.
func (w Write) changesReady() bool {
	return w.crowded() || !entriesEqual(w.Before, w.After, typeReady)
}

// crowded says whether there are too many Ready entries to look into.
func (w Write) crowded() bool {
	return count(w.Before, typeReady) > MaxReady || count(w.After, typeReady) > MaxReady
}

// InScope says whether w is a write that the rules of p may have a say in,
// whoever sent it: it changes Ready, or, where detectors are listed, it changes
// the labels that decide which detector may write.
func (p *Policy) InScope(w Write) bool {
	return w.changesReady() || p.guardsLabels(w)
}

func (p *Policy) guardsLabels(w Write) bool {
	return w.Verb == Update && w.Touched.Labels && p.NeedsLabels()
}
