package contract

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Between is the write by u that turns before into after; with no before, the
// creation of after. Both carry the managedFields that an admission review
// carries: after's already contain this write's own entry.
func Between(before, after *corev1.Node, u User) Write {
	w := Write{Verb: Create, Node: after.Name, User: u, After: conditions(after), Labels: after.Labels}
	_, w.Now = ReadyTimes(after.ManagedFields)
	if before == nil {
		return w
	}
	w.Verb, w.Before, w.Labels = Update, conditions(before), before.Labels
	w.Spoke, _ = ReadyTimes(before.ManagedFields)
	w.Touched = Touched{
		Labels:          !equality.Semantic.DeepEqual(before.Labels, after.Labels),
		Annotations:     !equality.Semantic.DeepEqual(before.Annotations, after.Annotations),
		OwnerReferences: !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences),
		Finalizers:      !equality.Semantic.DeepEqual(before.Finalizers, after.Finalizers),
	}
	return w
}

func conditions(n *corev1.Node) []Condition {
	out := make([]Condition, len(n.Status.Conditions))
	for i, c := range n.Status.Conditions {
		out[i] = Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			Heartbeat: Instant(c.LastHeartbeatTime.Time), Transition: Instant(c.LastTransitionTime.Time),
		}
	}
	return out
}

// Instant is t as the rules compare it: in UTC, in whole seconds.
func Instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// MaxManaged bounds the managedFields entries that are looked through. API
// servers merge what updates leave behind, but not what applies do, and clients
// may write entries of their own. The bound is that of CEL, a hundred times what
// a busy node has; of more than that no time is read.
const MaxManaged = 1_000

// ReadyTimes reads from managedFields when Ready was written, by the API
// server's clock: the newest status entry that owns its lastHeartbeatTime, and
// the newest one that owns any field of it. Zero where there is none, and where
// there are more than MaxManaged entries.
func ReadyTimes(managed []metav1.ManagedFieldsEntry) (heartbeat, any time.Time) {
	if len(managed) > MaxManaged {
		return heartbeat, any
	}
	for _, w := range ReadyWriters(managed) {
		if w.At.After(any) {
			any = w.At
		}
		if w.Beats && w.At.After(heartbeat) {
			heartbeat = w.At
		}
	}
	return heartbeat, any
}

// ReadyWriter is a writer that managedFields still name as the owner of fields
// of Ready. Another writer that sets all of these fields takes its place.
type ReadyWriter struct {
	// Manager is the name that the writer's client chose for itself.
	Manager string
	// At is the API server's time of its last write that changed anything.
	At time.Time
	// Beats says whether it owns Ready's lastHeartbeatTime.
	Beats bool
}

// ReadyWriters reads from managedFields the status entries that own fields of
// Ready, in their order.
func ReadyWriters(managed []metav1.ManagedFieldsEntry) []ReadyWriter {
	var writers []ReadyWriter
	for i := range managed {
		m := &managed[i]
		if m.Subresource != "status" || m.Time == nil {
			continue
		}
		owned, ok := readyFields(m.FieldsV1)
		if !ok {
			continue
		}
		_, beats := owned["f:lastHeartbeatTime"]
		writers = append(writers, ReadyWriter{Manager: m.Manager, At: Instant(m.Time.Time), Beats: beats})
	}
	return writers
}

// readyFields returns the fields of Ready that a managedFields entry owns.
func readyFields(f *metav1.FieldsV1) (map[string]json.RawMessage, bool) {
	if f == nil {
		return nil, false
	}
	level := map[string]json.RawMessage{}
	next := f.GetRawBytes()
	for _, key := range []string{"f:status", "f:conditions", `k:{"type":"Ready"}`} {
		level = map[string]json.RawMessage{}
		if json.Unmarshal(next, &level) != nil {
			return nil, false
		}
		var ok bool
		if next, ok = level[key]; !ok {
			return nil, false
		}
	}
	owned := map[string]json.RawMessage{}
	return owned, json.Unmarshal(next, &owned) == nil && owned != nil
}
