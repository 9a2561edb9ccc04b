package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func nodeAt(version string, uid types.UID, status corev1.ConditionStatus, since time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version, CreationTimestamp: metav1.NewTime(noon)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(since),
		}}},
	}
}

func lookAt(n *corev1.Node, source lifecycle.Source, now time.Time) lifecycle.Look {
	return lifecycle.Look{Node: n, Source: source, Now: now, ServerNow: now, Graces: DefaultOptions().graces()}
}

func TestALookIsNotRememberedUntilWhatItCallsForIsWritten(t *testing.T) {
	m := newMemory()
	up := nodeAt("1", "u", corev1.ConditionTrue, noon)
	m.decide(lookAt(up, lifecycle.Kubelet, noon))
	late := noon.Add(time.Hour)
	plan, after := m.decide(lookAt(up, lifecycle.Kubelet, late))
	if len(plan.Unknown) == 0 || !plan.MarkPods {
		t.Fatalf("a silent node is not given up: %+v", plan)
	}
	if d := m.debt("a"); !d.none() {
		t.Errorf("owes %+v although nothing has been written", d)
	}
	m.gaveUp(nodeAt("2", "u", corev1.ConditionUnknown, late), plan, after)
	if d := m.debt("a"); !d.pods || !slices.Equal(d.announce, []time.Time{late}) {
		t.Errorf("owes %+v after the write", d)
	}
}

func TestOurOwnWriteIsSeenBeforeTheCacheHasIt(t *testing.T) {
	m := newMemory()
	old := nodeAt("9", "u", corev1.ConditionTrue, noon)
	m.decide(lookAt(old, lifecycle.Kubelet, noon))
	written := nodeAt("10", "u", corev1.ConditionUnknown, noon)
	m.wrote(written)
	if got := m.newest(old); got != written {
		t.Error("the cache's older node is preferred")
	}
	newer := nodeAt("11", "u", corev1.ConditionTrue, noon)
	if got := m.newest(newer); got != newer {
		t.Error("our older write is preferred")
	}
	m.wrote(written)
	again := nodeAt("9", "other", corev1.ConditionTrue, noon)
	if got := m.newest(again); got != again {
		t.Error("a node of the same name got the write of its predecessor")
	}
}

func TestMarkingForOneTransitionDoesNotPayForTheNext(t *testing.T) {
	m := newMemory()
	m.decide(lookAt(nodeAt("1", "u", corev1.ConditionTrue, noon), lifecycle.External, noon))
	m.decide(lookAt(nodeAt("2", "u", corev1.ConditionUnknown, noon.Add(time.Second)), lifecycle.External, noon))
	first := m.debt("a")
	m.decide(lookAt(nodeAt("3", "u", corev1.ConditionTrue, noon.Add(2*time.Second)), lifecycle.External, noon))
	m.decide(lookAt(nodeAt("4", "u", corev1.ConditionUnknown, noon.Add(3*time.Second)), lifecycle.External, noon))
	m.podsMarked("a", first)
	if d := m.debt("a"); !d.pods || len(d.announce) != 2 {
		t.Errorf("owes %+v; the second outage is not paid for", d)
	}
	m.podsMarked("a", m.debt("a"))
	if m.debt("a").pods {
		t.Error("still owes pods")
	}
}

func TestWhenArrivalsMayHaveBeenMissedOnlyUnknownCostsAllPods(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: false, corev1.ConditionFalse: false, corev1.ConditionUnknown: true} {
		m := newMemory()
		m.decide(lookAt(nodeAt("1", "u", corev1.ConditionTrue, noon), lifecycle.External, noon))
		m.decide(lookAt(nodeAt("2", "u", status, noon.Add(time.Second)), lifecycle.External, noon))
		m.podsMarked("a", m.debt("a"))
		if names := m.reload(); (len(names) == 1) != want || m.debt("a").pods != want {
			t.Errorf("%s: the pods of %v are due again, owed: %v", status, names, m.debt("a").pods)
		}
	}
}

func TestAPassFindsWhatWasMissed(t *testing.T) {
	m := newMemory()
	looked := *nodeAt("1", "u", corev1.ConditionTrue, noon)
	m.decide(lookAt(&looked, lifecycle.Kubelet, noon))
	changed, recreated, fresh := looked, looked, looked
	changed.ResourceVersion = "2"
	recreated.UID = "other"
	fresh.Name = "b"
	cases := map[string]struct {
		nodes []corev1.Node
		now   time.Duration
		want  []string
	}{
		"nothing":             {[]corev1.Node{looked}, 0, nil},
		"a change":            {[]corev1.Node{changed}, 0, []string{"a"}},
		"a recreation":        {[]corev1.Node{recreated}, 0, []string{"a"}},
		"a new node":          {[]corev1.Node{looked, fresh}, 0, []string{"b"}},
		"a deletion":          {nil, 0, []string{"a"}},
		"a deadline":          {[]corev1.Node{looked}, 50*time.Second + 6*time.Second, []string{"a"}},
		"no deadline so soon": {[]corev1.Node{looked}, 50*time.Second + 4*time.Second, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := m.missed(c.nodes, noon.Add(c.now), 5*time.Second); !slices.Equal(got, c.want) {
				t.Errorf("missed %v, want %v", got, c.want)
			}
		})
	}
}
