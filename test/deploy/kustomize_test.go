package deploy

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

var update = flag.Bool("update", false, "write the manifests of deploy/kustomize anew, from the chart")

const kustomization = root + "/deploy/kustomize"

// overlays are whole installs; each has a value set of the same name.
var overlays = []string{"default", "audit", "policy-only", "static-control-plane", "ha"}

func TestKustomizeRendersWhatTheChartRenders(t *testing.T) {
	if controlplane.Short() {
		t.Skip("needs helm and kubectl, which -short leaves out")
	}
	for _, name := range overlays {
		t.Run(name, func(t *testing.T) {
			got, want := kustomize(t, filepath.Join(kustomization, "overlays", name)), shipped(t, name)
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
		})
	}
}

// shipped is what the chart renders, less helm's own marks and tests.
func shipped(t *testing.T, name string) objects {
	t.Helper()
	all := render(t, values{}, "--values", example(t, name))
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

	// Without what three-replicas and control-plane-only add.
	beside := render(t, values{}.at("controller.mode", "beside"))
	for _, o := range beside {
		unmark(o.Object)
	}
	write(t, "components/controller-beside/controller.yaml", of(beside, component("controller")))

	for profile, set := range map[string]string{"warn": "default", "audit": "audit", "enforce": "enforce"} {
		all, folder := shipped(t, set), "components/profile-"+profile
		write(t, folder+"/policies.yaml", of(all, policies))
		file := all[key("ConfigMap", namespace, "nodewarden-policy")]
		write(t, folder+"/policy-file.yaml", objects{"": &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": file.GetName(), "namespace": namespace}, "data": file.Object["data"],
		}}})
		write(t, folder+"/restart.yaml", objects{"": &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "nodewarden-webhook", "namespace": namespace},
			"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": deployment(t, all, "nodewarden-webhook").Spec.Template.Annotations}}},
		}}})
	}
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
