package policy

import (
	"fmt"
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

func TestNoPolicyIsLongerThanAnAPIServerTakes(t *testing.T) {
	t.Parallel()
	p := contract.Default(contract.Enforce)
	p.Rules = map[contract.Rule]contract.Action{contract.UnauthorizedDetector: contract.Deny}
	listed := func(n int) (*Set, error) {
		p.Detectors = nil
		for i := range n {
			p.Detectors = append(p.Detectors, contract.Detector{Identity: contract.ServiceAccount(fmt.Sprint("liveness-pool-", i), "detector")})
		}
		return Policies(p, Options{})
	}
	set, err := listed(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range set.Guards {
		if g.Rule == contract.UnauthorizedDetector {
			if n := len(g.Policy.Spec.AuditAnnotations); n > 0 {
				t.Errorf("%d annotations hold the list", n)
			}
			continue
		}
		if n := len(g.Policy.Spec.AuditAnnotations); n != 1 {
			t.Errorf("%s has %d annotations: the list of detectors is not its business", g.Rule, n)
		}
	}
	if _, err := listed(1000); err == nil || !strings.Contains(err.Error(), "list fewer standIns, lifecycle identities or detectors") {
		t.Errorf("1000 detectors are too many for CEL, and the error is %v", err)
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
		if left := needs(nil, check); len(left) > 0 {
			t.Errorf("%s: %q are not bound in\n%s", g.Rule, left, check)
		}
		if g.Rule != contract.UnauthorizedDetector {
			continue // asks nobody's name
		}
		for _, name := range []string{`"x:facts.ready \\\"facts.now"`, `"facts.was/pool"`, `"facts.is"`} {
			if !strings.Contains(check, name) {
				t.Errorf("%s: %s is gone from\n%s", g.Rule, name, check)
			}
		}
	}
}
