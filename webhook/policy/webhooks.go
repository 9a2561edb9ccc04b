package policy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodewarden/nodewarden/contract"
)

// The names of the webhook configuration and of its entries.
const (
	ConfigurationName = "nodewarden-contract"
	ContractEntry     = "contract.nodewarden.dev"
	SkewEntry         = "skew.nodewarden.dev"
)

// Install says which enforcers a cluster has.
type Install string

const (
	// PolicyAndWebhook is the default: nothing gets past the policy, so the
	// webhook may fail open, and never stands in the way of its own rescue.
	PolicyAndWebhook Install = "policy-and-webhook"
	// WebhookAlone makes the webhook fail closed.
	WebhookAlone Install = "webhook-alone"
	// PolicyAlone has no webhook.
	PolicyAlone Install = "policy-alone"
)

// Installs returns every install.
func Installs() []Install { return []Install{PolicyAndWebhook, WebhookAlone, PolicyAlone} }

// ServiceReference is where in the cluster the webhook listens.
type ServiceReference struct {
	Namespace, Name string
	// Port of the Service; 0 means 443.
	Port int32
	// Path of the review endpoint; empty means /validate.
	Path string
}

// WebhookOptions say how the API server reaches the webhook, and what it does
// when it cannot.
type WebhookOptions struct {
	Install Install
	// Service or URL, one of them.
	Service *ServiceReference
	URL     string
	// CABundle is PEM; empty leaves the field to whoever injects it.
	CABundle []byte
	// Server is the oldest API server that is to call the webhook.
	Server Version
}

const reviewPath = "/validate"

// Webhooks renders the configuration that sends a webhook the writes that p
// judges, and no other.
func Webhooks(p contract.Policy, o WebhookOptions) (*admissionv1.ValidatingWebhookConfiguration, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := scope{&p}
	judged := o.entry(ContractEntry,
		"external-writer-touches-ready", s.judges(s.touched()))
	if o.Install == WebhookAlone {
		fail, patience := admissionv1.Fail, int32(3)
		judged.FailurePolicy, judged.TimeoutSeconds = &fail, &patience
	}
	c := &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName, Labels: ours()},
		Webhooks:   []admissionv1.ValidatingWebhook{judged},
	}
	if len(p.Lifecycle) > 0 && o.filters() {
		c.Webhooks = append(c.Webhooks, o.entry(SkewEntry,
			"lifecycle-writer-changes-ready-to-the-reserved-reason", allOf(s.skewing(), "("+changesReady+")", reserved)))
	}
	for _, w := range c.Webhooks {
		for _, m := range w.MatchConditions {
			if err := tooLong("webhook "+w.Name, m.Expression); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// reserved is true where the first Ready entry carries the node lifecycle
// controller's reason.
const reserved = `(` + conditionsAfter + `.filter(c, c.type == "Ready") + [dyn({})])[0].?reason.orValue("") == "NodeStatusUnknown"`

// filters says whether the API server understands matchConditions.
func (o WebhookOptions) filters() bool { return !o.Server.below(matchConditionsSince) }

// entry fails open after a second; that of the contract is stricter where the
// webhook stands alone. It has a single condition: the API server evaluates all
// of several, and a kubelet's write should cost but the first test.
func (o WebhookOptions) entry(name, called, condition string) admissionv1.ValidatingWebhook {
	ignore, none, equivalent, patience := admissionv1.Ignore, admissionv1.SideEffectClassNone, admissionv1.Equivalent, int32(1)
	var conditions []admissionv1.MatchCondition
	if o.filters() {
		conditions = []admissionv1.MatchCondition{{Name: called, Expression: condition}}
	}
	return admissionv1.ValidatingWebhook{
		Name:                    name,
		ClientConfig:            o.client(),
		Rules:                   []admissionv1.RuleWithOperations{updateStatus, createNode},
		MatchPolicy:             &equivalent,
		MatchConditions:         conditions,
		FailurePolicy:           &ignore,
		TimeoutSeconds:          &patience,
		SideEffects:             &none,
		AdmissionReviewVersions: []string{"v1"},
	}
}

func (o WebhookOptions) client() admissionv1.WebhookClientConfig {
	if o.URL != "" {
		return admissionv1.WebhookClientConfig{URL: &o.URL, CABundle: o.CABundle}
	}
	path, port := o.Service.Path, o.Service.Port
	if path == "" {
		path = reviewPath
	}
	if port == 0 {
		port = 443
	}
	return admissionv1.WebhookClientConfig{
		Service:  &admissionv1.ServiceReference{Namespace: o.Service.Namespace, Name: o.Service.Name, Path: &path, Port: &port},
		CABundle: o.CABundle,
	}
}

func (o WebhookOptions) validate() error {
	var problems []error
	switch o.Install {
	case PolicyAndWebhook, WebhookAlone:
	case PolicyAlone:
		problems = append(problems, fmt.Errorf("install %q has no webhook: render the form %q", o.Install, "policy"))
	default:
		problems = append(problems, fmt.Errorf("install %q: want one of %q", o.Install, []Install{PolicyAndWebhook, WebhookAlone}))
	}
	if o.Install == WebhookAlone && !o.filters() {
		problems = append(problems, fmt.Errorf("kubernetes version %s: without matchConditions (from %s on) a webhook that fails closed would stop every kubelet's report when it is down; use install %q, or a newer API server",
			o.Server, matchConditionsSince, PolicyAndWebhook))
	}
	if (o.Service == nil) == (o.URL == "") {
		problems = append(problems, errors.New("the webhook is reached through a service or a URL: name one of them"))
	}
	return errors.Join(append(problems, o.reachable())...)
}

// reachable says what the API server would not accept of an address.
func (o WebhookOptions) reachable() error {
	if s := o.Service; s != nil {
		switch {
		case s.Namespace == "" || s.Name == "":
			return fmt.Errorf("service %q in namespace %q: name both", s.Name, s.Namespace)
		case s.Port < 0 || s.Port > 65535:
			return fmt.Errorf("service port %d: want 1 to 65535", s.Port)
		case s.Path != "" && !servable(s.Path):
			return fmt.Errorf("service path %q: want a path such as /validate, of lower-case letters, digits, - and . between single slashes", s.Path)
		}
	}
	if o.URL == "" {
		return nil
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return fmt.Errorf("webhook URL: %w", err)
	case u.Scheme != "https" || u.Host == "" || u.Path == "":
		return fmt.Errorf("webhook URL %q: want https://host:port/path, such as https://127.0.0.1:9443/validate", o.URL)
	case u.Port() != "" && !connectable(u.Port()):
		return fmt.Errorf("webhook URL %q: port %s: want 1 to 65535", o.URL, u.Port())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("webhook URL %q: the API server allows no user, query or fragment", o.URL)
	}
	return nil
}

func connectable(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// servable is what an API server takes for the path of a service.
func servable(path string) bool {
	if path == "/" {
		return true
	}
	steps := strings.Split(strings.TrimSuffix(path, "/"), "/")
	return steps[0] == "" && len(steps) > 1 && !slices.ContainsFunc(steps[1:], func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) > 0 })
}

// The two kinds of write that can touch Ready, and nothing else: never leases,
// never other resources. Where both are listed the frequent one comes first.
var (
	createNode   = rule(admissionv1.Create, "nodes")
	updateStatus = rule(admissionv1.Update, "nodes/status")
)

func rule(operation admissionv1.OperationType, resource string) admissionv1.RuleWithOperations {
	cluster := admissionv1.ClusterScope
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{operation},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}, Scope: &cluster,
		},
	}
}

func resources(rules ...admissionv1.RuleWithOperations) *admissionv1.MatchResources {
	equivalent := admissionv1.Equivalent
	m := &admissionv1.MatchResources{MatchPolicy: &equivalent}
	for _, r := range rules {
		m.ResourceRules = append(m.ResourceRules, admissionv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return m
}

func ours() map[string]string { return map[string]string{"app.kubernetes.io/name": "nodewarden"} }
