package contract

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

var detector = User{
	Name:   "system:serviceaccount:liveness:detector",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:liveness", "system:authenticated"},
}

// failure is a correct first report: the kubelet has been Ready for an hour,
// spoke last at noon, and the detector records its failure 40 seconds later.
func failure() Write {
	kubelets := []Condition{
		{Type: "MemoryPressure", Status: "False", Heartbeat: noon, Transition: at(-3600)},
		{Type: "DiskPressure", Status: "False", Heartbeat: noon, Transition: at(-3600)},
		{Type: "PIDPressure", Status: "False", Heartbeat: noon, Transition: at(-3600)},
	}
	return Write{
		Verb: Update, Node: "n1", User: detector,
		Before: append(slices.Clone(kubelets), Condition{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "ok", Heartbeat: noon, Transition: at(-3600)}),
		After:  append(slices.Clone(kubelets), Condition{Type: "Ready", Status: "Unknown", Reason: "OutOfBandProbeFailed", Message: "no answer", Heartbeat: noon, Transition: at(40)}),
		Spoke:  noon, Now: at(40),
	}
}

// again rewrites a node that the detector has already recorded.
func again() Write {
	w := failure()
	w.Before = slices.Clone(w.After)
	w.Now = at(70)
	return w
}

func (w *Write) was() *Condition { return entry(w.Before) }
func (w *Write) is() *Condition  { return entry(w.After) }

func entry(conditions []Condition) *Condition {
	return &conditions[slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == "Ready" })]
}

// unmanaged takes away what managedFields tell.
func (w *Write) unmanaged() { w.Spoke, w.Now = time.Time{}, time.Time{} }

func strict() Policy { return Default(Enforce) }

func names(broken []Violation) []Rule {
	var rules []Rule
	for _, v := range broken {
		rules = append(rules, v.Rule)
	}
	return rules
}

// a listing lets only the detector write, and only to pool a.
func listing() Policy {
	p := strict()
	p.Rules = map[Rule]Action{UnauthorizedDetector: Deny}
	p.Detectors = []Detector{{
		Identity: ServiceAccount("liveness", "detector"),
		Nodes:    labels.SelectorFromSet(labels.Set{"pool": "a"}),
	}}
	return p
}

func patient() Policy {
	p := strict()
	p.Rules = map[Rule]Action{SignalTooYoung: Deny}
	p.SignalPersistence = 30 * time.Second
	return p
}

func check(t *testing.T, w Write, p Policy, want ...Rule) {
	t.Helper()
	if got := names(Check(w, p)); !slices.Equal(got, want) {
		t.Errorf("broken rules: got %v, want %v", got, want)
	}
}
