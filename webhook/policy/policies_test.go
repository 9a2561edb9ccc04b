package policy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nodewarden/nodewarden/contract"
)

func TestEveryPolicyCompilesOnTheOldestAndTheNewestServer(t *testing.T) {
	t.Parallel()
	if underRace {
		t.Skip("compiles everything twice, one thread at a time")
	}
	set, err := Policies(contract.Default(contract.Enforce), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, guard := range set.Guards {
		compile(t, guard.Policy, newestEnv, environment.NewExpressions)
		compile(t, guard.Policy, oldestEnv, environment.NewExpressions)
	}
}

func TestANameThatReadsLikeAFactStaysAsItIs(t *testing.T) {
	t.Parallel()
	odd, err := labels.Parse("facts.was/pool in (facts.is)")
	if err != nil {
		t.Fatal(err)
	}
	p := contract.Default(contract.Enforce)
	p.Detectors = []contract.Detector{{Identity: contract.Identity{User: `x:facts.ready \"facts.now`}, Nodes: odd}}
	p.Rules = map[contract.Rule]contract.Action{contract.UnauthorizedDetector: contract.Deny}
	set, err := Policies(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range set.Guards {
		check := g.Policy.Spec.Validations[0].Expression
		if !strings.Contains(check, "changesReady") {
			continue // asks nobody's name
		}
		for _, name := range []string{`"x:facts.ready \\\"facts.now"`, `"facts.was/pool"`, `"facts.is"`} {
			if !strings.Contains(check, name) {
				t.Errorf("%s: %s is gone from\n%s", g.Rule, name, check)
			}
		}
		if left := needs(nil, check); len(left) > 0 {
			t.Errorf("%s: %q are not bound in\n%s", g.Rule, left, check)
		}
	}
}
