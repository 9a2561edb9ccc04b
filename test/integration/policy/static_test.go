package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// With the static form the contract is part of the API server's own
// configuration: whoever may delete every admission object does not lift it.
func TestTheStaticFormOutlivesEveryAdmissionObject(t *testing.T) {
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	folder := t.TempDir()
	files, err := policy.RenderStatic(contract.Default(contract.Enforce), policy.Version{Major: 1, Minor: 37}, folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Join(folder, filepath.FromSlash(file.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, file.Text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cp := controlplane.ForTest(t, controlplane.Options{AdmissionConfig: filepath.Join(folder, policy.AdmissionConfigFile)})
	c := on(t, cp)
	const loaded = "reserved-reason.contract.nodewarden.dev.static.k8s.io"

	// In force with the first request, before anybody has applied anything.
	if err := refusedBy(c.writeBad(c.reporting()), loaded); err != nil {
		t.Fatal(err)
	}
	c.uninstall()
	node := c.reporting()
	if err := refusedBy(c.writeBad(node), loaded); err != nil {
		t.Errorf("with every admission object deleted: %v", err)
	}
	c.must(c.writeGood(node))
	c.kubeletsNeverNotice()

	err = c.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(c.ctx(), loaded, metav1.DeleteOptions{})
	if err == nil {
		t.Error("the policy could be deleted through the API")
	}
	c.must(cp.RestartAPIServer(c.ctx()))
	c.eventually("the API server is back", func() error { return c.report(node, "True") })
	if err := refusedBy(c.writeBad(c.reporting()), loaded); err != nil {
		t.Errorf("after a restart of the API server: %v", err)
	}
}

// Somebody who tries the files of the static form with kubectl should learn
// that they are none to apply.
func TestStaticNamesCannotBeTakenThroughTheAPI(t *testing.T) {
	c := fresh(t)
	files, err := policy.RenderStatic(contract.Default(contract.Enforce), policy.Version{}, "/etc/kubernetes/nodewarden")
	c.must(err)
	name := filepath.Join(t.TempDir(), "static.yaml")
	c.must(os.WriteFile(name, files[0].Text, 0o600))
	out, err := c.cp.Kubectl(c.ctx(), c.cp.Admin(), "apply", "--server-side", "-f", name)
	if err == nil || !strings.Contains(out+err.Error(), "static.k8s.io") {
		t.Errorf("kubectl apply: %v\n%s", err, out)
	}
}
