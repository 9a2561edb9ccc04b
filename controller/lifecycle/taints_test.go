package lifecycle

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	noSched   = corev1.TaintEffectNoSchedule
	noExec    = corev1.TaintEffectNoExecute
	prefer    = corev1.TaintEffectPreferNoSchedule
	notReady  = corev1.TaintNodeNotReady
	unreach   = corev1.TaintNodeUnreachable
	cordoned  = corev1.TaintNodeUnschedulable
	memory    = corev1.TaintNodeMemoryPressure
	elsewhere = "example.com/maintenance"
)

func TestTaints(t *testing.T) {
	cordon := named("a").ready(isTrue)
	cordon.Spec.Unschedulable = true
	cases := map[string]struct {
		node node
		may  Eviction
		want []string
	}{
		"a Ready node carries none":                               {named("a").ready(isTrue), Hold, nil},
		"False is not-ready":                                      {named("a").ready(isFalse), Hold, []string{notReady + ":NoSchedule"}},
		"Unknown is unreachable":                                  {named("a").ready(isUnknown), Hold, []string{unreach + ":NoSchedule"}},
		"a node without Ready carries none":                       {named("a").taint(notReady, noSched), Hold, nil},
		"pressure taints while True":                              {named("a").ready(isTrue).with(corev1.NodeMemoryPressure, isTrue), Hold, []string{memory + ":NoSchedule"}},
		"pressure that is Unknown does not taint":                 {named("a").ready(isTrue).with(corev1.NodeMemoryPressure, isUnknown).taint(memory, noSched), Hold, nil},
		"a missing network taints":                                {named("a").ready(isTrue).with(corev1.NodeNetworkUnavailable, isTrue), Hold, []string{corev1.TaintNodeNetworkUnavailable + ":NoSchedule"}},
		"a cordon taints":                                         {cordon, Hold, []string{cordoned + ":NoSchedule"}},
		"a managed taint nobody wants goes, whoever put it there": {named("a").ready(isTrue).taint(unreach, noSched), Hold, nil},
		"other effects of a managed key stay":                     {named("a").ready(isTrue).taint(unreach, prefer).taint(memory, noExec), Hold, []string{unreach + ":PreferNoSchedule", memory + ":NoExecute"}},
		"taints of others stay, in their order":                   {named("a").taint(elsewhere, noExec).ready(isUnknown).taint("b", noSched), Grant, []string{elsewhere + ":NoExecute", "b:NoSchedule", unreach + ":NoSchedule", unreach + ":NoExecute"}},
		"NoExecute waits for its turn":                            {named("a").ready(isUnknown), Hold, []string{unreach + ":NoSchedule"}},
		"NoExecute comes with its turn":                           {named("a").ready(isUnknown), Grant, []string{unreach + ":NoSchedule", unreach + ":NoExecute"}},
		"a turn does not taint a node that is up":                 {named("a").ready(isTrue), Grant, nil},
		"nor one without Ready":                                   {named("a"), Grant, nil},
		"NoExecute that is there follows Ready without a turn":    {named("a").ready(isUnknown).taint(notReady, noExec), Hold, []string{unreach + ":NoSchedule", unreach + ":NoExecute"}},
		"and the other way round":                                 {named("a").ready(isFalse).taint(unreach, noExec), Hold, []string{notReady + ":NoSchedule", notReady + ":NoExecute"}},
		"both NoExecute taints become the right one":              {named("a").ready(isFalse).taint(unreach, noExec).taint(notReady, noExec), Hold, []string{notReady + ":NoExecute", notReady + ":NoSchedule"}},
		"recovery takes both effects away":                        {named("a").ready(isTrue).taint(unreach, noSched).taint(unreach, noExec), Hold, nil},
		"a bogus NoExecute on a Ready node goes":                  {named("a").ready(isTrue).taint(notReady, noExec), Hold, nil},
		"without Ready NoExecute is left as it was":               {named("a").taint(unreach, noExec), Hold, []string{unreach + ":NoExecute"}},
		"when all is down NoExecute goes and NoSchedule stays":    {named("a").ready(isUnknown).taint(unreach, noSched).taint(unreach, noExec), Strip, []string{unreach + ":NoSchedule"}},
		"also from a node without Ready":                          {named("a").taint(unreach, noExec), Strip, nil},
		"a taint listed twice is listed once":                     {named("a").ready(isUnknown).taint(unreach, noSched).taint(unreach, noSched), Hold, []string{unreach + ":NoSchedule"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			taints, changed := Taints(c.node.Node, c.may, noon.Add(time.Hour))
			var got []string
			for _, t := range taints {
				got = append(got, t.Key+":"+string(t.Effect))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if was := slices.EqualFunc(taints, c.node.Spec.Taints, same); changed == was {
				t.Errorf("changed is %v", changed)
			}
		})
	}
}

func TestATaintThatFitsIsNeverRewritten(t *testing.T) {
	n := named("a").ready(isUnknown).taint(unreach, noSched).taint(unreach, noExec)
	n.Spec.Taints[0].Value = "custom"
	n.Spec.Taints[1].TimeAdded = nil
	for _, may := range []Eviction{Hold, Grant} {
		if got, changed := Taints(n.Node, may, noon.Add(time.Hour)); changed {
			t.Errorf("%s: rewrites the taints to %+v", may, got)
		}
	}
}

func TestNewTaintsSayWhenTheyWereAdded(t *testing.T) {
	got, _ := Taints(named("a").ready(isUnknown).Node, Grant, noon.Add(1500*time.Millisecond))
	for _, taint := range got {
		if taint.TimeAdded == nil || taint.TimeAdded.Time != noon.Add(time.Second) {
			t.Errorf("%s was added at %v", taint.ToString(), taint.TimeAdded)
		}
	}
}

// Whatever a node looks like: doing it again changes nothing, strangers' taints
// survive, and there is never more than one of the two NoExecute keys.
func TestTaintsOfAnyNode(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	statuses := []corev1.ConditionStatus{isTrue, isFalse, isUnknown}
	keys := append(slices.Clone(managed), elsewhere, "b")
	effects := []corev1.TaintEffect{noSched, noExec, prefer}
	for range 20_000 {
		n := named("a")
		for _, c := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodeNetworkUnavailable} {
			if r.IntN(3) > 0 {
				n = n.with(c, statuses[r.IntN(3)])
			}
		}
		n.Spec.Unschedulable = r.IntN(3) == 0
		for range r.IntN(5) {
			n = n.taint(keys[r.IntN(len(keys))], effects[r.IntN(3)])
		}
		may := []Eviction{Hold, Grant, Strip}[r.IntN(3)]
		got, _ := Taints(n.Node, may, noon)
		next := node{n.DeepCopy()}
		next.Spec.Taints = got
		if again, changed := Taints(next.Node, may, noon.Add(time.Hour)); changed {
			t.Fatalf("%s: %+v is changed again to %+v", may, got, again)
		}
		for _, old := range n.Spec.Taints {
			if !slices.Contains(managed, old.Key) && !has(got, &old) {
				t.Fatalf("%s: lost %s", may, old.ToString())
			}
		}
		if ReadyOf(n.Node).Status != "" && hasNoExecute(next.Node, notReady) && hasNoExecute(next.Node, unreach) {
			t.Fatalf("%s: both NoExecute taints: %+v", may, got)
		}
	}
}

func TestLabels(t *testing.T) {
	cases := map[string]struct{ have, want map[string]string }{
		"none are invented":             {nil, nil},
		"a missing beta label is added": {map[string]string{"kubernetes.io/os": "linux"}, map[string]string{"beta.kubernetes.io/os": "linux"}},
		"a different one is put right":  {map[string]string{"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}, map[string]string{"beta.kubernetes.io/arch": "arm64"}},
		"it never flows the other way":  {map[string]string{"beta.kubernetes.io/os": "linux"}, nil},
		"what agrees is left alone":     {map[string]string{"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			n := named("a")
			n.Node.Labels = c.have
			got := Labels(n.Node)
			if len(got) != len(c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			for k, v := range c.want {
				if got[k] != v {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}
