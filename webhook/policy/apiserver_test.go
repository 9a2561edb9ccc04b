package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
)

// What stands here turns rendered objects into what an API server makes of
// them, with the API server's own code: environment, compiler, cost limits.

var (
	nodeKind     = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	nodeResource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	// newest is the environment of the API server under test, oldest that of the
	// oldest one that the policies are rendered for.
	newestEnv = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	oldestEnv = environment.MustBaseEnvSet(version.MajorMinor(1, 29))
)

// request is a write as it reaches admission.
type request writes.Write

func (r request) write() contract.Write { return contract.Between(r.Before, r.After, r.User) }

func (r request) attributes() *admission.VersionedAttributes {
	who := &user.DefaultInfo{Name: r.User.Name, Groups: r.User.Groups}
	if r.Before == nil {
		a := admission.NewAttributesRecord(r.After, nil, nodeKind, "", r.After.Name, nodeResource, "", admission.Create, &metav1.CreateOptions{}, false, who)
		return &admission.VersionedAttributes{Attributes: a, VersionedKind: nodeKind, VersionedObject: admission.NewLazyObject(r.After)}
	}
	a := admission.NewAttributesRecord(r.After, r.Before, nodeKind, "", r.After.Name, nodeResource, "status", admission.Update, &metav1.UpdateOptions{}, false, who)
	return &admission.VersionedAttributes{
		Attributes: a, VersionedKind: nodeKind,
		VersionedObject: admission.NewLazyObject(r.After), VersionedOldObject: admission.NewLazyObject(r.Before),
	}
}

// compiledPolicy is a policy as the API server runs it.
type compiledPolicy struct {
	notes     int // audit annotations
	name      string
	validator validating.Validator
}

var variableOptions = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// compile does what the API server's policy plugin does with a policy.
func compile(t testing.TB, p *admissionregv1.ValidatingAdmissionPolicy, envs *environment.EnvSet, mode environment.Type) compiledPolicy {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(envs)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(expressions []plugincel.ExpressionAccessor, o plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
		e := compiler.CompileCondition(expressions, o, mode)
		for _, err := range e.CompilationErrors() {
			t.Fatalf("%s does not compile: %v", p.Name, err)
		}
		return e
	}
	var checks, messages, notes []plugincel.ExpressionAccessor
	for i := range p.Spec.Validations {
		v := p.Spec.Validations[i]
		checks = append(checks, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	for _, a := range p.Spec.AuditAnnotations {
		notes = append(notes, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	matcher := matchconditions.NewMatcher(
		condition(accessors(p.Spec.MatchConditions), variableOptions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return compiledPolicy{len(notes), p.Name, validating.NewValidator(
		condition(checks, variableOptions), matcher, condition(notes, variableOptions),
		condition(messages, plugincel.OptionalVariableDeclarations{}), p.Spec.FailurePolicy, nil)}
}

func accessors(conditions []admissionregv1.MatchCondition) []plugincel.ExpressionAccessor {
	var all []plugincel.ExpressionAccessor
	for i := range conditions {
		m := matchconditions.MatchCondition(conditions[i])
		all = append(all, &m)
	}
	return all
}

// outcome is what one policy says of one request.
type outcome struct {
	broken        bool
	message, note string
}

// decide runs one policy on one request, with the API server's cost limits.
func (c compiledPolicy) decide(a *admission.VersionedAttributes) (outcome, error) {
	result := c.validator.Validate(context.Background(), nodeResource, a, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	var o outcome
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			return o, fmt.Errorf("%s: %s", c.name, d.Message)
		}
		if d.Action == validating.ActionDeny {
			o.broken, o.message = true, d.Message
		}
	}
	for _, n := range result.AuditAnnotations {
		if n.Action == validating.AuditAnnotationActionError {
			return o, fmt.Errorf("%s: audit annotation: %s", c.name, n.Error)
		}
		if n.Action == validating.AuditAnnotationActionPublish {
			o.note = n.Value
		}
	}
	return o, nil
}

// enforced is a whole set of policies as the API server runs it.
type enforced struct {
	policies []compiledPolicy
	rules    []contract.Rule
	actions  map[string]map[admissionregv1.OperationType]admissionregv1.ValidationAction
}

func enforce(t testing.TB, p contract.Policy) enforced {
	t.Helper()
	set, err := Policies(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := enforced{actions: map[string]map[admissionregv1.OperationType]admissionregv1.ValidationAction{}}
	for _, guard := range set.Guards {
		e.policies = append(e.policies, compile(t, guard.Policy, newestEnv, environment.StoredExpressions))
		e.rules = append(e.rules, guard.Rule)
		for _, b := range guard.Bindings {
			e.bind(b)
		}
	}
	return e
}

// bind notes what a binding does, per operation.
func (e enforced) bind(b *admissionregv1.ValidatingAdmissionPolicyBinding) {
	to := e.actions[b.Spec.PolicyName]
	if to == nil {
		to = map[admissionregv1.OperationType]admissionregv1.ValidationAction{}
		e.actions[b.Spec.PolicyName] = to
	}
	operations := []admissionregv1.OperationType{admissionregv1.Create, admissionregv1.Update}
	if m := b.Spec.MatchResources; m != nil {
		operations = m.ResourceRules[0].Operations
	}
	for _, o := range operations {
		to[o] = b.Spec.ValidationActions[0]
	}
}

// verdict is who says what: the rules broken, as rule=action, and the message
// of each.
type verdict struct {
	broken   []string
	messages []string
}

func (e enforced) judge(r request) (verdict, error) {
	operation := admissionregv1.Update
	if r.Before == nil {
		operation = admissionregv1.Create
	}
	var v verdict
	a := r.attributes()
	for i, p := range e.policies {
		o, err := p.decide(a)
		if err != nil {
			return v, err
		}
		if p.notes > 0 && o.broken != (o.note != "") {
			return v, fmt.Errorf("%s: broken is %v but the audit annotation is %q", p.name, o.broken, o.note)
		}
		if o.broken {
			v.broken = append(v.broken, as(e.rules[i], e.actions[p.name][operation]))
			v.messages = append(v.messages, o.message)
		}
	}
	return v, nil
}

func as(r contract.Rule, a admissionregv1.ValidationAction) string {
	return string(r) + "=" + strings.ToLower(string(a))
}

// expected is the verdict of the contract itself.
func expected(r request, p contract.Policy) verdict {
	var v verdict
	for _, b := range contract.Check(r.write(), p) {
		v.broken = append(v.broken, string(b.Rule)+"="+string(b.Action))
	}
	return v
}

func sameVerdict(a, b verdict) bool { return slices.Equal(a.broken, b.broken) }

// calls says whether the API server calls a webhook about a request. An error
// of a match condition is an error.
func compileConditions(t testing.TB, conditions []admissionregv1.MatchCondition, envs *environment.EnvSet, mode environment.Type) func(*admission.VersionedAttributes) (bool, error) {
	t.Helper()
	evaluator := plugincel.NewConditionCompiler(envs).CompileCondition(accessors(conditions), variableOptions, mode)
	for _, err := range evaluator.CompilationErrors() {
		t.Fatalf("match condition does not compile: %v", err)
	}
	fail := admissionregv1.Fail
	matcher := matchconditions.NewMatcher(evaluator, &fail, "webhook", "validate", "test")
	return func(a *admission.VersionedAttributes) (bool, error) {
		result := matcher.Match(context.Background(), a, nil, nil)
		return result.Matches, result.Error
	}
}
