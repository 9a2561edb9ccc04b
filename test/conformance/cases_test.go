package conformance

import (
	"slices"
	"testing"
	"time"

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
	const month = 31 * 24 * time.Hour
	for _, c := range Cases() {
		there := c.At(Epoch.Add(month))
		for _, nodes := range [][2]*corev1.Node{{c.Before, there.Before}, {c.After, there.After}} {
			was, is := stamps(nodes[0]), stamps(nodes[1])
			for i := range was {
				if was[i].Year() >= 2000 { // the others are wrong on purpose, whenever it is played
					was[i] = was[i].Add(month)
				}
			}
			if !slices.EqualFunc(is, was, time.Time.Equal) {
				t.Errorf("%s: a month later the stamps are %v, want %v", c.Name, is, was)
			}
		}
	}
}

// stamps are all times of a node's conditions.
func stamps(n *corev1.Node) []time.Time {
	var all []time.Time
	for _, c := range n.Status.Conditions {
		all = append(all, c.LastHeartbeatTime.Time, c.LastTransitionTime.Time)
	}
	return all
}
