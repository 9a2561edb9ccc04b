package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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
	// Bindings are one for every write that the policy matches, or one for UPDATE
	// and one for CREATE.
	Bindings []*admissionv1.ValidatingAdmissionPolicyBinding
}

// Parts are what policies are put together from, for whoever puts them together
// elsewhere: the Helm chart.
type Parts struct {
	// Facts are what the rules are stated in, each after those it reads.
	Facts []Fact
	// Advice is what messages are made of.
	Advice string
	// Rules are those that are not off, in table order.
	Rules []Part
}

// Part is what the policies say about one rule.
type Part struct {
	Rule contract.Rule
	// Broken is true where a write breaks the rule. Those that judge a new
	// lastTransitionTime exclude each other: a ladder of them, in table order, is
	// the fact stamp.
	Broken string
	// Said is the sentence about it.
	Said string
	// Message is the message of the rule's policy, made of what is said of all
	// rules and of the advice.
	Message string
}

// TakenApart returns the parts of p's policies.
func TakenApart(p contract.Policy) (*Parts, error) {
	r, err := newRenderer(&p, false)
	if err != nil {
		return nil, err
	}
	parts := &Parts{Facts: r.known, Advice: advice(&p)}
	for _, c := range r.on {
		parts.Rules = append(parts.Rules, Part{c.rule, c.broken, c.said, r.message(c.rule)})
	}
	return parts, nil
}

// Options say for which API server the policies are rendered.
type Options struct {
	// Server is the oldest API server that is to enforce them.
	Server Version
	// Static renders them for files that the API server loads itself
	// (KEP-5793), which may not be changed through the API.
	Static bool
}

// Policies renders p. The policies share their match condition; each of those
// that deny gives the same message, which lists every broken rule that denies.
func Policies(p contract.Policy, o Options) (*Set, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r, err := newRenderer(&p, o.Static)
	if err != nil {
		return nil, err
	}
	set := &Set{}
	for _, rule := range contract.Rules() {
		i := slices.IndexFunc(r.on, func(c clause) bool { return c.rule == rule })
		if i < 0 {
			set.Off = append(set.Off, rule)
			continue
		}
		guard := Guard{rule, r.policy(r.on[i]), r.bindings(rule)}
		check := guard.Policy.Spec.Validations[0]
		if err := tooLong("policy "+guard.Policy.Name, check.Expression, check.MessageExpression, guard.Policy.Spec.MatchConditions[0].Expression); err != nil {
			return nil, err
		}
		set.Guards = append(set.Guards, guard)
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
	p *contract.Policy
	// on are the rules that are not off, in table order.
	on []clause
	// known are all facts, each after those it reads.
	known  []Fact
	static bool
}

func newRenderer(p *contract.Policy, static bool) (*renderer, error) {
	on := clauses(p)
	known, err := factsOf(p, on)
	if err != nil {
		return nil, err
	}
	return &renderer{p, on, known, static}, nil
}

// name is the name of the policy and of its binding; of the binding for CREATE, with part.
func (r *renderer) name(rule contract.Rule, part string) string {
	name := kebab(string(rule)) + part + suffix
	if r.static {
		name += staticSuffix
	}
	return name
}

func (r *renderer) policy(c clause) *admissionv1.ValidatingAdmissionPolicy {
	fail, invalid := admissionv1.Fail, metav1.StatusReasonInvalid
	check := admissionv1.Validation{
		Expression:        bound(r.known, not(c.isBroken())),
		Message:           "[" + string(c.rule) + "] " + c.rule.Refuses(),
		MessageExpression: r.messageExpression(c),
		Reason:            &invalid,
	}
	var notes []admissionv1.AuditAnnotation
	if note := bound(r.known, c.isBroken()+` ? "`+string(c.rule)+`" : ""`); len(note) <= maxAnnotation {
		notes = append(notes, admissionv1.AuditAnnotation{Key: "broken", ValueExpression: note})
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: r.name(c.rule, ""), Labels: ours()},
	}
	policy.Spec = admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: resources(judged(c.rule)...),
		MatchConditions:  r.matchConditions(c.rule),
		Validations:      []admissionv1.Validation{check},
		AuditAnnotations: notes,
	}
	return policy
}

// An API server refuses a policy with an audit annotation of more bytes, or with
// any expression of more characters. A long list of detectors makes the annotation
// of its rule too long; the policy does without, for a refusal names the rule, too.
const (
	maxAnnotation = 5 << 10
	maxExpression = 100_000
)

func tooLong(of string, expressions ...string) error {
	for _, e := range expressions {
		if n := utf8.RuneCountInString(e); n > maxExpression {
			return fmt.Errorf("%s: an expression of %d characters, and an API server takes %d: list fewer standIns, lifecycle identities or detectors", of, n, maxExpression)
		}
	}
	return nil
}

// judged are the writes that can break a rule.
func judged(rule contract.Rule) []admissionv1.RuleWithOperations {
	if !rule.JudgesCreation() {
		return []admissionv1.RuleWithOperations{updateStatus}
	}
	return []admissionv1.RuleWithOperations{updateStatus, createNode}
}

// matchConditions is a single one, though it asks who writes and what: the API
// server evaluates all of several, and a kubelet's write should cost but the first.
func (r *renderer) matchConditions(rule contract.Rule) []admissionv1.MatchCondition {
	s := scope{r.p}
	touched := changesReady
	if rule == contract.UnauthorizedDetector {
		touched = s.touched()
	}
	return []admissionv1.MatchCondition{{
		Name:       "external-writer-touches-ready",
		Expression: s.judges(touched),
	}}
}

// bindings say what happens to a write that breaks the rule. A Node's creation
// records no failure: there a rule that denies only warns.
func (r *renderer) bindings(rule contract.Rule) []*admissionv1.ValidatingAdmissionPolicyBinding {
	bind := func(part string, action admissionv1.ValidationAction, to ...admissionv1.RuleWithOperations) *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: r.name(rule, part), Labels: ours()},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        r.name(rule, ""),
				ValidationActions: []admissionv1.ValidationAction{action},
				MatchResources:    exactly(to),
			},
		}
	}
	switch r.p.Action(rule) {
	case contract.Deny:
		if !rule.JudgesCreation() {
			return []*admissionv1.ValidatingAdmissionPolicyBinding{bind("", admissionv1.Deny)}
		}
		return []*admissionv1.ValidatingAdmissionPolicyBinding{
			bind("", admissionv1.Deny, updateStatus),
			bind(".create", admissionv1.Warn, createNode),
		}
	case contract.Warn:
		return []*admissionv1.ValidatingAdmissionPolicyBinding{bind("", admissionv1.Warn)}
	default:
		return []*admissionv1.ValidatingAdmissionPolicyBinding{bind("", admissionv1.Audit)}
	}
}

// exactly narrows a binding to some of its policy's writes; nil is all of them.
// What the policy matches has been converted already: to look for equivalents
// again would cost every write that a binding is not for.
func exactly(to []admissionv1.RuleWithOperations) *admissionv1.MatchResources {
	if len(to) == 0 {
		return nil
	}
	exact := admissionv1.Exact
	m := resources(to...)
	m.MatchPolicy = &exact
	return m
}

// messageExpression makes the message only where the rule is broken: an API
// server evaluates it for the writes that the policy admits, too.
func (r *renderer) messageExpression(c clause) string {
	broken := c.isBroken()
	return bound(r.known, broken+" ?\n"+bound(r.known, r.message(c.rule), needs(r.known, broken)...)+` : ""`)
}

// message is what the policy of a rule says: a bracket with the broken rules,
// then a sentence a rule. Each policy that denies names all that do, for an API
// server shows one refusal alone; where it only warns, of a creation, it speaks
// for itself. An API server would replace a message of more than 5 KiB by the
// static one; a character has at most four bytes.
func (r *renderer) message(rule contract.Rule) string {
	denies := r.p.Action(rule) == contract.Deny
	var findings []string
	for _, c := range r.on {
		if c.rule == rule || denies && r.p.Action(c.rule) == contract.Deny {
			findings = append(findings, c.isBroken()+` ? [["`+string(c.rule)+`"], `+c.said+`] : []`)
		}
	}
	own := `size(f) > 0`
	if denies {
		own += ` && (request.operation != "CREATE" || f[0][0] == "` + string(rule) + `")`
	}
	return `[` + advice(r.p) + `].map(advice, [
  ` + strings.Join(findings, ",\n  ") + `
].filter(f, ` + own + `)).map(all, "[" + all.map(f, f[0][0]).join(",") + "] " + all.map(f, ` + told("f[1]") + `).join("; ")
).map(m, size(bytes(m)) <= 5000 ? m : m.substring(0, 1200) + "...")[0]`
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
