package conformance

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/contract"
)

var detector = contract.User{Name: Detector.User, Groups: []string{Detector.Group}}

func TestTheContractKeepsItsOwnCases(t *testing.T) {
	for _, c := range Cases() {
		t.Run(string(c.Rule)+"/"+c.Name, func(t *testing.T) {
			var want []contract.Rule
			if c.Broken {
				want = []contract.Rule{c.Rule}
			}
			got, err := Function{Policy: Policy(c.Rule), User: detector, Silence: c.Silence}.Write(t.Context(), c.Before, c.After)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("broken %v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestEveryRuleHasACaseOfEitherKind(t *testing.T) {
	for _, r := range contract.Rules() {
		for _, broken := range []bool{true, false} {
			if !slices.ContainsFunc(Cases(), func(c Case) bool { return c.Rule == r && c.Broken == broken }) {
				t.Errorf("%s has no case with broken=%v", r, broken)
			}
		}
	}
}

func TestACaseMovesInTimeAsAWhole(t *testing.T) {
	for _, c := range Cases() {
		there := c.At(Epoch.AddDate(0, 1, 0))
		if back := move(there.After, Epoch.Sub(Epoch.AddDate(0, 1, 0))); !slices.EqualFunc(back.Status.Conditions, c.After.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.LastTransitionTime.Equal(&b.LastTransitionTime) && a.LastHeartbeatTime.Equal(&b.LastHeartbeatTime)
		}) {
			t.Errorf("%s does not come back", c.Name)
		}
	}
}
