package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"

	"go.yaml.in/yaml/v3"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// The chart cannot run the renderer of package policy. What it can do is put
// identities and durations into expressions, and pick rules. So the renderer
// runs here, over policies whose identities and durations are unmistakable, and
// their places in its text become holes. A test renders the chart over many
// values and compares every object with the renderer's.

// Durations that no expression holds by itself.
const (
	markedHold        = 7*time.Hour + 13*time.Minute + 59*time.Second
	markedPersistence = 8*time.Hour + 17*time.Minute + 53*time.Second
	markedSkew        = 9*time.Hour + 19*time.Minute + 47*time.Second
)

var (
	markedStandIn    = contract.Identity{User: "marked-stand-in", Group: "marked-stand-ins"}
	markedLifecycle  = contract.Identity{User: "marked-lifecycle", Group: "marked-lifecycles"}
	markedController = contract.Identity{User: "marked-controller", Group: "marked-controllers"}
	markedDetector   = contract.Detector{Identity: contract.Identity{User: "marked-detector", Group: "marked-detectors"}, Nodes: labels.SelectorFromSet(labels.Set{"marked": "value"})}
)

// part is an expression, or one for each case of something that changes its
// shape and not just its holes.
type part struct {
	Text string `yaml:"text,omitempty"`
	// By names what the cases differ by; their keys have a digit for each, 1
	// where it is set.
	By    []string          `yaml:"by,omitempty"`
	Cases map[string]string `yaml:"cases,omitempty"`
}

type variable struct {
	Name string `yaml:"name"`
	part `yaml:",inline"`
}

type rule struct {
	Name    contract.Rule   `yaml:"name"`
	Policy  string          `yaml:"policy"`
	Default contract.Action `yaml:"default"`
	// Stamp marks the rules that exclude each other, in this order.
	Stamp   bool   `yaml:"stamp,omitempty"`
	Refuses string `yaml:"refuses"`
	Broken  part   `yaml:"broken"`
	Said    part   `yaml:"said"`
	// Deny is the message of a rule that refuses, Tell that of any other.
	Deny string `yaml:"deny"`
	Tell string `yaml:"tell"`
}

// unfolded leaves variables where the templates expect them. They fold, too:
// after the values are in.
var unfolded = policy.Options{Unfolded: true}

// message is the variable that holds a policy's message.
const message = "message"

// document is files/contract.yaml.
type document struct {
	// Is names one writer by user, IsIn by user and group.
	Is   string `yaml:"is"`
	IsIn string `yaml:"isIn"`
	// External is true for writers that are judged, ChangesReady and Touches for
	// writes that are: the second also where labels decide who may write.
	External     string `yaml:"external"`
	ChangesReady string `yaml:"changesReady"`
	Touches      string `yaml:"touches"`
	// Skewing is true for lifecycle writers whose writes show skew, ToReserved
	// for the write that does.
	Skewing    string `yaml:"skewing"`
	ToReserved string `yaml:"toReserved"`
	// Message is the message expression of every policy.
	Message   string     `yaml:"message"`
	Variables []variable `yaml:"variables"`
	Rules     []rule     `yaml:"rules"`
	// Short and Kept say which variables fold.
	Short int      `yaml:"short"`
	Kept  []string `yaml:"kept"`
	// Selects are the four forms of a label requirement.
	Selects map[string]string `yaml:"selects"`
}

// shape is which of the settings that change the shape of expressions are set.
type shape struct{ hold, persistence, detectors bool }

// shapes are all of them, the fullest first: its policies know every variable.
func shapes() []shape {
	var all []shape
	for _, hold := range []bool{true, false} {
		for _, persistence := range []bool{true, false} {
			for _, detectors := range []bool{true, false} {
				all = append(all, shape{hold, persistence, detectors})
			}
		}
	}
	return all
}

// settings are the names of what a shape has, in the order of key's digits.
var settings = []string{"hold", "persistence", "detectors"}

// key is s in a digit for each setting that is asked for.
func (s shape) key(by []string) string {
	var key string
	for i, set := range []bool{s.hold, s.persistence, s.detectors} {
		switch {
		case !slices.Contains(by, settings[i]):
		case set:
			key += "1"
		default:
			key += "0"
		}
	}
	return key
}

// policy is the policy of shape s with every rule at action, or with one rule
// alone.
func (s shape) policy(action contract.Action, only contract.Rule) contract.Policy {
	p := contract.Policy{
		Rules: map[contract.Rule]contract.Action{}, MaxClockSkew: markedSkew,
		StandIns: []contract.Identity{markedStandIn}, Lifecycle: []contract.Identity{markedLifecycle}, Controller: markedController,
	}
	for _, r := range contract.Rules() {
		p.Rules[r] = action
		if only != "" && r != only {
			p.Rules[r] = contract.Off
		}
	}
	if s.hold {
		p.RecoveryHold = markedHold
	}
	if s.persistence {
		p.SignalPersistence = markedPersistence
	}
	if s.detectors {
		p.Detectors = []contract.Detector{markedDetector}
	}
	return p
}

// contractFile is files/contract.yaml.
func contractFile() ([]byte, error) {
	d, err := newDocument()
	if err != nil {
		return nil, fmt.Errorf("the contract: %w", err)
	}
	var out bytes.Buffer
	out.WriteString("# Code generated by deploy/generate from webhook/policy. DO NOT EDIT.\n# Holes stand between @ and @; templates/_contract.tpl fills them.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

func newDocument() (*document, error) {
	folding := policy.HowVariablesFold()
	d := &document{Short: folding.Short, Kept: folding.Kept}
	if err := d.readWebhooks(); err != nil {
		return nil, err
	}
	if err := d.readVariables(); err != nil {
		return nil, err
	}
	if err := d.readRules(); err != nil {
		return nil, err
	}
	return d, d.readSelectors()
}

// is is how the renderer names an identity, read off a policy of nobody else.
func is(i contract.Identity) (string, error) {
	c, err := policy.Webhooks(contract.Policy{Lifecycle: []contract.Identity{i}}, webhookOptions())
	if err != nil {
		return "", err
	}
	text := c.Webhooks[1].MatchConditions[0].Expression // (is) && !(kubelet)
	open, end := strings.Index(text, "("), strings.Index(text, ") &&\n!(")
	if open != 0 || end < 0 {
		return "", fmt.Errorf("the skew entry's expression has another form: %s", text)
	}
	return text[1:end], nil
}

func webhookOptions() policy.WebhookOptions {
	return policy.WebhookOptions{Install: policy.PolicyAndWebhook, URL: "https://marked/validate"}
}

func (d *document) readWebhooks() error {
	bare, err := is(contract.Identity{User: "marked"})
	if err != nil {
		return err
	}
	grouped, err := is(contract.Identity{User: "marked", Group: "grouped"})
	if err != nil {
		return err
	}
	d.Is = strings.Replace(bare, `"marked"`, "@user@", 1)
	d.IsIn = strings.NewReplacer(`"marked"`, "@user@", `"grouped"`, "@group@").Replace(grouped)

	for _, s := range []shape{{}, {detectors: true}} {
		c, err := policy.Webhooks(s.policy(contract.Deny, ""), webhookOptions())
		if err != nil {
			return err
		}
		judged, skew := c.Webhooks[0].MatchConditions, c.Webhooks[1].MatchConditions
		if s.detectors {
			d.Touches = judged[1].Expression
			continue
		}
		d.ChangesReady = judged[1].Expression
		d.ToReserved = skew[2].Expression
		if skew[1].Expression != d.ChangesReady {
			return fmt.Errorf("the skew entry looks at other writes than the contract's: %s", skew[1].Expression)
		}
		if d.External, err = withoutIdentities(judged[0].Expression, " ||\n", "@kubelets-and-controllers@", markedStandIn, markedController, markedLifecycle); err != nil {
			return err
		}
		if d.Skewing, err = skewing(skew[0].Expression); err != nil {
			return err
		}
	}
	return nil
}

// withoutIdentities replaces a run of identities, each after a separator, by a hole.
func withoutIdentities(text, separator, hole string, ids ...contract.Identity) (string, error) {
	var run string
	for _, id := range ids {
		named, err := is(id)
		if err != nil {
			return "", err
		}
		run += separator + named
	}
	return replaceOnce(text, run, hole)
}

func skewing(text string) (string, error) {
	text, err := withoutIdentities(text, "", "@lifecycle@", markedLifecycle)
	if err != nil {
		return "", err
	}
	if text, err = withoutIdentities(text, " ||\n", "@kubelets@", markedStandIn); err != nil {
		return "", err
	}
	return withoutIdentities(text, "", "@controller@", markedController)
}

func replaceOnce(text, old, hole string) (string, error) {
	if strings.Count(text, old) != 1 {
		return "", fmt.Errorf("%q stands %d times, and not once, in: %s", old, strings.Count(text, old), text)
	}
	return strings.Replace(text, old, hole, 1), nil
}

// filled puts holes where durations and counts were.
func filled(text string) string {
	hole := func(d time.Duration) []string {
		seconds := strconv.FormatInt(int64(d/time.Second), 10)
		return []string{d.String(), "@text@", seconds, "@seconds@"}
	}
	name := func(of string, pairs []string) []string {
		for i := 1; i < len(pairs); i += 2 {
			pairs[i] = "@" + of + "-" + strings.Trim(pairs[i], "@") + "@"
		}
		return pairs
	}
	var pairs []string
	pairs = append(pairs, name("recovery-hold", hole(markedHold))...)
	pairs = append(pairs, name("signal-persistence", hole(markedPersistence))...)
	pairs = append(pairs, name("max-clock-skew", hole(markedSkew))...)
	pairs = append(pairs, "was one of 1 listed", "was one of @detector-count@ listed")
	return strings.NewReplacer(pairs...).Replace(text)
}

// readVariables reads what rules are stated in: everything that any policy
// knows, apart from the rules themselves.
func (d *document) readVariables() error {
	own := map[string]bool{"findings": true, message: true}
	for _, r := range contract.Rules() {
		own[string(r)], own["said"+string(r)] = true, true
	}
	authorized, err := is(markedDetector.Identity)
	if err != nil {
		return err
	}
	authorized += ` && "marked" in variables.labels && variables.labels["marked"] in ["value"]`
	cases := map[string]map[shape]string{}
	for _, s := range shapes() {
		set, err := policy.Policies(s.policy(contract.Deny, ""), unfolded)
		if err != nil {
			return err
		}
		for _, v := range widest(set) {
			if own[v.Name] {
				continue
			}
			if cases[v.Name] == nil {
				cases[v.Name] = map[shape]string{}
				d.Variables = append(d.Variables, variable{Name: v.Name})
			}
			text := filled(v.Expression)
			if v.Name == "authorized" {
				if text, err = replaceOnce(text, authorized, "@detectors@"); err != nil && s.detectors {
					return err
				}
			}
			cases[v.Name][s] = text
		}
	}
	for i := range d.Variables {
		d.Variables[i].part = newPart(cases[d.Variables[i].Name])
	}
	return nil
}

// widest are the variables of the policy that reads most.
func widest(set *policy.Set) []admissionv1.Variable {
	var all []admissionv1.Variable
	for _, g := range set.Guards {
		if v := g.Policy.Spec.Variables; len(v) > len(all) {
			all = v
		}
	}
	return all
}

// newPart keeps no more cases than differ.
func newPart(cases map[shape]string) part {
	for _, by := range [][]string{nil, {"hold"}, {"persistence"}, {"detectors"}, {"hold", "persistence"}, settings} {
		if p, whole := partBy(by, cases); whole {
			return p
		}
	}
	return part{}
}

// partBy says whether the settings named account for every difference.
func partBy(by []string, cases map[shape]string) (part, bool) {
	p := part{By: by, Cases: map[string]string{}}
	for s, text := range cases {
		key := s.key(by)
		if other, held := p.Cases[key]; held && other != text {
			return part{}, false
		}
		p.Cases[key] = text
	}
	if by == nil {
		p.Text, p.Cases = p.Cases[""], nil
	}
	return p, true
}

func (d *document) readRules() error {
	for _, r := range contract.Rules() {
		out := rule{Name: r, Default: r.Default(), Stamp: r.JudgesTransitionTime(), Refuses: r.Refuses()}
		broken, said := map[shape]string{}, map[shape]string{}
		for _, s := range shapes() {
			for _, action := range []contract.Action{contract.Deny, contract.Warn} {
				p, err := alone(s, action, r)
				if err != nil {
					return err
				}
				if p == nil {
					continue // a rule on detectors without any
				}
				if err := d.readMessage(p, r); err != nil {
					return err
				}
				out.Policy = p.Name
				for _, v := range p.Spec.Variables {
					switch v.Name {
					case string(r):
						broken[s] = filled(v.Expression)
					case "said" + string(r):
						said[s] = filled(v.Expression)
					case message:
						*map[contract.Action]*string{contract.Deny: &out.Deny, contract.Warn: &out.Tell}[action] = v.Expression
					}
				}
			}
		}
		out.Broken, out.Said = newPart(broken), newPart(said)
		d.Rules = append(d.Rules, out)
	}
	return nil
}

// alone is the policy of r where every other rule is off, or nil.
func alone(s shape, action contract.Action, r contract.Rule) (*admissionv1.ValidatingAdmissionPolicy, error) {
	set, err := policy.Policies(s.policy(action, r), unfolded)
	if err != nil || len(set.Guards) == 0 {
		return nil, err
	}
	return set.Guards[0].Policy, nil
}

// readMessage reads the message expression, which all policies share.
func (d *document) readMessage(p *admissionv1.ValidatingAdmissionPolicy, r contract.Rule) error {
	text, err := replaceOnce(p.Spec.Validations[0].MessageExpression, "variables."+string(r), "@broken@")
	if err == nil && d.Message != "" && d.Message != text {
		err = fmt.Errorf("%s has a message expression of its own: %s", r, text)
	}
	d.Message = text
	return err
}

// readSelectors reads how each operator of a label requirement is said.
func (d *document) readSelectors() error {
	d.Selects = map[string]string{}
	for operator, selector := range map[string]string{
		"In": "marked in (value)", "NotIn": "marked notin (value)", "Exists": "marked", "DoesNotExist": "!marked",
	} {
		s, err := labels.Parse(selector)
		if err != nil {
			return err
		}
		authorized, err := authorizing(s)
		if err != nil {
			return err
		}
		d.Selects[operator] = strings.NewReplacer(`"marked"`, "@key@", `["value"]`, "@values@").Replace(authorized)
	}
	return nil
}

// authorizing is what s adds to the name of a detector.
func authorizing(s labels.Selector) (string, error) {
	p := shape{detectors: true}.policy(contract.Deny, contract.UnauthorizedDetector)
	p.Detectors[0].Nodes = s
	set, err := policy.Policies(p, unfolded)
	if err != nil {
		return "", err
	}
	all := set.Guards[0].Policy.Spec.Variables
	i := slices.IndexFunc(all, func(v admissionv1.Variable) bool { return v.Name == "authorized" })
	named, err := is(markedDetector.Identity)
	if err != nil {
		return "", err
	}
	text, found := strings.CutPrefix(all[i].Expression, named+" && ")
	if !found {
		return "", fmt.Errorf("the selector of a detector has another form: %s", text)
	}
	return text, nil
}
