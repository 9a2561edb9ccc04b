package deploy

import (
	"os"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"
)

// groupsOf are the groups of alerts in a PrometheusRule, by name.
func groupsOf(t *testing.T, rule *unstructured.Unstructured) map[string]any {
	t.Helper()
	list, found, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
	if err != nil || !found {
		t.Fatalf("no groups: %v", err)
	}
	groups := map[string]any{}
	for _, g := range list {
		group, ok := g.(map[string]any)
		if !ok {
			t.Fatalf("%v is no group", g)
		}
		name, _, err := unstructured.NestedString(group, "name")
		if err != nil {
			t.Fatal(err)
		}
		groups[name] = group
	}
	return groups
}

// Nobody is woken by the absence of what was never meant to be there; and what
// is left says word for word what was tested.
func TestAnInstallHasTheAlertsOfItsEnforcers(t *testing.T) {
	text, err := os.ReadFile(root + "/deploy/monitoring/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	written := &unstructured.Unstructured{}
	if err := sigsyaml.Unmarshal(text, &written.Object); err != nil {
		t.Fatal(err)
	}
	all := groupsOf(t, written)
	for install, foreign := range map[string][]string{
		"policy-and-webhook": nil,
		"webhook-alone":      {"nodewarden-both", "nodewarden-policies"},
		"policy-alone":       {"nodewarden-both", "nodewarden-webhook", "nodewarden-certificates"},
	} {
		t.Run(install, func(t *testing.T) {
			rule := render(t, values{"install": install}.at("monitoring.enabled", true))[key("PrometheusRule", namespace, "nodewarden")]
			if rule == nil {
				t.Fatal("no PrometheusRule")
			}
			got := groupsOf(t, rule)
			for name, group := range all {
				switch wanted := !slices.Contains(foreign, name); {
				case wanted != (got[name] != nil):
					t.Errorf("the group %s is there: %t", name, got[name] != nil)
				case wanted && !reflect.DeepEqual(got[name], group):
					t.Errorf("the group %s is another one than was written", name)
				}
			}
			if len(got) != len(all)-len(foreign) {
				t.Errorf("%d groups", len(got))
			}
		})
	}
}

// The namespace is the release's, and the labels are those that a Prometheus selects by.
func TestMonitoringFollowsTheRelease(t *testing.T) {
	all := render(t, values{}.at("monitoring.enabled", true).at("monitoring.labels.release", "prometheus"), "--namespace", "elsewhere")
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		o := all[key(kind, "elsewhere", "nodewarden")]
		if o == nil || o.GetLabels()["release"] != "prometheus" {
			t.Errorf("no %s of the release: %v", kind, o)
		}
	}
	names, _, err := unstructured.NestedStringSlice(all[key("ServiceMonitor", "elsewhere", "nodewarden")].Object, "spec", "namespaceSelector", "matchNames")
	if err != nil || !slices.Equal(names, []string{"elsewhere"}) {
		t.Errorf("it scrapes %q: %v", names, err)
	}
}
