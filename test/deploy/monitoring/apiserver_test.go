package monitoring

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// TestAnAPIServerCountsWhatTheAlertsAskFor provokes, on a real API server, each
// thing that an alert is about, and looks for the series that it selects.
func TestAnAPIServerCountsWhatTheAlertsAskFor(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	quiet := cp.Admin()
	quiet.WarningHandler = rest.NoWarnings{}
	admin, err := kubernetes.NewForConfig(quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hooks := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	dead := func(install policy.Install, broken ...admissionv1.MatchCondition) {
		t.Helper()
		c, err := policy.Webhooks(contract.Policy{Profile: contract.Enforce}, policy.WebhookOptions{Install: install, URL: "https://127.0.0.1:1/validate"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Webhooks {
			c.Webhooks[i].MatchConditions = append(c.Webhooks[i].MatchConditions, broken...)
		}
		_ = hooks.Delete(ctx, c.Name, metav1.DeleteOptions{})
		if _, err := hooks.Create(ctx, c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// counted writes until the metrics page has a series with all the fragments.
	counted := func(metric string, fragments ...string) {
		t.Helper()
		var seen string
		for ctx.Err() == nil {
			_, _ = admin.CoreV1().Nodes().Patch(ctx, "n1", types.StrategicMergePatchType,
				[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
			page, err := cp.Metrics(ctx)
			if err != nil {
				t.Fatal(err)
			}
			seen = ""
			for line := range strings.Lines(page) {
				if !strings.HasPrefix(line, metric+"{") {
					continue
				}
				seen += line
				if holdsAll(line, fragments) {
					return
				}
			}
			time.Sleep(50 * time.Millisecond) // between two requests
		}
		t.Fatalf("no %s with %q; there is:\n%s", metric, fragments, seen)
	}

	dead(policy.PolicyAndWebhook)
	counted("apiserver_admission_webhook_fail_open_count", `name="contract.nodewarden.dev"`)
	dead(policy.WebhookAlone)
	counted("apiserver_admission_webhook_rejection_count", `name="contract.nodewarden.dev"`, `error_type="calling_webhook_error"`)
	dead(policy.PolicyAndWebhook, admissionv1.MatchCondition{Name: "broken", Expression: "dyn(object).nothing == 1"})
	counted("apiserver_admission_match_condition_evaluation_errors_total", `name="contract.nodewarden.dev"`)
	if err := hooks.Delete(ctx, policy.ConfigurationName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	enforce(ctx, t, admin, "reserved-reason.contract.nodewarden.dev", "false")
	counted("apiserver_validating_admission_policy_check_total", `policy="reserved-reason.contract.nodewarden.dev"`, `error_type="invalid_error"`, `enforcement_action="deny"`)
	if err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "reserved-reason.contract.nodewarden.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// An error at run time is counted like a refusal, which is why no alert goes by it.
	enforce(ctx, t, admin, "clock-skew.contract.nodewarden.dev", "dyn(object).nothing == 1")
	counted("apiserver_validating_admission_policy_check_total", `policy="clock-skew.contract.nodewarden.dev"`, `error_type="invalid_error"`, `enforcement_action="deny"`)
	if err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "clock-skew.contract.nodewarden.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	enforce(ctx, t, admin, "newer-ready.contract.nodewarden.dev", dear())
	counted("apiserver_validating_admission_policy_check_total", `policy="newer-ready.contract.nodewarden.dev"`, `error_type="out_of_budget"`)
}

func holdsAll(line string, fragments []string) bool {
	for _, f := range fragments {
		if !strings.Contains(line, f) {
			return false
		}
	}
	return true
}

// dear is an expression that is within the bounds of one, but not of forty.
func dear() string {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 55), ",") + "]"
	return fmt.Sprintf("%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, true)))", list)
}

// enforce puts a policy in force that asks one thing of nodes/status, forty times.
func enforce(ctx context.Context, t *testing.T, admin kubernetes.Interface, name, expression string) {
	t.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes/status"}},
	}}}}
	for range 40 {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: expression})
	}
	if _, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName, b.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
	if _, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
