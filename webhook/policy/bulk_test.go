package policy

import (
	"context"
	"strings"
	"testing"

	celtypes "github.com/google/cel-go/common/types"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nodewarden/nodewarden/contract"
)

// bulk evaluates a whole set of policies at a time. The facts are the same in all
// policies of a set: bound once around all checks, they say what each policy
// says alone at a tenth of the cost.
type bulk struct {
	conditions []func(*admission.VersionedAttributes) (bool, error)
	// condition is, for each policy, which of the conditions is its own.
	condition []int
	// checks is one text, with an x for each rule that is broken.
	checks  plugincel.ConditionEvaluator
	rules   []contract.Rule
	actions []map[admissionregv1.OperationType]admissionregv1.ValidationAction
}

// enforceInBulk compiles the policies of p as one.
func enforceInBulk(t testing.TB, p contract.Policy) *bulk {
	t.Helper()
	set, err := Policies(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRenderer(&p, false)
	if err != nil {
		t.Fatal(err)
	}
	b, names := &bulk{}, enforced{actions: map[string]map[admissionregv1.OperationType]admissionregv1.ValidationAction{}}
	where := map[string]int{}
	var checks []string
	for i, guard := range set.Guards {
		policy := guard.Policy
		for _, binding := range guard.Bindings {
			names.bind(binding)
		}
		m := policy.Spec.MatchConditions
		if _, ok := where[m[0].Expression]; !ok {
			where[m[0].Expression] = len(b.conditions)
			b.conditions = append(b.conditions, compileConditions(t, m, newestEnv, environment.StoredExpressions))
		}
		b.condition = append(b.condition, where[m[0].Expression])
		checks = append(checks, r.on[i].isBroken()+` ? "x" : "-"`)
		b.rules = append(b.rules, guard.Rule)
		b.actions = append(b.actions, names.actions[policy.Name])
	}
	all := &validating.MessageExpressionCondition{MessageExpression: bound(r.known, "["+strings.Join(checks, ",\n")+`].join("")`)}
	b.checks = plugincel.NewConditionCompiler(newestEnv).CompileCondition([]plugincel.ExpressionAccessor{all}, variableOptions, environment.StoredExpressions)
	for _, err := range b.checks.CompilationErrors() {
		t.Fatal(err)
	}
	return b
}

func (b *bulk) judge(r request) (verdict, error) {
	a, operation := r.attributes(), admissionregv1.Update
	if r.Before == nil {
		operation = admissionregv1.Create
	}
	matched, some := make([]bool, len(b.conditions)), false
	for i, match := range b.conditions {
		var err error
		if matched[i], err = match(a); err != nil {
			return verdict{}, err
		}
		some = some || matched[i]
	}
	var v verdict
	if !some {
		return v, nil
	}
	request := plugincel.CreateAdmissionRequest(a.Attributes, metav1.GroupVersionResource(nodeResource), metav1.GroupVersionKind(nodeKind))
	results, _, err := b.checks.ForInput(context.Background(), a, request, plugincel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return v, err
	}
	if results[0].Error != nil {
		return v, results[0].Error
	}
	broken := string(results[0].EvalResult.(celtypes.String))
	for i, matches := range b.condition {
		if matched[matches] && broken[i] == 'x' {
			v.broken = append(v.broken, as(b.rules[i], b.actions[i][operation]))
		}
	}
	return v, nil
}
