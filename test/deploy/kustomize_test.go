package deploy

import (
	"bytes"
	"context"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

var update = flag.Bool("update", false, "write the manifests of deploy/kustomize anew, from the chart")

const kustomization = root + "/deploy/kustomize"

// overlays are whole installs; each has a value set of the same name.
func overlays(t *testing.T) []string {
	t.Helper()
	return folders(t, "overlays")
}

func folders(t *testing.T, of string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(kustomization, of))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestKustomizeRendersWhatTheChartRenders(t *testing.T) {
	if controlplane.Short() {
		t.Skip("needs helm and kubectl, which -short leaves out")
	}
	for _, name := range overlays(t) {
		t.Run(name, func(t *testing.T) {
			same(t, kustomize(t, filepath.Join(kustomization, "overlays", name)), shipped(t, name))
		})
	}
}

// Components that are no part of an overlay are put on top of the default one.
func TestAComponentAddsWhatItsValuesAdd(t *testing.T) {
	if controlplane.Short() {
		t.Skip("needs helm and kubectl, which -short leaves out")
	}
	for name, v := range map[string]values{
		"controller-beside":  values{}.at("controller.mode", "beside"),
		"controller-replace": values{}.at("controller.mode", "replace"),
		"three-replicas":     values{}.at("webhook.replicas", 3),
		"control-plane-only": values{}.at("pods.controlPlane", "require"),
	} {
		t.Run(name, func(t *testing.T) {
			same(t, kustomize(t, overlayOf(t, "default", name)), unmarked(render(t, v)))
		})
	}
}

// overlayOf is a folder of an overlay that a reader of docs/install.md would write.
func overlayOf(t *testing.T, overlay, component string) string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(kustomization)
	if err != nil {
		t.Fatal(err)
	}
	if here, err = filepath.Rel(dir, here); err != nil { // kustomize takes no absolute paths
		t.Fatal(err)
	}
	text, err := sigsyaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{filepath.Join(here, "overlays", overlay)}, "components": []string{filepath.Join(here, "components", component)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Installed and uninstalled by kubectl alone, as the pages say. The namespace goes,
// too, so this has a control plane of its own, with the controllers that empty it.
func TestWhatKustomizeInstallsGuardsAndGoesWithoutATrace(t *testing.T) {
	c := clusterOn(t, controlplane.ForTest(t, controlplane.Options{APIServerArgs: []string{"--service-cluster-ip-range=127.65.0.0/16"}}))
	manager, err := c.StartControllerManager(c.ctx, controlplane.CMOptions{Controllers: []string{"namespace-controller", "garbage-collector-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Kill)
	for _, account := range []string{"namespace-controller", "generic-garbage-collector"} {
		c.eventually(account+" has its account", func(ctx context.Context) error {
			_, err := c.admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Get(ctx, account, metav1.GetOptions{})
			return err
		})
	}
	kubectl := func(args ...string) {
		t.Helper()
		if out, err := c.Kubectl(c.ctx, c.Admin(), args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	program, err := guard.Build(c.ctx, c.ControlPlane, "nodewarden")
	if err != nil {
		t.Fatal(err)
	}
	node := c.node(nil)
	for name, expect := range map[string]string{"default": "warning", "policy-only": "refusal"} {
		t.Run(name, func(t *testing.T) {
			c := clusterOn(t, c.ControlPlane)
			overlay := filepath.Join(kustomization, "overlays", name)
			before := c.everything()
			kubectl("apply", "--server-side", "-k", overlay)
			var server *process
			if name == "default" {
				server = c.start("nodewarden-webhook")
				c.expose(server)
				c.eventually("the authority is announced", c.announced)
			}
			out, err := exec.Command(program, "verify", "--kubeconfig="+c.kubeconfig, "--node="+node, "--expect="+expect, "--wait=30s").CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if server != nil {
				kubectl("delete", "validatingwebhookconfiguration", "nodewarden-contract")
			}
			kubectl("delete", "-k", overlay, "--ignore-not-found")
			c.nothingNew(before)
		})
	}
}

func TestEveryOverlayAndComponentIsDocumented(t *testing.T) {
	text := page(t, "install.md")
	for _, of := range []string{"overlays", "components"} {
		for _, name := range folders(t, of) {
			if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "["+name+"](") {
				t.Errorf("docs/install.md does not name deploy/kustomize/%s/%s", of, name)
			}
		}
	}
}

func same(t *testing.T, got, want objects) {
	t.Helper()
	delete(got, key("Namespace", "", namespace)) // helm makes it, and the chart cannot
	for k := range want {
		if got[k] == nil {
			t.Errorf("%s is missing", k)
		}
	}
	for k, g := range got {
		if want[k] == nil {
			t.Errorf("%s is too much", k)
		} else if d := differ(g.Object, want[k].Object, k); d != "" {
			t.Error(d)
		}
	}
	if t.Failed() {
		t.Log("to write the manifests anew: make generate")
	}
}

// shipped is what the chart renders for a documented value set, less what only
// helm has a use for.
func shipped(t *testing.T, name string) objects {
	t.Helper()
	return unmarked(render(t, values{}, "--values", example(t, name)))
}

// unmarked takes helm's own marks and tests away.
func unmarked(all objects) objects {
	for k, o := range all {
		if o.GetAnnotations()["helm.sh/hook"] != "" {
			delete(all, k)
			continue
		}
		unmark(o.Object)
	}
	return all
}

// unmark takes away what only helm has a use for, wherever it stands.
func unmark(tree map[string]any) {
	for _, of := range []string{"labels", "annotations"} {
		marks, ok := tree[of].(map[string]any)
		if !ok {
			continue
		}
		for _, name := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "helm.sh/chart", "helm.sh/resource-policy"} {
			delete(marks, name)
		}
		if len(marks) == 0 {
			delete(tree, of)
		}
	}
	for _, inner := range tree {
		if m, ok := inner.(map[string]any); ok {
			unmark(m)
		}
	}
}

// kustomize renders a folder with kubectl.
func kustomize(t *testing.T, dir string) objects {
	t.Helper()
	binary, err := controlplane.Binary(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "kubectl", "kustomize", dir)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &complaint)
	}
	all, err := parse(out.String())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWriteManifests cuts the chart's renderings into the components' files,
// when it is told to.
func TestWriteManifests(t *testing.T) {
	if !*update {
		t.Skip("writes nothing without -update")
	}
	plain, static := shipped(t, "default"), shipped(t, "static-control-plane")
	of := func(all objects, wanted func(o *unstructured.Unstructured) bool) objects {
		some := maps.Clone(all)
		maps.DeleteFunc(some, func(_ string, o *unstructured.Unstructured) bool { return !wanted(o) })
		return some
	}
	kinds := func(names ...string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return slices.Contains(names, o.GetKind()) }
	}
	component := func(name string) func(*unstructured.Unstructured) bool {
		return func(o *unstructured.Unstructured) bool { return o.GetLabels()["app.kubernetes.io/component"] == name }
	}
	configuration, policies := kinds("ValidatingWebhookConfiguration"), kinds("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

	write(t, "base/detector-role.yaml", of(plain, component("detector")))
	write(t, "components/webhook/configuration.yaml", of(plain, configuration))
	write(t, "components/static-webhook/configuration.yaml", of(static, configuration))
	write(t, "components/webhook/server.yaml", of(plain, func(o *unstructured.Unstructured) bool { return component("webhook")(o) && !configuration(o) }))

	issued := shipped(t, "cert-manager")
	write(t, "components/webhook-cert-manager/configuration.yaml", of(issued, configuration))
	write(t, "components/webhook-cert-manager/server.yaml", of(issued, func(o *unstructured.Unstructured) bool { return component("webhook")(o) && !configuration(o) }))

	// Without what three-replicas and control-plane-only add.
	for name, v := range map[string]values{
		"beside":   values{}.at("controller.mode", "beside"),
		"replace":  values{}.at("controller.mode", "replace"),
		"external": values{}.at("controller.mode", "replace").at("controller.livenessSource", "external"),
	} {
		write(t, "components/controller-"+name+"/controller.yaml", of(unmarked(render(t, v)), component("controller")))
	}

	for profile, set := range map[string]string{"warn": "default", "audit": "audit", "enforce": "enforce"} {
		all, folder := shipped(t, set), "components/profile-"+profile
		write(t, folder+"/policies.yaml", of(all, policies))
		writePolicyFile(t, folder, all)
	}
	writePolicyFile(t, "overlays/external", shipped(t, "external"))
}

// writePolicyFile writes the patches that make a webhook read another policy file.
func writePolicyFile(t *testing.T, folder string, all objects) {
	t.Helper()
	file := all[key("ConfigMap", namespace, "nodewarden-policy")]
	write(t, folder+"/policy-file.yaml", objects{"": &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": file.GetName(), "namespace": namespace}, "data": file.Object["data"],
	}}})
	write(t, folder+"/restart.yaml", objects{"": &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "nodewarden-webhook", "namespace": namespace},
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": deployment(t, all, "nodewarden-webhook").Spec.Template.Annotations}}},
	}}})
}

func write(t *testing.T, name string, all objects) {
	t.Helper()
	var out bytes.Buffer
	out.WriteString("# Cut from the chart's rendering by make generate. DO NOT EDIT.\n")
	for _, k := range slices.Sorted(maps.Keys(all)) {
		text, err := sigsyaml.Marshal(all[k].Object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	if len(all) == 0 {
		t.Fatalf("nothing belongs in %s", name)
	}
	if err := os.WriteFile(filepath.Join(kustomization, name), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
