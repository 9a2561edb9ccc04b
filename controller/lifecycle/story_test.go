package lifecycle

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A life is a list of moments; each is a Ready status as somebody writes it, or
// one of these.
const (
	restart = corev1.ConditionStatus("restart") // the process loses its memory
	refused = corev1.ConditionStatus("refused") // the pods of the latest plan could not be marked
	silence = corev1.ConditionStatus("silence") // a minute passes without a sign of life
)

// told is what a cluster saw of a life.
type told struct{ writes, events, marks int }

// live folds Decide over a life, applying what it asks for. A transition is told
// once, whoever tells it: events are counted by name, as an API server does.
func live(source Source, life []corev1.ConditionStatus) told {
	var (
		out    told
		seen   *Seen
		now    = noon
		n      = named("a")
		events = map[string]bool{}
	)
	for _, moment := range life {
		now = now.Add(2 * time.Second)
		switch moment {
		case restart:
			seen = nil
		case refused:
			seen.OwesPods = true
		case silence:
			now = now.Add(time.Minute)
		default:
			r := ReadyOf(n.Node)
			at := r.Since
			if r.Status != moment {
				at = now
			}
			heartbeat := r.Heartbeat
			if moment != isUnknown {
				heartbeat = now
			}
			n = n.ready(moment, since(at), beat(heartbeat))
		}
		plan, after := Decide(Look{Node: n.Node, Before: seen, Source: source, Now: now, ServerNow: now, Graces: graces})
		if len(plan.Unknown) > 0 {
			out.writes++
			for _, c := range plan.Unknown {
				n = n.with(c.Type, c.Status, since(c.LastTransitionTime.Time), beat(ReadyOf(n.Node).Heartbeat), reason(c.Reason))
			}
		}
		if plan.Announce {
			events[EventName("a", n.UID, plan.Since)] = true
		}
		if plan.MarkPods {
			out.marks++
		}
		after = after.PodsMarked()
		seen = &after
	}
	out.events = len(events)
	return out
}

func TestLives(t *testing.T) {
	type life = []corev1.ConditionStatus
	stories := map[string]struct {
		source Source
		life   life
		want   told
	}{
		"one outage, one event, however long it lasts":                        {External, life{isTrue, isUnknown, isUnknown, silence, isUnknown, isTrue}, told{0, 1, 1}},
		"two outages, two events":                                             {External, life{isTrue, isUnknown, isTrue, isUnknown, isTrue}, told{0, 2, 2}},
		"a restart in mid-outage marks pods again and tells nobody twice":     {External, life{isTrue, isUnknown, restart, isUnknown, isUnknown}, told{0, 1, 2}},
		"a transition during a restart is told":                               {External, life{isTrue, restart, isUnknown, isUnknown}, told{0, 1, 1}},
		"three restarts tell nobody twice":                                    {External, life{isTrue, isUnknown, restart, restart, restart, isUnknown}, told{0, 1, 4}},
		"a refused marking is repeated and not announced again":               {External, life{isTrue, isUnknown, refused, refused, isUnknown}, told{0, 1, 3}},
		"False is not an outage":                                              {External, life{isTrue, isFalse, isFalse, isTrue}, told{}},
		"False that becomes Unknown is":                                       {External, life{isTrue, isFalse, isUnknown}, told{0, 1, 1}},
		"silence is not an outage":                                            {External, life{isTrue, silence, silence}, told{}},
		"on the kubelet source silence is":                                    {Kubelet, life{isTrue, silence, silence, isTrue}, told{1, 1, 1}},
		"without a Lease a kubelet node flaps":                                {Kubelet, life{isTrue, silence, isTrue, silence, isTrue, silence}, told{3, 3, 3}},
		"on the kubelet source a restart forgives":                            {Kubelet, life{isTrue, restart, isTrue}, told{}},
		"a node that never reports is written off quietly":                    {External, life{silence, silence, silence}, told{1, 0, 0}},
		"a node that never reports is written off quietly, restarts included": {External, life{silence, restart, silence}, told{1, 0, 1}},
	}
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			if got := live(s.source, s.life); got != s.want {
				t.Errorf("got %+v, want %+v", got, s.want)
			}
		})
	}
}

// Whatever happens to an external node, its Ready is written by us at most once,
// before anybody else has written it; and every entry into Unknown that is not
// ours is told exactly once.
func TestAnyLifeOfAnExternalNodeTellsEveryOutageOnce(t *testing.T) {
	moments := []corev1.ConditionStatus{isTrue, isFalse, isUnknown, restart, refused, silence}
	r := rand.New(rand.NewPCG(6371, 1))
	for range 20_000 {
		life := []corev1.ConditionStatus{isTrue}
		outages, status := 0, isTrue
		for range r.IntN(12) {
			m := moments[r.IntN(len(moments))]
			life = append(life, m)
			switch m {
			case isTrue, isFalse, isUnknown:
				if m == isUnknown && status != isUnknown {
					outages++
				}
				status = m
			}
		}
		if got := live(External, life); got.events != outages || got.writes != 0 {
			t.Fatalf("%v: %d events for %d outages, %d writes", life, got.events, outages, got.writes)
		}
	}
}
