package deploy

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

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
		"in the in-tree one's place": {values{}.at("controller.mode", "replace"), []string{"must hold --controllers=*,-node-lifecycle-controller"}, []string{"must NOT"}},
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
		"none is expected":                      {[]string{"--wait=0s", "--expect=silence"}, 0, "silence, as it should be"},
		"an expectation that is none":           {[]string{"--expect=denial"}, 2, "--expect"},
		"no such node":                          {[]string{"--wait=0s", "--node=nobody"}, 3, "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, append([]string{"verify", "--kubeconfig=" + c.kubeconfig}, try.args...)...)
			out, err := cmd.CombinedOutput()
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			if code != try.code || !strings.Contains(string(out), try.says) {
				t.Errorf("exit code %d, want %d; missing %q in: %s", code, try.code, try.says, out)
			}
		})
	}
}
