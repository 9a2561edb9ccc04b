package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
)

func service() WebhookOptions {
	return WebhookOptions{Install: PolicyAndWebhook, Service: &ServiceReference{Namespace: "nodewarden-system", Name: "nodewarden-webhook"}}
}

// Whatever the API server keeps from the webhook, the contract must have had
// nothing to say about; whatever it sends, the contract may judge.
func TestTheWebhookIsCalledForExactlyTheWritesThatAreJudged(t *testing.T) {
	t.Parallel()
	policies, requests := 30, 600
	if underRace {
		policies, requests = 5, 200
	}
	g := writes.From(3)
	called := map[string]int{}
	for range policies {
		p := g.Policy()
		c, err := Webhooks(p, service())
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range c.Webhooks {
			calls := compileConditions(t, entry.MatchConditions, newestEnv, environment.StoredExpressions)
			for range requests {
				r := request(g.Write())
				w := r.write()
				want := p.Class(w.User, w.Node) == contract.External && p.InScope(w)
				if entry.Name == SkewEntry {
					want = p.Skew(w)
				}
				got, err := calls(r.attributes())
				if err != nil {
					t.Fatalf("an evaluation error is a defect: %v\n%s", err, show(r, p))
				}
				if got != want {
					t.Fatalf("%s: called is %v, want %v\n%s", entry.Name, got, want, show(r, p))
				}
				if got {
					called[entry.Name]++
				}
			}
		}
	}
	for _, name := range []string{ContractEntry, SkewEntry} {
		if called[name] == 0 {
			t.Errorf("%s was never called: the generator does not reach it", name)
		}
	}
}

func TestTheConditionsCompileOnTheOldestServerTheyAreRenderedFor(t *testing.T) {
	c, err := Webhooks(everything(), service())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range c.Webhooks {
		compileConditions(t, entry.MatchConditions, oldestEnv, environment.NewExpressions)
	}
}

func TestTheRulesListNothingButWritesThatCanTouchReady(t *testing.T) {
	c, err := Webhooks(contract.Default(contract.Enforce), service())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Webhooks {
		var rules []string
		for _, r := range w.Rules {
			if *r.Scope != admissionv1.ClusterScope || !slices.Equal(r.APIGroups, []string{""}) || !slices.Equal(r.APIVersions, []string{"v1"}) {
				t.Errorf("%s: rule %+v", w.Name, r)
			}
			rules = append(rules, string(r.Operations[0])+" "+strings.Join(r.Resources, ","))
		}
		if want := []string{"UPDATE nodes/status", "CREATE nodes"}; !slices.Equal(rules, want) {
			t.Errorf("%s: rules are %q, want %q", w.Name, rules, want)
		}
		if *w.MatchPolicy != admissionv1.Equivalent || *w.SideEffects != admissionv1.SideEffectClassNone || w.NamespaceSelector != nil || w.ObjectSelector != nil {
			t.Errorf("%s: %+v", w.Name, w)
		}
	}
}

func TestTheInstallDecidesWhatHappensWhenTheWebhookIsAway(t *testing.T) {
	for install, want := range map[Install]struct {
		policy  admissionv1.FailurePolicyType
		seconds int32
	}{
		PolicyAndWebhook: {admissionv1.Ignore, 1},
		WebhookAlone:     {admissionv1.Fail, 3},
	} {
		o := service()
		o.Install = install
		c, err := Webhooks(contract.Default(contract.Enforce), o)
		if err != nil {
			t.Fatal(err)
		}
		if w := c.Webhooks[0]; *w.FailurePolicy != want.policy || *w.TimeoutSeconds != want.seconds {
			t.Errorf("%s: %s after %d s, want %s after %d s", install, *w.FailurePolicy, *w.TimeoutSeconds, want.policy, want.seconds)
		}
		if w := c.Webhooks[1]; w.Name != SkewEntry || *w.FailurePolicy != admissionv1.Ignore || *w.TimeoutSeconds != 1 {
			t.Errorf("%s: the skew entry is %s after %d s, want Ignore after 1 s", install, *w.FailurePolicy, *w.TimeoutSeconds)
		}
	}
}

func TestOptionsThatWouldHarmAClusterAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*WebhookOptions)
		want   string
	}{
		"failing closed without matchConditions": {func(o *WebhookOptions) { o.Install, o.Server = WebhookAlone, Version{1, 27} }, "would stop every kubelet's report"},
		"neither service nor URL":                {func(o *WebhookOptions) { o.Service = nil }, "name one of them"},
		"both service and URL":                   {func(o *WebhookOptions) { o.URL = "https://h/" }, "name one of them"},
		"a URL without TLS":                      {func(o *WebhookOptions) { o.Service, o.URL = nil, "http://h/" }, "want https://"},
		"a URL without a path":                   {func(o *WebhookOptions) { o.Service, o.URL = nil, "https://h" }, "/validate"},
		"a URL with a query":                     {func(o *WebhookOptions) { o.Service, o.URL = nil, "https://h/?a=b" }, "no user, query or fragment"},
		"a URL with a port that is none":         {func(o *WebhookOptions) { o.Service, o.URL = nil, "https://h:99999/x" }, "port 99999: want 1 to 65535"},
		"a service without a namespace":          {func(o *WebhookOptions) { o.Service.Namespace = "" }, "name both"},
		"a port that is none":                    {func(o *WebhookOptions) { o.Service.Port = 70000 }, "70000"},
		"a relative path":                        {func(o *WebhookOptions) { o.Service.Path = "validate" }, "want a path such as /validate"},
		"a path with an empty step":              {func(o *WebhookOptions) { o.Service.Path = "//" }, "between single slashes"},
		"a path with a space":                    {func(o *WebhookOptions) { o.Service.Path = "/a b" }, "between single slashes"},
		"a webhook in an install without one":    {func(o *WebhookOptions) { o.Install = PolicyAlone }, "has no webhook"},
		"an install that is none":                {func(o *WebhookOptions) { o.Install = "both" }, `want one of ["policy-and-webhook" "webhook-alone"]`},
	} {
		t.Run(name, func(t *testing.T) {
			o := service()
			c.change(&o)
			if _, err := Webhooks(contract.Default(contract.Enforce), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestAWebhookConditionThatNoServerTakesIsRefused(t *testing.T) {
	p := contract.Default(contract.Enforce)
	for i := range 1500 {
		p.StandIns = append(p.StandIns, contract.ServiceAccount("kwok", fmt.Sprint("stand-in-", i)))
	}
	if _, err := Webhooks(p, service()); err == nil || !strings.Contains(err.Error(), "list fewer standIns") {
		t.Errorf("got %v", err)
	}
}

func TestAnOldServerGetsNoMatchConditionsAndNoSkewEntry(t *testing.T) {
	o := service()
	o.Server = Version{1, 28}
	c, err := Webhooks(contract.Default(contract.Enforce), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Webhooks) != 1 || c.Webhooks[0].MatchConditions != nil || *c.Webhooks[0].FailurePolicy != admissionv1.Ignore {
		t.Errorf("got %+v", c.Webhooks)
	}
}

func TestVersionsAreReadAsServersReportThem(t *testing.T) {
	for text, want := range map[string]Version{"1.37": {1, 37}, "v1.37.2": {1, 37}, "1.30+": {1, 30}, "v1.31.4-gke.1": {1, 31}} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "one.two", "1.x"} {
		if v, err := ParseVersion(text); err == nil || !strings.Contains(err.Error(), "such as 1.37") {
			t.Errorf("%q: got %v, %v; want an error with an example", text, v, err)
		}
	}
}
