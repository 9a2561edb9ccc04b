package deploy

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

func TestTheNotesSayWhatComesNext(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		want   []string
		absent []string
	}{
		"untouched": {values{}, []string{"THE IMAGES ARE NOT THERE", "helm test nodewarden", "policy.profile=enforce", "must NOT switch node-lifecycle-controller off", "nodewarden_webhook_violations_total"}, []string{"ONE MORE STEP"}},
		"enforced, with images of one's own": {values{}.at("policy.profile", "enforce").at("image.registry", "registry.local/x"),
			[]string{"Break-glass"}, []string{"THE IMAGES ARE NOT THERE", "Nothing is refused yet"}},
		"without a webhook":          {values{"install": "policy-alone"}, []string{"apiserver_validating_admission_policy_check_total"}, []string{"deployment/nodewarden-webhook"}},
		"in the in-tree one's place": {values{}.at("controller.mode", "replace"), []string{"--controllers must hold -node-lifecycle-controller"}, []string{"must NOT"}},
		"beside the in-tree one":     {values{}.at("controller.mode", "beside"), []string{"must NOT switch node-lifecycle-controller off"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := helm(t, "", "install", release, chart, "--namespace", namespace, "--dry-run=client", "--values", c.values.file(t))
			if err != nil {
				t.Fatal(err)
			}
			_, notes, found := strings.Cut(text, "NOTES:")
			if !found {
				t.Fatalf("no notes in: %s", text)
			}
			for _, want := range c.want {
				if !strings.Contains(notes, want) {
					t.Errorf("missing %q in:\n%s", want, notes)
				}
			}
			for _, absent := range c.absent {
				if strings.Contains(notes, absent) {
					t.Errorf("says %q:\n%s", absent, notes)
				}
			}
		})
	}
}

// What `helm test` runs must fail where it should, or it proves nothing.
func TestVerifyFailsWhereNothingGuards(t *testing.T) {
	c := newCluster(t)
	program, err := guard.Build(c.ctx, c.ControlPlane, "nodewarden")
	if err != nil {
		t.Fatal(err)
	}
	node := c.node(nil)
	for name, try := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a guard is expected and there is none": {[]string{"--wait=0s", "--node=" + node}, 1, "with silence, not with refusal"},
		"none is expected":                      {[]string{"--wait=0s", "--expect=silence"}, 0, "silence, as it should be\na cluster without the guard is silent, too\n"},
		"an expectation that is none":           {[]string{"--expect=denial"}, 2, "--expect"},
		"no such node":                          {[]string{"--wait=0s", "--node=nobody"}, 3, "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.answers(program, try.code, try.says, try.args...); err != nil {
				t.Error(err)
			}
		})
	}
}

// While a cluster changes, what its API server asks may not answer yet.
func TestVerifyWaitsForSomebodyElsesWebhook(t *testing.T) {
	c := newCluster(t)
	program, err := guard.Build(c.ctx, c.ControlPlane, "nodewarden")
	if err != nil {
		t.Fatal(err)
	}
	node := c.node(nil)
	api := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	dead := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "dead"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "dead.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1")},
			SideEffects:             new(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes/status"}},
			}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "verify", Expression: `request.options.?fieldManager.orValue("") == "nodewarden-verify"`}},
		}},
	}
	if _, err := api.Create(c.ctx, dead, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(c.ctx), dead.Name, metav1.DeleteOptions{}) })
	c.eventually("the webhook is asked", func(context.Context) error {
		return c.answers(program, 3, "failed calling webhook", "--wait=0s", "--node="+node)
	})

	failed := controlplane.AuditFilter{Verbs: []string{"patch"}, Name: node, Since: time.Now(), Where: func(e auditv1.Event) bool {
		return e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusInternalServerError
	}}
	answered := make(chan error)
	go func() {
		answered <- c.answers(program, 0, "silence, as it should be", "--expect=silence", "--wait=1m", "--node="+node)
	}()
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	if _, err := c.AwaitAudit(ctx, failed, 1); err != nil {
		t.Error(err)
	}
	if err := api.Delete(c.ctx, dead.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// answers runs verify and wants an exit code and a text.
func (c *cluster) answers(program string, code int, says string, args ...string) error {
	cmd := exec.Command(program, append([]string{"verify", "--kubeconfig=" + c.kubeconfig}, args...)...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), says) {
		return fmt.Errorf("exit code %d, want %d; missing %q in: %s", got, code, says, out)
	}
	return nil
}
