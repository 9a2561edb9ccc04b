package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewarden/nodewarden/contract"
)

const (
	serviceAccountPrefix = "system:serviceaccount:"
	nodeUserPrefix       = "system:node:"
)

var livenessSources = []LivenessSource{FromKubelet, FromExternal}

// Validate returns everything wrong with c, each at its own path. It expects
// defaults to be filled in.
func (c *WebhookConfiguration) Validate() field.ErrorList {
	var errs field.ErrorList
	if !slices.Contains(contract.Profiles(), c.Profile) {
		errs = append(errs, field.NotSupported(field.NewPath("profile"), c.Profile, contract.Profiles()))
	}
	errs = append(errs, c.validateRules(field.NewPath("rules"))...)
	errs = append(errs, c.RecoveryHold.validate(field.NewPath("recoveryHold"), 0)...)
	errs = append(errs, c.SignalPersistence.validate(field.NewPath("signalPersistence"), 0)...)
	errs = append(errs, c.MaxClockSkew.validate(field.NewPath("maxClockSkew"), time.Second)...)
	if !slices.Contains(livenessSources, c.LivenessSource) {
		errs = append(errs, field.NotSupported(field.NewPath("livenessSource"), c.LivenessSource, livenessSources))
	}
	for i, id := range c.StandIns {
		errs = append(errs, id.validate(field.NewPath("standIns").Index(i))...)
	}
	if len(*c.Lifecycle) == 0 {
		errs = append(errs, field.Required(field.NewPath("lifecycle"),
			"an empty list has kube-controller-manager judged like any detector, and then nobody marks dead nodes; leave it out for the usual identities, or name yours"))
	}
	for i, id := range *c.Lifecycle {
		errs = append(errs, id.validate(field.NewPath("lifecycle").Index(i))...)
	}
	errs = append(errs, c.Controller.validate(field.NewPath("controller"))...)
	errs = append(errs, c.validateDetectors(field.NewPath("detectors"))...)
	return append(errs, c.Stalled.validate(field.NewPath("stalled"))...)
}

func (c *WebhookConfiguration) validateRules(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, r := range slices.Sorted(maps.Keys(c.Rules)) {
		if !r.Known() {
			errs = append(errs, field.NotSupported(at, r, contract.Rules()))
		}
		if a := c.Rules[r]; !slices.Contains(contract.Actions(), a) {
			errs = append(errs, field.NotSupported(at.Key(string(r)), a, contract.Actions()))
		}
	}
	on := func(r contract.Rule) bool { a, ok := c.Rules[r]; return ok && a != contract.Off }
	if on(contract.SignalTooYoung) && c.SignalPersistence.Duration == 0 {
		errs = append(errs, field.Required(field.NewPath("signalPersistence"), "rules[SignalTooYoung] is on and has nothing to measure with; set for example 30s, or turn the rule off"))
	}
	if _, set := c.Rules[contract.SignalTooYoung]; c.SignalPersistence.Duration > 0 && !set {
		errs = append(errs, field.Required(at.Key(string(contract.SignalTooYoung)),
			"signalPersistence is set and the rule that reads it is off by default; set it to deny, warn, audit or off"))
	}
	if on(contract.UnauthorizedDetector) && len(c.Detectors) == 0 {
		errs = append(errs, field.Required(field.NewPath("detectors"), "rules[UnauthorizedDetector] is on and lists nobody; list the detectors, or turn the rule off"))
	}
	return errs
}

func (c *WebhookConfiguration) validateDetectors(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, set := c.Rules[contract.UnauthorizedDetector]; len(c.Detectors) > 0 && !set {
		errs = append(errs, field.Required(field.NewPath("rules").Key(string(contract.UnauthorizedDetector)),
			"detectors are listed and the rule that reads the list is off by default; set it to deny, warn, audit or off"))
	}
	spared := c.spared()
	for i, d := range c.Detectors {
		errs = append(errs, d.validate(at.Index(i))...)
		where, ok := spared[d.contract().Identity]
		if !ok {
			where, ok = spared[contract.Identity{User: d.contract().User}] // whatever its groups
		}
		if ok {
			errs = append(errs, field.Invalid(at.Index(i), d.contract().User, "is listed under "+where+" as well, and so is never judged; list it once"))
		}
		if d.NodeSelector != nil {
			errs = append(errs, metavalidation.ValidateLabelSelector(d.NodeSelector, metavalidation.LabelSelectorValidationOptions{}, at.Index(i).Child("nodeSelector"))...)
		}
	}
	return errs
}

// spared are the writers that are never judged, and where they are listed.
func (c *WebhookConfiguration) spared() map[contract.Identity]string {
	listed := map[contract.Identity]string{c.Controller.contract(): "controller"}
	for _, id := range *c.Lifecycle {
		listed[id.contract()] = "lifecycle"
	}
	for _, id := range c.StandIns {
		listed[id.contract()] = "standIns"
	}
	return listed
}

func (id Identity) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case id.ServiceAccount != nil && (id.User != "" || id.Group != ""):
		errs = append(errs, field.Forbidden(at, "names both a serviceAccount and a user; name one"))
	case id.ServiceAccount != nil:
		errs = append(errs, id.ServiceAccount.validate(at.Child("serviceAccount"))...)
	case id.User == "":
		errs = append(errs, field.Required(at, "names nobody; give serviceAccount or user"))
	case strings.HasPrefix(id.User, serviceAccountPrefix):
		errs = append(errs, field.Invalid(at.Child("user"), id.User, "is a service account; give it as serviceAccount: {namespace: ..., name: ...}, which also checks its group"))
	case strings.HasPrefix(id.User, nodeUserPrefix):
		errs = append(errs, field.Invalid(at.Child("user"), id.User, "is a kubelet, which may write its own node without being listed and no other one"))
	}
	return errs
}

func (a ServiceAccount) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Label(a.Namespace) {
		errs = append(errs, field.Invalid(at.Child("namespace"), a.Namespace, problem))
	}
	for _, problem := range validation.IsDNS1123Subdomain(a.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), a.Name, problem))
	}
	return errs
}

// maxDuration keeps every sum of durations far from overflow, in Go and in CEL.
const maxDuration = 24 * time.Hour

func (d *Duration) validate(at *field.Path, least time.Duration) field.ErrorList {
	switch {
	case d.unreadable != nil:
		return field.ErrorList{field.Invalid(at, *d.unreadable, "is not a duration; write for example 10s or 5m")}
	case d.Duration < least || d.Duration > maxDuration:
		return field.ErrorList{field.Invalid(at, d.String(), "must be between "+least.String()+" and "+maxDuration.String())}
	case d.Duration%time.Second != 0:
		return field.ErrorList{field.Invalid(at, d.String(), "must be whole seconds, as the times of conditions are")}
	}
	return nil
}

func (s Stalled) validate(at *field.Path) field.ErrorList {
	errs := s.StatusReportPeriod.validate(at.Child("statusReportPeriod"), time.Second)
	if *s.AfterPeriods < 1 || *s.AfterPeriods > 1000 {
		errs = append(errs, field.Invalid(at.Child("afterPeriods"), *s.AfterPeriods, "must be between 1 and 1000"))
	}
	if *s.MaxNamedNodes < 0 || *s.MaxNamedNodes > 10000 {
		errs = append(errs, field.Invalid(at.Child("maxNamedNodes"), *s.MaxNamedNodes, "must be between 0 and 10000"))
	}
	return errs
}

// Policy is the contract policy that c describes. c must be valid.
func (c *WebhookConfiguration) Policy() contract.Policy {
	p := contract.Policy{
		Profile: c.Profile, Rules: c.Rules,
		RecoveryHold: c.RecoveryHold.Duration, SignalPersistence: c.SignalPersistence.Duration, MaxClockSkew: c.MaxClockSkew.Duration,
		Controller: c.Controller.contract(),
	}
	for _, id := range c.StandIns {
		p.StandIns = append(p.StandIns, id.contract())
	}
	for _, id := range *c.Lifecycle {
		p.Lifecycle = append(p.Lifecycle, id.contract())
	}
	for _, d := range c.Detectors {
		p.Detectors = append(p.Detectors, d.contract())
	}
	return p
}

func (id Identity) contract() contract.Identity {
	if id.ServiceAccount != nil {
		return contract.ServiceAccount(id.ServiceAccount.Namespace, id.ServiceAccount.Name)
	}
	return contract.Identity{User: id.User, Group: id.Group}
}

func (d Detector) contract() contract.Detector {
	of := contract.Detector{Identity: d.Identity.contract()}
	if d.NodeSelector == nil {
		return of
	}
	selector, err := metav1.LabelSelectorAsSelector(d.NodeSelector)
	if err != nil {
		selector = labels.Nothing() // not reached with a valid c; never the whole cluster
	}
	of.Nodes = selector
	return of
}
