package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryValueSetIsDocumented(t *testing.T) {
	text := page(t, "install.md")
	for _, name := range examples(t) {
		if !strings.Contains(text, "["+name+"](../deploy/chart/examples/"+name+".yaml)") {
			t.Errorf("docs/install.md does not say what %s is for", name)
		}
	}
}

// The commands that break the glass are those that are tested.
func TestTheDocumentedBreakGlassIsTheTestedOne(t *testing.T) {
	text := page(t, "install.md")
	for _, command := range []string{
		"kubectl delete validatingwebhookconfiguration nodewarden-contract",
		`-p '[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]'`,
		"kubectl delete validatingadmissionpolicybinding -l app.kubernetes.io/name=nodewarden",
	} {
		if !strings.Contains(text, command) {
			t.Errorf("docs/install.md lacks: %s", command)
		}
	}
}

func TestTheDocumentedStaticPodIsOneAndItsArgumentsAreFlags(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: v1\nkind: Pod.*?)```").FindStringSubmatch(page(t, "install.md"))
	if block == nil {
		t.Fatal("docs/install.md has no static pod")
	}
	var pod corev1.Pod
	if err := sigsyaml.UnmarshalStrict([]byte(block[1]), &pod); err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("compiles a program, which -short leaves out")
	}
	var args []string
	for _, arg := range pod.Spec.Containers[0].Args {
		if !strings.HasPrefix(arg, "--config=") { // a file of the machine
			args = append(args, arg)
		}
	}
	cmd := exec.Command("go", append([]string{"run", "./cmd/nodewarden-webhook", "--print-config"}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
