package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
)

const (
	// suffix ends the name of every policy: <rule-in-kebab-case>.contract.nodewarden.dev.
	suffix = ".contract.nodewarden.dev"
	// staticSuffix ends the name of every policy that an API server loads from files.
	staticSuffix = ".static.k8s.io"
)

// Set is the contract as ValidatingAdmissionPolicies: one a rule that can deny,
// warn or be audited, with its bindings.
type Set struct {
	// Guards are in table order.
	Guards []Guard
	// Off are the rules that the policy turns off, in table order.
	Off []contract.Rule
}

// Guard enforces one rule.
type Guard struct {
	Rule   contract.Rule
	Policy *admissionv1.ValidatingAdmissionPolicy
	// Bindings are one for every write, or one for UPDATE and one for CREATE.
	Bindings []*admissionv1.ValidatingAdmissionPolicyBinding
}

// Options say for which API server the policies are rendered.
type Options struct {
	// Server is the oldest API server that is to enforce them.
	Server Version
	// Static renders them for files that the API server loads itself
	// (KEP-5793), which may not be changed through the API.
	Static bool
	// Unfolded leaves every variable a variable; see HowVariablesFold.
	Unfolded bool
}

// Policies renders p. The policies share their match condition and their
// variables; each of those that deny gives the same message, which lists every
// broken rule that denies.
func Policies(p contract.Policy, o Options) (*Set, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	known, err := facts(&p)
	if err != nil {
		return nil, err
	}
	r := renderer{p: &p, clauses: clauses(&p), known: append(known, advice(&p)...), static: o.Static, unfolded: o.Unfolded}
	for _, c := range r.clauses {
		r.known = append(r.known, variable(string(c.rule), c.broken), variable("said"+string(c.rule), c.said))
	}
	r.known = append(r.known, variable("findings", r.findings()))

	set := &Set{}
	for _, rule := range contract.Rules() {
		i := slices.IndexFunc(r.clauses, func(c clause) bool { return c.rule == rule })
		if i < 0 {
			set.Off = append(set.Off, rule)
			continue
		}
		set.Guards = append(set.Guards, Guard{rule, r.policy(rule), r.bindings(rule)})
	}
	return set, nil
}

func (o Options) validate() error {
	if o.Server.below(policiesSince) {
		return fmt.Errorf("kubernetes version %s: ValidatingAdmissionPolicy is served from %s on; render the webhook alone", o.Server, policiesSince)
	}
	if o.Static && o.Server.below(staticSince) {
		return fmt.Errorf("kubernetes version %s: API servers load policies from files from %s on; render the form %q instead", o.Server, staticSince, "policy")
	}
	return nil
}

type renderer struct {
	p       *contract.Policy
	clauses []clause
	// known are all variables, each after those it reads.
	known            []admissionv1.Variable
	static, unfolded bool
}

// name is the name of the policy and of its binding; of the binding for CREATE, with part.
func (r *renderer) name(rule contract.Rule, part string) string {
	name := kebab(string(rule)) + part + suffix
	if r.static {
		name += staticSuffix
	}
	return name
}

func (r *renderer) policy(rule contract.Rule) *admissionv1.ValidatingAdmissionPolicy {
	fail, invalid := admissionv1.Fail, metav1.StatusReasonInvalid
	message := `"[` + string(rule) + `] " + ` + said(rule)
	if r.p.Action(rule) == contract.Deny {
		message = `request.operation == "CREATE" ? ` + message + ` : ` + refusal
	}
	check := admissionv1.Validation{
		Expression:        "!" + isBroken(rule),
		Message:           "[" + string(rule) + "] " + rule.Refuses(),
		MessageExpression: isBroken(rule) + ` ? ` + bounded("variables.message") + ` : ""`,
		Reason:            &invalid,
	}
	note := admissionv1.AuditAnnotation{Key: "broken", ValueExpression: isBroken(rule) + ` ? "` + string(rule) + `" : ""`}

	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: r.name(rule, ""), Labels: ours()},
	}
	policy.Spec = admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: resources(createNode, updateStatus),
		MatchConditions:  r.matchConditions(rule),
		Variables:        r.variables(message, check.Expression, check.MessageExpression),
		Validations:      []admissionv1.Validation{check},
		AuditAnnotations: []admissionv1.AuditAnnotation{note},
	}
	return policy
}

// matchConditions is a single one, though it says two things: the API server
// evaluates all of several, and a kubelet's write should cost but the first.
func (r *renderer) matchConditions(rule contract.Rule) []admissionv1.MatchCondition {
	s := scope{r.p}
	touched := s.changesReady()
	if rule == contract.UnauthorizedDetector {
		touched = s.touched()
	}
	return []admissionv1.MatchCondition{{
		Name:       "external-writer-touches-ready",
		Expression: allOf(s.external(), "("+touched+")"),
	}}
}

// bindings say what happens to a write that breaks the rule. A Node's creation
// records no failure: there a rule that denies only warns.
func (r *renderer) bindings(rule contract.Rule) []*admissionv1.ValidatingAdmissionPolicyBinding {
	bind := func(part string, action admissionv1.ValidationAction, to *admissionv1.MatchResources) *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: r.name(rule, part), Labels: ours()},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        r.name(rule, ""),
				ValidationActions: []admissionv1.ValidationAction{action},
				MatchResources:    to,
			},
		}
	}
	switch r.p.Action(rule) {
	case contract.Deny:
		return []*admissionv1.ValidatingAdmissionPolicyBinding{
			bind("", admissionv1.Deny, resources(updateStatus)),
			bind(".create", admissionv1.Warn, resources(createNode)),
		}
	case contract.Warn:
		return []*admissionv1.ValidatingAdmissionPolicyBinding{bind("", admissionv1.Warn, nil)}
	default:
		return []*admissionv1.ValidatingAdmissionPolicyBinding{bind("", admissionv1.Audit, nil)}
	}
}

// findings are the broken rules that deny, each with its sentence.
func (r *renderer) findings() string {
	var all []string
	for _, c := range r.clauses {
		if r.p.Action(c.rule) == contract.Deny {
			all = append(all, isBroken(c.rule)+` ? ["`+string(c.rule)+`", `+said(c.rule)+`] : []`)
		}
	}
	return "[\n  " + strings.Join(all, ",\n  ") + `].filter(f, size(f) > 0)`
}

// refusal is the message that every policy that denies gives: the bracket
// with each broken rule that denies, then a sentence a rule.
const refusal = `"[" + variables.findings.map(f, f[0]).join(",") + "] " + variables.findings.map(f, f[1]).join("; ")`

// bounded cuts a message to what an API server shows: one of more than 5 KiB
// would give way to the static one. A character has at most four bytes.
func bounded(message string) string {
	return `(size(bytes(` + message + `)) <= 5000 ? ` + message + ` : ` + message + `.substring(0, 1200) + "...")`
}

// kebab turns ReadyMissing into ready-missing.
func kebab(name string) string {
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
