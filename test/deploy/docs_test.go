package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
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

// Every setting that a page names is one: an upgrade with a key that the chart
// does not know is refused, and prose is not.
func TestEverySettingThatThePagesNameIsOne(t *testing.T) {
	all := defaults(t)
	var sections []string
	for name, inner := range all {
		if _, is := inner.(map[string]any); is {
			sections = append(sections, name)
		}
	}
	named := regexp.MustCompile(`(?:--set |[\x60,])((?:` + strings.Join(sections, "|") + `)(?:\.[a-zA-Z0-9]+)+)`)
	found := 0
	for _, name := range []string{"docs/install.md", "docs/upgrade.md", "docs/certificates.md", "docs/runbook.md", "deploy/chart/README.md"} {
		text, err := os.ReadFile(root + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if !settable(all, strings.Split(m[1], ".")) {
				t.Errorf("%s names %s, which is no value of the chart", name, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d settings found", found)
	}
}

// settable says whether the chart has that value; what is free-form has all keys.
func settable(tree any, path []string) bool {
	branch, ok := tree.(map[string]any)
	if len(path) == 0 || ok && len(branch) == 0 {
		return true
	}
	inner, has := branch[path[0]]
	return has && settable(inner, path[1:])
}

// The commands that break the glass are those that are tested.
func TestTheDocumentedBreakGlassIsTheTestedOne(t *testing.T) {
	runbook := page(t, "runbook.md")
	for _, command := range slices.Concat(breakGlass, beforePuttingBack) {
		if !strings.Contains(runbook, "$ "+command+"\n") {
			t.Errorf("docs/runbook.md lacks: %s", command)
		}
	}
	install := strings.Join(strings.Fields(strings.ReplaceAll(page(t, "install.md"), "\\\n", "")), " ")
	for _, command := range []string{breakGlass[0], breakGlass[1], breakGlass[3]} {
		if !strings.Contains(install, command) {
			t.Errorf("docs/install.md lacks: %s", command)
		}
	}
}

func TestTheDocumentedUninstallIsTheTestedOne(t *testing.T) {
	text := page(t, "upgrade.md")
	for _, command := range []string{"helm uninstall nodewarden", "kubectl delete validatingwebhookconfiguration nodewarden-contract\n", "kubectl delete -k deploy/kustomize/overlays/default --ignore-not-found\n"} {
		if !strings.Contains(text, command) {
			t.Errorf("docs/upgrade.md lacks: %s", command)
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
