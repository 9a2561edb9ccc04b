package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

type fact struct {
	Name string `yaml:"name"`
	part `yaml:",inline"`
}

type rule struct {
	Name    contract.Rule   `yaml:"name"`
	Policy  string          `yaml:"policy"`
	Default contract.Action `yaml:"default"`
	// Stamp marks the rules that exclude each other, in this order.
	Stamp bool `yaml:"stamp,omitempty"`
	// Creation marks the rules that a Node's creation can break too.
	Creation bool   `yaml:"creation,omitempty"`
	Refuses  string `yaml:"refuses"`
	Broken   part   `yaml:"broken"`
	Said     part   `yaml:"said"`
}

// document is files/contract.yaml.
type document struct {
	// Is names one writer by user, IsIn by user and group.
	Is   string `yaml:"is"`
	IsIn string `yaml:"isIn"`
	// External begins the condition with the writers that are judged; one of
	// ChangesReady and Touches ends it with the writes that are: the second also
	// where labels decide who may write.
	External     string `yaml:"external"`
	ChangesReady string `yaml:"changesReady"`
	Touches      string `yaml:"touches"`
	// Skewing is true for the writes that show skew.
	Skewing string `yaml:"skewing"`
	// Facts are what rules are stated in, and read as facts.<name>; the last of them is the
	// ladder of the rules that exclude each other.
	Facts []fact `yaml:"facts"`
	Rules []rule `yaml:"rules"`
	// Advice is what messages are made of.
	Advice part `yaml:"advice"`
	// Deny is the message of a rule that refuses, Tell that of any other.
	Deny string `yaml:"deny"`
	Tell string `yaml:"tell"`
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

// policy is the policy of shape s with every rule at action.
func (s shape) policy(action contract.Action) contract.Policy {
	p := contract.Policy{
		Rules: map[contract.Rule]contract.Action{}, MaxClockSkew: markedSkew,
		StandIns: []contract.Identity{markedStandIn}, Lifecycle: []contract.Identity{markedLifecycle}, Controller: markedController,
	}
	for _, r := range contract.Rules() {
		p.Rules[r] = action
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
	d := &document{}
	if err := d.readWebhooks(); err != nil {
		return nil, err
	}
	if err := d.readFacts(); err != nil {
		return nil, err
	}
	if err := d.readRules(); err != nil {
		return nil, err
	}
	if err := d.readForms(); err != nil {
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
	text := c.Webhooks[1].MatchConditions[0].Expression // (is) && !(kubelet) && ...
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
		c, err := policy.Webhooks(s.policy(contract.Deny), webhookOptions())
		if err != nil {
			return err
		}
		external, touches, found := strings.Cut(c.Webhooks[0].MatchConditions[0].Expression, " &&\n(")
		if !found {
			return fmt.Errorf("the contract entry's expression has another form: %s", external)
		}
		touches = strings.TrimSuffix(touches, ")")
		if s.detectors {
			d.Touches = touches
			continue
		}
		d.ChangesReady = touches
		if d.External, err = withoutIdentities(external, "", "@kubelets-and-controllers@", markedStandIn, markedController, markedLifecycle); err != nil {
			return err
		}
		if d.Skewing, err = skewing(c.Webhooks[1].MatchConditions[0].Expression); err != nil {
			return err
		}
	}
	return nil
}

// withoutIdentities replaces a run of identities and what stands before it by a hole.
func withoutIdentities(text, before, hole string, ids ...contract.Identity) (string, error) {
	var run []string
	for _, id := range ids {
		named, err := is(id)
		if err != nil {
			return "", err
		}
		run = append(run, named)
	}
	return replaceOnce(text, before+strings.Join(run, " ||\n"), hole)
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
	pairs = append(pairs, `"one of 1 listed"`, `"one of @detector-count@ listed"`)
	return strings.NewReplacer(pairs...).Replace(text)
}

// readFacts reads what the rules are stated in.
func (d *document) readFacts() error {
	authorized, err := is(markedDetector.Identity)
	if err != nil {
		return err
	}
	authorized += ` && "marked" in labels && labels["marked"] in ["value"]`
	cases, advice := map[string]map[shape]string{}, map[shape]string{}
	for _, s := range shapes() {
		parts, err := policy.TakenApart(s.policy(contract.Deny))
		if err != nil {
			return err
		}
		advice[s] = filled(parts.Advice)
		for _, f := range parts.Facts {
			text := filled(f.Expression)
			switch f.Name {
			case "detector":
				if !s.detectors {
					continue // nothing reads it
				}
				text, err = replaceOnce(text, authorized, "@detectors@")
			case "stamp":
				text, err = replaceOnce(text, ladder(parts), "@ladder@")
			}
			if err != nil {
				return err
			}
			if cases[f.Name] == nil {
				cases[f.Name] = map[shape]string{}
				d.Facts = append(d.Facts, fact{Name: f.Name})
			}
			cases[f.Name][s] = text
		}
	}
	for i := range d.Facts {
		d.Facts[i].part = newPart(cases[d.Facts[i].Name])
	}
	d.Advice = newPart(advice)
	return nil
}

// ladder is what the rules that exclude each other make together.
func ladder(parts *policy.Parts) string {
	var text string
	for _, p := range parts.Rules {
		if p.Rule.JudgesTransitionTime() {
			text += filled(p.Broken) + ` ? "` + string(p.Rule) + `" :` + "\n"
		}
	}
	return text
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
	broken, said := map[contract.Rule]map[shape]string{}, map[contract.Rule]map[shape]string{}
	for _, s := range shapes() {
		parts, err := policy.TakenApart(s.policy(contract.Deny))
		if err != nil {
			return err
		}
		for _, p := range parts.Rules {
			if broken[p.Rule] == nil {
				broken[p.Rule], said[p.Rule] = map[shape]string{}, map[shape]string{}
			}
			broken[p.Rule][s], said[p.Rule][s] = filled(p.Broken), filled(p.Said)
		}
	}
	set, err := policy.Policies(shapes()[0].policy(contract.Deny), policy.Options{})
	if err != nil {
		return err
	}
	for _, g := range set.Guards {
		r := g.Rule
		d.Rules = append(d.Rules, rule{
			Name: r, Policy: g.Policy.Name, Default: r.Default(), Stamp: r.JudgesTransitionTime(), Creation: r.JudgesCreation(), Refuses: r.Refuses(),
			Broken: newPart(broken[r]), Said: newPart(said[r]),
		})
	}
	return nil
}

// readForms reads what holds the rules together, off a policy with one rule.
func (d *document) readForms() error {
	const lone = contract.TransitionTimeMissing
	for _, action := range []contract.Action{contract.Deny, contract.Warn} {
		p := contract.Policy{Rules: map[contract.Rule]contract.Action{}}
		for _, r := range contract.Rules() {
			p.Rules[r] = contract.Off
		}
		p.Rules[lone] = action
		parts, err := policy.TakenApart(p)
		if err != nil {
			return err
		}
		finding := `facts.stamp == "` + string(lone) + `" ? [["` + string(lone) + `"], ` + parts.Rules[0].Said + `] : []`
		form, err := replaceOnce(parts.Rules[0].Message, finding, "@findings@")
		if err != nil {
			return err
		}
		if form, err = replaceOnce(form, parts.Advice, "@advice@"); err != nil {
			return err
		}
		if action == contract.Warn {
			d.Tell = form
			continue
		}
		if d.Deny, err = replaceOnce(form, string(lone), "@rule@"); err != nil {
			return err
		}
	}
	return nil
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
	p := shape{detectors: true}.policy(contract.Deny)
	p.Detectors[0].Nodes = s
	parts, err := policy.TakenApart(p)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(parts.Facts, func(f policy.Fact) bool { return f.Name == "detector" })
	named, err := is(markedDetector.Identity)
	if err != nil {
		return "", err
	}
	_, text, found := strings.Cut(parts.Facts[i].Expression, named+" && ")
	text, whole := strings.CutSuffix(text, "\n})[0]")
	if !found || !whole {
		return "", fmt.Errorf("the selector of a detector has another form: %s", parts.Facts[i].Expression)
	}
	return text, nil
}
