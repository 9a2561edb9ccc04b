package contract

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func managed(subresource, fields string, when time.Time) metav1.ManagedFieldsEntry {
	t := metav1.NewTime(when)
	f := &metav1.FieldsV1{}
	f.SetRawString(fields)
	return metav1.ManagedFieldsEntry{Manager: "m", Subresource: subresource, Time: &t, FieldsV1: f}
}

const (
	ownsHeartbeat = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},"f:status":{}}}}}`
	ownsReason    = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:reason":{}}}}}`
	ownsOther     = `{"f:status":{"f:conditions":{"k:{\"type\":\"DiskPressure\"}":{"f:lastHeartbeatTime":{}}}}}`
)

func TestReadyTimesReadTheAPIServersClock(t *testing.T) {
	for name, c := range map[string]struct {
		managed        []metav1.ManagedFieldsEntry
		heartbeat, any time.Time
	}{
		"no entries": {},
		"the kubelet's": {
			[]metav1.ManagedFieldsEntry{managed("status", ownsHeartbeat, noon)}, noon, noon},
		"a detector after the kubelet": {
			[]metav1.ManagedFieldsEntry{managed("status", ownsReason, at(40)), managed("status", ownsHeartbeat, noon)}, noon, at(40)},
		"the newest of two owners": {
			[]metav1.ManagedFieldsEntry{managed("status", ownsHeartbeat, at(5)), managed("status", ownsHeartbeat, noon)}, at(5), at(5)},
		"entries of the main resource do not count": {
			[]metav1.ManagedFieldsEntry{managed("", ownsHeartbeat, noon)}, time.Time{}, time.Time{}},
		"owners of other conditions do not count": {
			[]metav1.ManagedFieldsEntry{managed("status", ownsOther, noon)}, time.Time{}, time.Time{}},
		"fields that are no object do not count": {
			[]metav1.ManagedFieldsEntry{managed("status", `{"f:status":null}`, noon), managed("status", `[`, noon), managed("status", ``, noon)}, time.Time{}, time.Time{}},
		"an entry without time or fields does not count": {
			[]metav1.ManagedFieldsEntry{{Subresource: "status"}, {Subresource: "status", Time: &metav1.Time{Time: noon}}}, time.Time{}, time.Time{}},
		"fractions of a second are cut off": {
			[]metav1.ManagedFieldsEntry{managed("status", ownsHeartbeat, noon.Add(900*time.Millisecond))}, noon, noon},
	} {
		t.Run(name, func(t *testing.T) {
			if heartbeat, any := ReadyTimes(c.managed); !heartbeat.Equal(c.heartbeat) || !any.Equal(c.any) {
				t.Errorf("got %s and %s, want %s and %s", heartbeat, any, c.heartbeat, c.any)
			}
		})
	}
}

func TestReadyWritersNameTheOwnersOfReadyInTheirOrder(t *testing.T) {
	by := func(manager string, m metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		m.Manager = manager
		return m
	}
	got := ReadyWriters([]metav1.ManagedFieldsEntry{
		by("detector", managed("status", ownsReason, at(40))), by("npd", managed("status", ownsOther, at(50))),
		by("kubelet", managed("status", ownsHeartbeat, noon)), by("admin", managed("", ownsHeartbeat, at(60))),
	})
	want := []ReadyWriter{{Manager: "detector", At: at(40)}, {Manager: "kubelet", At: noon, Beats: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestBetweenTakesWhatTheRulesLookAt(t *testing.T) {
	node := func(status corev1.ConditionStatus, fields string, when time.Time) *corev1.Node {
		n := &corev1.Node{}
		n.Name = "n1"
		n.Labels = map[string]string{"pool": "a"}
		n.ManagedFields = []metav1.ManagedFieldsEntry{managed("status", fields, when)}
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: "Ready", Status: status, Reason: "R", Message: "m",
			LastHeartbeatTime:  metav1.NewTime(noon.In(time.FixedZone("", 3600)).Add(time.Millisecond)),
			LastTransitionTime: metav1.Time{},
		}}
		return n
	}
	before, after := node("True", ownsHeartbeat, noon), node("Unknown", ownsReason, at(40))
	after.Labels = map[string]string{"pool": "b"}
	after.Annotations = map[string]string{}
	after.Finalizers = []string{"x"}
	c := Condition{Type: "Ready", Status: "True", Reason: "R", Message: "m", Heartbeat: noon}
	d := c
	d.Status = "Unknown"
	want := Write{
		Verb: Update, Node: "n1", User: detector, Before: []Condition{c}, After: []Condition{d},
		Touched: Touched{Labels: true, Finalizers: true}, Labels: before.Labels, Spoke: noon, Now: at(40),
	}
	if got := Between(before, after, detector); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	want = Write{Verb: Create, Node: "n1", User: detector, After: []Condition{d}, Labels: after.Labels, Now: at(40)}
	if got := Between(nil, after, detector); !reflect.DeepEqual(got, want) {
		t.Errorf("creation:\n got %+v\nwant %+v", got, want)
	}
}
