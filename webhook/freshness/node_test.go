package freshness

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/nodes"
)

func known(b built) node { return read(b.Node, contract.ReadyWriters(b.ManagedFields)) }

func TestANodeIsStalledWhenNobodyHasWrittenReadyForThreePeriods(t *testing.T) {
	zero := time.Time{}
	for name, c := range map[string]struct {
		node built
		want state
		age  time.Duration
	}{
		"B31 n1: last heartbeat 20 min ago, still True": {heard("n1", at(-20)), stalled, 20 * time.Minute},
		"B31 n2: fresh": {heard("n2", at(-4)), fresh, 4 * time.Minute},
		"B31 n3: Unknown for 3 h, correctly written":      {heard("n3", at(-181)).recorded("Unknown", at(-180)), longUnknown, 180 * time.Minute},
		"False is a claim as well, and can stall":         {heard("n", at(-20)).recorded("False", at(-30)), stalled, 20 * time.Minute},
		"Unknown of late":                                 {heard("n", at(-16)).recorded("Unknown", at(-14)), unknown, 14 * time.Minute},
		"no Ready condition":                              {unreported("n"), noReady, 0},
		"exactly three periods are still fresh":           {heard("n", at(-15)), fresh, 15 * time.Minute},
		"a second more is stalled":                        {heard("n", at(-15).Add(-time.Second)), stalled, 15*time.Minute + time.Second},
		"a transition counts as a write":                  {heard("n", at(-20)).recorded("False", at(-1)), fresh, time.Minute},
		"no times at all, counted from the first sight":   {heard("n", zero).dated(zero, zero), fresh, 0},
		"a status nobody knows is not vouched for either": {heard("n", at(-60)).recorded("Perhaps", at(-20)), longUnknown, 20 * time.Minute},

		"managedFields: the kubelet wrote 20 min ago":              {heard("n", at(-20)).by("kubelet", at(-20)), stalled, 20 * time.Minute},
		"managedFields: the kubelet's clock is 20 min behind":      {heard("n", at(-21)).by("kubelet", at(-1)), fresh, time.Minute},
		"managedFields: its clock is 20 min ahead, and it died":    {heard("n", at(1)).by("kubelet", at(-19)), stalled, 19 * time.Minute},
		"managedFields: a detector wrote after the kubelet":        {heard("n", at(-20)).by("detector", at(-2)).by("kubelet", at(-20)), fresh, 2 * time.Minute},
		"managedFields: Unknown for long by a detector ahead":      {heard("n", at(-60)).recorded("Unknown", at(60)).by("d", at(-40)), longUnknown, 40 * time.Minute},
		"managedFields: Unknown for long, reworded of late":        {heard("n", at(-60)).recorded("Unknown", at(-40)).by("d", at(-1)), longUnknown, time.Minute},
		"managedFields: Unknown without a transition time":         {heard("n", at(-60)).recorded("Unknown", zero).by("d", at(-14)), unknown, 14 * time.Minute},
		"stripped: a kubelet 20 min ahead died 19 min ago":         {heard("n", at(1)), fresh, 0},
		"stripped: a kubelet 20 min behind, not yet seen to write": {heard("n", at(-21)), stalled, 21 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			n := known(c.node).following(node{}, noon)
			if got := n.at(noon, 15*time.Minute); got != c.want {
				t.Errorf("state %d, want %d", got, c.want)
			}
			if got := n.age(noon); n.reported && got != c.age {
				t.Errorf("age %s, want %s", got, c.age)
			}
		})
	}
}

func TestTheFirstReadyEntryIsTheOneThatCounts(t *testing.T) {
	n := heard("n", at(-20))
	second := *nodes.Ready(n.Node)
	second.Status, second.LastHeartbeatTime.Time = corev1.ConditionUnknown, noon
	n.Status.Conditions = append(n.Status.Conditions, second)
	if got := known(n).at(noon, 15*time.Minute); got != stalled {
		t.Errorf("state %d, want stalled", got)
	}
}

func TestTheLastWriterIsTheYoungestEntry(t *testing.T) {
	for name, c := range map[string]struct {
		node built
		want string
	}{
		"nobody known":             {heard("n", noon), ""},
		"the kubelet":              {heard("n", noon).by("kubelet", noon), "kubelet"},
		"a detector after it":      {heard("n", noon).by("detector", at(1)).by("kubelet", noon), "detector"},
		"the later in the list":    {heard("n", noon).by("a", noon).by("b", noon), "b"},
		"an entry of no use":       {heard("n", noon).by("kubelet", noon).by("x", time.Time{}), "kubelet"},
		"of the second, truncated": {heard("n", noon).by("a", noon.Add(900*time.Millisecond)).by("b", noon), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := known(c.node).writer; got != c.want {
				t.Errorf("last writer %q, want %q", got, c.want)
			}
		})
	}
}

func TestTrimmingKeepsAllThatIsRead(t *testing.T) {
	second := heard("n", noon).by("kubelet", noon)
	second.Status.Conditions = append(second.Status.Conditions, *nodes.Ready(second.Node))
	nodes.Ready(second.Node).Status = "False"
	for name, b := range map[string]built{
		"a reporting node":    heard("n", at(-3)).by("kubelet", at(-2)).by("detector", at(-40)),
		"no managedFields":    heard("n", at(-3)),
		"no Ready":            unreported("n").by("kubelet", noon),
		"two Ready entries":   second,
		"nothing but a name":  {&corev1.Node{}},
		"recorded as Unknown": heard("n", at(-3)).recorded("Unknown", at(-1)).by("d", at(-1)),
	} {
		t.Run(name, func(t *testing.T) {
			slim := built{trim(b.Node)}
			if got, want := known(slim), known(b); !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
			if r := nodes.Ready(slim.Node); r != nil && r.Reason+r.Message != "" {
				t.Errorf("it keeps %q and %q", r.Reason, r.Message)
			}
			if slim.Name != b.Name || slim.ResourceVersion != b.ResourceVersion {
				t.Errorf("name and version %s %s", slim.Name, slim.ResourceVersion)
			}
		})
	}
}
