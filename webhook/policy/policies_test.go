package policy

import (
	"testing"

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
