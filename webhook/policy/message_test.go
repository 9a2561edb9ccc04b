package policy

import (
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
)

// A user should not be able to tell from the message which enforcer refused.
// The two differ in how they write long or foreign text and long lists, so the
// writes here hold none.
func TestThePolicyRefusesInTheContractsWords(t *testing.T) {
	t.Parallel()
	g := writes.From(4)
	policies, requests := 2, 80
	if underRace {
		policies, requests = 1, 50
	}
	refused, warned := 0, 0
	for range policies {
		p := everything()
		p.RecoveryHold, p.SignalPersistence = writes.Pick(g, 10*time.Second, time.Minute), writes.Pick(g, 0, 5*time.Second, 90*time.Second)
		p.Rules[writes.Pick(g, contract.Rules()...)] = contract.Warn
		p.Rules[writes.Pick(g, contract.Rules()...)] = contract.Off
		e := enforce(t, p)
		for range requests {
			r := request(g.Write())
			tame(r)
			got, err := e.judge(r)
			if err != nil {
				t.Fatal(err)
			}
			broken := contract.Check(r.write(), p)
			for i, b := range broken {
				want := contract.Message([]contract.Violation{b})
				if b.Action == contract.Deny {
					want, refused = contract.Message(contract.With(contract.Deny, broken)), refused+1
				} else {
					warned++
				}
				if got.messages[i] != want {
					t.Fatalf("the policy of %s says\n  %s\nthe contract\n  %s\n%s", b.Rule, got.messages[i], want, show(r, p))
				}
			}
		}
	}
	if refused == 0 || warned == 0 {
		t.Errorf("%d refused, %d warned: the generator does not reach both", refused, warned)
	}
}

var plainText = regexp.MustCompile(`^[ -~]{0,64}$`)

// tame leaves out what the two write differently.
func tame(r request) {
	tameNode(r.After)
	tameNode(r.Before)
}

func tameNode(n *corev1.Node) {
	if n == nil {
		return
	}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if !plainText.MatchString(c.Reason) {
			c.Reason = "Other"
		}
		tameTime(&c.LastTransitionTime)
		tameTime(&c.LastHeartbeatTime)
	}
	for _, m := range n.ManagedFields {
		if m.Time != nil {
			tameTime(m.Time)
		}
	}
}

// tameTime keeps away from the ends of what can be reckoned with, where the
// remedies differ by a second.
func tameTime(t *metav1.Time) {
	if y := t.Year(); y > 2199 || y < 2001 && y != 1 {
		*t = metav1.NewTime(writes.Noon)
	}
}

func TestEveryPolicyIsNamedAfterItsRule(t *testing.T) {
	set, err := Policies(everything(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range set.Guards {
		names = append(names, g.Policy.Name)
	}
	if len(names) != len(contract.Rules()) || !slices.Contains(names, "heartbeat-modified.contract.nodewarden.dev") {
		t.Errorf("policies are %q", names)
	}
}
