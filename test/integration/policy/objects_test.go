package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

func TestTheAPIServersOwnTypeCheckerHasNothingToSay(t *testing.T) {
	c := fresh(t)
	checker, err := c.cp.StartControllerManager(c.ctx(), controlplane.CMOptions{Controllers: []string{"validatingadmissionpolicy-status-controller"}})
	c.must(err)
	t.Cleanup(checker.Stop)
	c.installPolicies(all())
	c.eventually("every policy type-checked", func() error {
		list, err := c.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(c.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != len(contract.Rules()) {
			return fmt.Errorf("%d policies, want %d", len(list.Items), len(contract.Rules()))
		}
		for _, p := range list.Items {
			if p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
				return fmt.Errorf("%s: generation %d, observed %d", p.Name, p.Generation, p.Status.ObservedGeneration)
			}
			for _, w := range p.Status.TypeChecking.ExpressionWarnings {
				t.Fatalf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
			}
		}
		return nil
	})
}

// all is a policy in which every rule denies.
func all() contract.Policy {
	p := contract.Default(contract.Enforce)
	p.Rules = map[contract.Rule]contract.Action{}
	for _, r := range contract.Rules() {
		p.Rules[r] = contract.Deny
	}
	p.SignalPersistence = contract.DefaultRecoveryHold
	p.Detectors = []contract.Detector{{Identity: contract.ServiceAccount("liveness", "detector")}}
	return p
}

func TestApplyingAgainChangesNothingAndKeepsAnInjectedBundle(t *testing.T) {
	c := fresh(t)
	p := contract.Default(contract.Enforce)
	webhooks, policies := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations(), c.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	c.installPolicies(p)
	c.installWebhook(p, policy.PolicyAndWebhook, "https://127.0.0.1:1/validate", nil)

	_, bundle := selfSigned(c)
	inject(c, bundle)
	injected, err := webhooks.Get(c.ctx(), policy.ConfigurationName, metav1.GetOptions{})
	c.must(err)
	before, err := policies.List(c.ctx(), metav1.ListOptions{})
	c.must(err)

	c.installPolicies(p)
	c.installWebhook(p, policy.PolicyAndWebhook, "https://127.0.0.1:1/validate", nil)
	again, err := webhooks.Get(c.ctx(), policy.ConfigurationName, metav1.GetOptions{})
	c.must(err)
	for _, w := range again.Webhooks {
		if string(w.ClientConfig.CABundle) != string(bundle) {
			t.Errorf("%s: applying again reset caBundle", w.Name)
		}
	}
	if again.ResourceVersion != injected.ResourceVersion {
		t.Error("applying the same file again changed the webhook configuration")
	}
	after, err := policies.List(c.ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range after.Items {
		if after.Items[i].Generation != before.Items[i].Generation {
			t.Errorf("applying the same file again changed %s", after.Items[i].Name)
		}
	}
}

// inject does what a CA injector does: it sets caBundle of every entry.
func inject(c *cluster, bundle []byte) {
	c.Helper()
	var ops []map[string]any
	for i := range 2 {
		ops = append(ops, map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": bundle})
	}
	patch, err := json.Marshal(ops)
	c.must(err)
	_, err = c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(c.ctx(), policy.ConfigurationName, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "injector"})
	c.must(err)
}

func TestTheAPIServerFillsInNothingOfImportance(t *testing.T) {
	c := fresh(t)
	c.installWebhook(contract.Default(contract.Enforce), policy.WebhookAlone, "https://127.0.0.1:1/validate", nil)
	live, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(c.ctx(), policy.ConfigurationName, metav1.GetOptions{})
	c.must(err)
	for _, w := range live.Webhooks {
		if w.MatchPolicy == nil || *w.MatchPolicy != admissionv1.Equivalent || len(w.MatchConditions) == 0 || w.TimeoutSeconds == nil || *w.TimeoutSeconds > 3 {
			t.Errorf("%s is stored as %+v", w.Name, w)
		}
	}
}

// An API server takes 5120 bytes of an audit annotation, and one that lists so
// many detectors would be longer.
func TestAnAPIServerTakesALongListOfDetectors(t *testing.T) {
	c := fresh(t)
	p := contract.Default(contract.Enforce)
	p.Rules = map[contract.Rule]contract.Action{contract.UnauthorizedDetector: contract.Deny}
	for i := range 40 {
		of, err := labels.Parse(fmt.Sprintf("node-restriction.kubernetes.io/pool in (pool-%d, pool-%d-spare)", i, i))
		c.must(err)
		p.Detectors = append(p.Detectors, contract.Detector{Identity: contract.Identity{User: fmt.Sprint("detector-of-pool-", i)}, Nodes: of})
	}
	c.installPolicies(p)
	node := c.reporting()
	_, err := c.admin.CoreV1().Nodes().Patch(c.ctx(), node, types.MergePatchType, []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/pool":"pool-39-spare"}}}`), metav1.PatchOptions{})
	c.must(err)
	write := func(as string) error {
		return c.patch(c.cp.User(as, "system:masters"), node, failure("OutOfBandProbeFailed"), metav1.DryRunAll)
	}
	c.eventually("another pool's detector is refused", func() error {
		if err := write("detector-of-pool-38"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "[UnauthorizedDetector] ") {
			return fmt.Errorf("another answer: %w", err)
		}
		return nil
	})
	c.must(write("detector-of-pool-39"))
}

func TestAPolicyThatDeniesOnlyWarnsWhenANodeIsCreated(t *testing.T) {
	c := fresh(t)
	c.installPolicies(contract.Default(contract.Enforce))
	c.inForce(byPolicy)
	w, client := c.warned(c.detector())
	node := named("restored", condition("Ready", "Unknown", "NodeStatusUnknown"))
	_, err := client.CoreV1().Nodes().Create(c.ctx(), node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	c.must(err)
	texts := w.Take()
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "[ReservedReason] ") }) {
		t.Errorf("warnings are %q", texts)
	}
	own, client := c.warned(c.cp.Kubelet("restored"))
	_, err = client.CoreV1().Nodes().Create(c.ctx(), node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	c.must(err)
	if texts := own.Take(); len(texts) > 0 {
		t.Errorf("a kubelet that registers its node is warned: %q", texts)
	}
}
