package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verdict is what a plan comes to.
type verdict struct{ unknown, announce, pods bool }

func verdictOf(p Plan) verdict {
	return verdict{unknown: len(p.Unknown) > 0, announce: p.Announce, pods: p.MarkPods}
}

// seen is the memory of a look at noon.
func seenReady(source Source, status corev1.ConditionStatus) *Seen {
	return &Seen{Source: source, Alive: noon, Timed: noon, Reported: status, Ready: Ready{Status: status, Since: noon, Heartbeat: noon, Reason: "Some"}}
}

func TestExternalMode(t *testing.T) {
	later := since(noon.Add(30 * time.Second))
	cases := map[string]struct {
		node   node
		before *Seen
		now    time.Duration
		want   verdict
	}{
		"a node that stops heartbeating is not marked Unknown": {
			node: named("a").ready(isTrue), before: seenReady(External, isTrue), now: 24 * time.Hour},
		"True to Unknown marks the pods and is announced": {
			node: named("a").ready(isUnknown, later), before: seenReady(External, isTrue), want: verdict{announce: true, pods: true}},
		"False to Unknown marks the pods and is announced": {
			node: named("a").ready(isUnknown, later), before: seenReady(External, isFalse), want: verdict{announce: true, pods: true}},
		"it does not matter whether the heartbeat changed": {
			node: named("a").ready(isUnknown, later, beat(noon.Add(time.Second))), before: seenReady(External, isTrue), want: verdict{announce: true, pods: true}},
		"nor whether the transition time did": {
			node: named("a").ready(isUnknown), before: seenReady(External, isTrue), want: verdict{announce: true, pods: true}},
		"nor what the reason says": {
			node: named("a").ready(isUnknown, later, reason(ReasonUnknown)), before: seenReady(External, isTrue), want: verdict{announce: true, pods: true}},
		"True to False is the kubelet's own affair": {
			node: named("a").ready(isFalse, later), before: seenReady(External, isTrue)},
		"Unknown to False is nothing new": {
			node: named("a").ready(isFalse, later), before: seenReady(External, isUnknown)},
		"recovery asks for nothing": {
			node: named("a").ready(isTrue, later), before: seenReady(External, isUnknown)},
		"staying Unknown asks for nothing": {
			node: named("a").ready(isUnknown), before: seenReady(External, isUnknown)},
		"a new reason alone asks for nothing": {
			node: named("a").ready(isUnknown, reason("Other")), before: seenReady(External, isUnknown)},
		"Unknown with a later stamp is another transition": {
			node: named("a").ready(isUnknown, later), before: seenReady(External, isUnknown), want: verdict{announce: true, pods: true}},
		"a transition time that was missing is filled in without a transition": {
			node: named("a").ready(isUnknown, later), before: &Seen{Source: External, Ready: Ready{Status: isUnknown, Heartbeat: noon}}},
		"no Ready to Unknown marks the pods and is not announced": {
			node: named("a").ready(isUnknown, later), before: seenReady(External, ""), want: verdict{pods: true}},
		"after a restart the pods of an Unknown node are marked": {
			node: named("a").ready(isUnknown), now: time.Hour, want: verdict{pods: true}},
		"after a restart the pods of a False node are marked, without an event": {
			node: named("a").ready(isFalse), want: verdict{pods: true}},
		"after a restart a transition younger than 15 minutes is announced": {
			node: named("a").ready(isUnknown), now: 15*time.Minute - time.Second, want: verdict{announce: true, pods: true}},
		"after a restart an older one is not": {
			node: named("a").ready(isUnknown), now: 15 * time.Minute, want: verdict{pods: true}},
		"nor one stamped far in the future": {
			node: named("a").ready(isUnknown, since(noon.Add(time.Hour))), want: verdict{pods: true}},
		"after a restart a node that never reported is not announced": {
			node: named("a").ready(isUnknown, reason(ReasonNeverUpdated)), want: verdict{pods: true}},
		"after a restart a Ready node asks for nothing": {
			node: named("a").ready(isTrue)},
		"a node without Ready is left alone for the startup grace": {
			node: named("a"), now: 60 * time.Second},
		"a node without Ready is marked Unknown after the startup grace, its pods and the event spared": {
			node: named("a"), before: seenReady(External, ""), now: 60*time.Second + 1, want: verdict{unknown: true}},
		"a node that lost its Ready starts a new grace": {
			node: named("a"), before: seenReady(External, isTrue), now: time.Hour},
		"pods that could not be marked are tried again": {
			node: named("a").ready(isUnknown), before: &Seen{Source: External, OwesPods: true, Ready: Ready{Status: isUnknown, Since: noon, Heartbeat: noon}}, want: verdict{pods: true}},
		"pods still to be marked are tried again when Unknown became False": {
			node: named("a").ready(isFalse, later), before: &Seen{Source: External, OwesPods: true, Ready: Ready{Status: isUnknown, Since: noon, Heartbeat: noon}}, want: verdict{pods: true}},
		"recovery cancels what is still to be marked": {
			node: named("a").ready(isTrue, later), before: &Seen{Source: External, OwesPods: true, Ready: Ready{Status: isUnknown, Since: noon, Heartbeat: noon}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(c.now)
			plan, _ := Decide(Look{Node: c.node.Node, Before: c.before, Source: External, Now: now, ServerNow: now, Graces: graces})
			if got := verdictOf(plan); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// tried is the memory of a Ready node that was to be given up at these times.
func tried(at ...time.Time) *Seen {
	s := *seenReady(Kubelet, isTrue)
	for _, t := range at {
		s = s.Try(t)
	}
	return &s
}

func TestKubeletMode(t *testing.T) {
	dead := 50*time.Second + 1
	cases := map[string]struct {
		node   node
		before *Seen
		lease  *Lease
		now    time.Duration
		want   verdict
	}{
		"silence as long as the grace is tolerated": {
			node: named("a").ready(isTrue), before: seenReady(Kubelet, isTrue), now: 50 * time.Second},
		"silence longer than the grace is written down, announced, and costs the pods": {
			node: named("a").ready(isTrue), before: seenReady(Kubelet, isTrue), now: dead, want: verdict{true, true, true}},
		"False to Unknown is written and nothing else": {
			node: named("a").ready(isFalse), before: seenReady(Kubelet, isFalse), now: dead, want: verdict{unknown: true}},
		"an Unknown somebody else wrote is nothing to us": {
			node: named("a").ready(isUnknown), before: seenReady(Kubelet, isTrue), now: time.Second},
		"Unknown is not written twice": {
			node: named("a").ready(isUnknown), before: seenReady(Kubelet, isUnknown), now: time.Hour},
		"a heartbeat keeps a node alive": {
			node: named("a").ready(isTrue, beat(noon.Add(40*time.Second))), before: seenReady(Kubelet, isTrue), now: dead},
		"so does one that goes backwards": {
			node: named("a").ready(isTrue, beat(noon.Add(-time.Hour))), before: seenReady(Kubelet, isTrue), now: dead},
		"a renewed Lease keeps a node alive": {
			node: named("a").ready(isTrue), before: &Seen{Source: Kubelet, Alive: noon, Leased: true, Renewed: noon, Ready: Ready{Status: isTrue, Heartbeat: noon}},
			lease: &Lease{Renewed: noon.Add(10 * time.Second)}, now: dead},
		"a Lease that did not move does not": {
			node: named("a").ready(isTrue), before: &Seen{Source: Kubelet, Alive: noon, Leased: true, Renewed: noon, Ready: Ready{Status: isTrue, Heartbeat: noon}},
			lease: &Lease{Renewed: noon}, now: dead, want: verdict{true, true, true}},
		"a Lease whose clock stepped back is renewed all the same": {
			node: named("a").ready(isTrue), before: &Seen{Source: Kubelet, Alive: noon, Leased: true, Renewed: noon, Ready: Ready{Status: isTrue, Heartbeat: noon}},
			lease: &Lease{Renewed: noon.Add(-5 * time.Minute)}, now: dead},
		"a Lease from a cache that lags behind a live read is no renewal": {
			node: named("a").ready(isTrue), before: &Seen{Source: Kubelet, Alive: noon, Leased: true, LeaseVersion: "20", Renewed: noon, Ready: Ready{Status: isTrue, Heartbeat: noon}},
			lease: &Lease{Version: "9", Renewed: noon.Add(-10 * time.Second)}, now: dead, want: verdict{true, true, true}},
		"a Lease that was touched but not renewed is no renewal": {
			node: named("a").ready(isTrue), before: &Seen{Source: Kubelet, Alive: noon, Leased: true, LeaseVersion: "20", Renewed: noon, Ready: Ready{Status: isTrue, Heartbeat: noon}},
			lease: &Lease{Version: "21", Renewed: noon}, now: dead, want: verdict{true, true, true}},
		"a Lease without a renewTime is nothing new": {
			node: named("a").ready(isTrue), before: &Seen{Source: Kubelet, Alive: noon, Leased: true, Renewed: noon, Ready: Ready{Status: isTrue, Heartbeat: noon}},
			lease: &Lease{}, now: dead, want: verdict{true, true, true}},
		"except as the first Lease": {
			node: named("a").ready(isTrue), before: seenReady(Kubelet, isTrue), lease: &Lease{}, now: dead},
		"the first look grants a full grace, however old the stamps": {
			node: named("a").ready(isTrue, beat(noon.Add(-time.Hour))), now: time.Hour},
		"a node without Ready is timed from its creation": {
			node: named("a"), now: 60*time.Second + 1, want: verdict{unknown: true}},
		"a node without Ready gets the startup grace": {
			node: named("a"), now: 60 * time.Second},
		"a Lease keeps a node alive that never posted Ready": {
			node: named("a"), lease: &Lease{Renewed: noon}, now: time.Hour},
		"losing Ready does not restart the grace": {
			node: named("a"), before: seenReady(Kubelet, isTrue), now: 60*time.Second + 1, want: verdict{unknown: true}},
		"after a restart the pods of a node that is down are not marked": {
			node: named("a").ready(isUnknown)},
		"after a restart a young transition of ours is announced": {
			node: named("a").ready(isUnknown, reason(ReasonUnknown)), now: time.Minute, want: verdict{announce: true}},
		"an Unknown that we tried to write is ours though nobody said that it succeeded": {
			node: named("a").ready(isUnknown, reason(ReasonUnknown)), before: tried(noon.Add(-time.Second), noon), want: verdict{announce: true, pods: true}},
		"one with another transition time is not": {
			node: named("a").ready(isUnknown, reason(ReasonUnknown)), before: tried(noon.Add(-time.Second))},
		"nor is one that somebody else wrote in the same second": {
			node: named("a").ready(isUnknown), before: tried(noon)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(c.now)
			plan, _ := Decide(Look{Node: c.node.Node, Before: c.before, Lease: c.lease, Source: Kubelet, Now: now, ServerNow: now, Graces: graces})
			if got := verdictOf(plan); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if len(plan.Unknown) > 0 && !plan.CheckLease {
				t.Error("a node would be given up without a live look at its Lease")
			}
		})
	}
}

func TestPools(t *testing.T) {
	later := since(noon.Add(30 * time.Second))
	cases := map[string]struct {
		node     node
		before   *Seen
		to       Source
		now      time.Duration
		want     verdict
		wantSeen Source
	}{
		"a Ready node moves to the external pool unnoticed": {
			node: named("a").ready(isTrue), before: seenReady(Kubelet, isTrue), to: External},
		"a node that moves and falls in one look is announced once and marked": {
			node: named("a").ready(isUnknown, later), before: seenReady(Kubelet, isTrue), to: External, now: time.Hour, want: verdict{announce: true, pods: true}},
		"a node that moves while long Unknown has its pods marked and no event": {
			node: named("a").ready(isUnknown), before: seenReady(Kubelet, isUnknown), to: External, now: time.Hour, want: verdict{pods: true}},
		"a node that moves to the kubelet source gets a full grace": {
			node: named("a").ready(isTrue), before: seenReady(External, isTrue), to: Kubelet, now: time.Hour},
		"an outside Unknown that comes with the move to the kubelet source is not lost": {
			node: named("a").ready(isUnknown, later), before: seenReady(External, isTrue), to: Kubelet, want: verdict{announce: true, pods: true}},
		"an Unknown node moves to the kubelet source unnoticed": {
			node: named("a").ready(isUnknown), before: seenReady(External, isUnknown), to: Kubelet},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(c.now)
			plan, seen := Decide(Look{Node: c.node.Node, Before: c.before, Source: c.to, Now: now, ServerNow: now, Graces: graces})
			if got := verdictOf(plan); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if seen.Source != c.to {
				t.Errorf("remembers %s, want %s", seen.Source, c.to)
			}
		})
	}
}

func TestBesideTheInTreeController(t *testing.T) {
	cases := map[string]struct {
		node   node
		before *Seen
		now    time.Duration
		want   verdict
	}{
		"an outside Unknown is announced and marked": {
			node: named("a").ready(isUnknown), before: seenReady(External, isTrue), want: verdict{announce: true, pods: true}},
		"an Unknown that the in-tree controller wrote is its own to follow up": {
			node: named("a").ready(isUnknown, reason(ReasonUnknown)), before: seenReady(External, isTrue)},
		"the first look marks pods whoever wrote, and announces only outside writes": {
			node: named("a").ready(isUnknown, reason(ReasonUnknown)), want: verdict{pods: true}},
		"a node that never reports is not our business": {
			node: named("a"), before: seenReady(External, ""), now: time.Hour},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(c.now)
			plan, _ := Decide(Look{Node: c.node.Node, Before: c.before, Source: External, Beside: true, Now: now, ServerNow: now, Graces: graces})
			if got := verdictOf(plan); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if plan.LookAgainAfter != 0 {
				t.Errorf("looks again after %v", plan.LookAgainAfter)
			}
		})
	}
}

func TestWhatIsWrittenWhenANodeIsGivenUp(t *testing.T) {
	now := noon.Add(time.Minute + 300*time.Millisecond)
	n := named("a").with("Custom", isFalse).with(corev1.NodeNetworkUnavailable, isFalse).
		with(corev1.NodeDiskPressure, isUnknown).with(corev1.NodeMemoryPressure, isTrue).ready(isTrue)
	plan, seen := Decide(Look{Node: n.Node, Before: seenReady(Kubelet, isTrue), Source: Kubelet, Now: now, Graces: graces})
	at := metav1.NewTime(noon.Add(time.Minute))
	want := []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: isUnknown, Reason: ReasonUnknown, Message: "Kubelet stopped posting node status.", LastTransitionTime: at},
		{Type: corev1.NodeMemoryPressure, Status: isUnknown, Reason: ReasonUnknown, Message: "Kubelet stopped posting node status.", LastTransitionTime: at},
		{Type: corev1.NodePIDPressure, Status: isUnknown, Reason: ReasonNeverUpdated, Message: "Kubelet never posted node status.", LastHeartbeatTime: metav1.NewTime(noon), LastTransitionTime: at},
	}
	if len(plan.Unknown) != len(want) {
		t.Fatalf("writes %d conditions, want %d: %+v", len(plan.Unknown), len(want), plan.Unknown)
	}
	for i := range want {
		if plan.Unknown[i] != want[i] {
			t.Errorf("condition %d is %+v, want %+v", i, plan.Unknown[i], want[i])
		}
	}
	if plan.Since != at.Time || seen.Ready.Status != isUnknown || seen.Ready.Heartbeat != noon {
		t.Errorf("the transition is at %v and remembered as %+v", plan.Since, seen.Ready)
	}
}

func TestTheNextLookIsDueWhenSilenceBecomesTooLong(t *testing.T) {
	cases := map[string]struct {
		node   node
		before *Seen
		source Source
		want   time.Duration
	}{
		"a heartbeating node":      {named("a").ready(isTrue), seenReady(Kubelet, isTrue), Kubelet, 40*time.Second + 1},
		"a node without Ready":     {named("a"), seenReady(External, ""), External, 50*time.Second + 1},
		"an Unknown node is never": {named("a").ready(isUnknown), seenReady(Kubelet, isUnknown), Kubelet, 0},
		"an external node never":   {named("a").ready(isTrue), seenReady(External, isTrue), External, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			plan, _ := Decide(Look{Node: c.node.Node, Before: c.before, Source: c.source, Now: noon.Add(10 * time.Second), Graces: graces})
			if plan.LookAgainAfter != c.want {
				t.Errorf("looks again after %v, want %v", plan.LookAgainAfter, c.want)
			}
		})
	}
}

func TestPodsThatArriveOnANodeThatIsDown(t *testing.T) {
	down, up := Ready{Status: isUnknown}, Ready{Status: isTrue}
	cases := map[string]struct {
		seen    Seen
		current Ready
		want    bool
	}{
		"lose readiness on an external node":                                        {Seen{Source: External}, down, true},
		"lose it when the kubelet itself said False":                                {Seen{Source: External}, Ready{Status: isFalse}, true},
		"keep it when the node has recovered":                                       {Seen{Source: External, Ready: down}, up, false},
		"keep it when the node has no Ready":                                        {Seen{Source: External, Ready: down}, Ready{}, false},
		"keep it on a kubelet node that only an outsider gave up":                   {Seen{Source: Kubelet, Reported: isTrue}, down, false},
		"lose it on a kubelet node that we gave up":                                 {Seen{Source: Kubelet, Reported: isUnknown}, down, true},
		"keep it on a kubelet node whose stored status was False and is True again": {Seen{Source: Kubelet, Reported: isFalse}, up, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.seen.MarksArrivals(c.current); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestEventNamesTellTransitionsApart(t *testing.T) {
	name := EventName("a", "uid-1", noon)
	if again := EventName("a", "uid-1", noon.In(time.FixedZone("", 7200)).Add(400*time.Millisecond)); again != name {
		t.Errorf("one transition has two names, %s and %s", name, again)
	}
	for _, other := range []string{EventName("a", "uid-2", noon), EventName("a", "uid-1", noon.Add(time.Second))} {
		if other == name {
			t.Errorf("two transitions share the name %s", name)
		}
	}
	long := make([]byte, 253)
	for i := range long {
		long[i] = '.'
	}
	copy(long, "a")
	if got := EventName(string(long), "u", noon); len(got) > 253 || got[:2] != "a." || got[2] == '.' {
		t.Errorf("not a valid object name: %q", got)
	}
}
