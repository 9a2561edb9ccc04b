// Package monitoring tests the alerts: that each fires when it should and only
// then, that its figures exist, and that somebody who is woken by it finds a
// section of the runbook.
package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var root = filepath.Join("..", "..", "..")

// rules is a PrometheusRule, as far as it is looked at here.
type rules struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       spec           `json:"spec"`
}

type spec struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string  `json:"name"`
	Rules []alert `json:"rules"`
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t *testing.T) spec {
	t.Helper()
	var r rules
	if err := yaml.UnmarshalStrict(read(t, root, "deploy", "monitoring", "prometheusrule.yaml"), &r); err != nil {
		t.Fatal(err)
	}
	return r.Spec
}

func (s spec) alerts() (all []alert) {
	for _, g := range s.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

const runbook = "https://github.com/nodewarden/nodewarden/blob/main/docs/runbook.md#"

func TestEveryAlertSaysHowBadItIsAndWhatToDo(t *testing.T) {
	page := string(read(t, root, "docs", "runbook.md"))
	var names []string
	for _, a := range load(t).alerts() {
		names = append(names, a.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: severity %q is none that people route by", a.Alert, a.Labels["severity"])
		}
		for _, what := range []string{"summary", "description"} {
			if !strings.HasSuffix(a.Annotations[what], ".") {
				t.Errorf("%s: the %s is no sentence: %q", a.Alert, what, a.Annotations[what])
			}
		}
		if want := runbook + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		_, section, found := strings.Cut(page, "\n### "+a.Alert+"\n")
		if !found {
			t.Errorf("docs/runbook.md has no section %s", a.Alert)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		section, _, _ = strings.Cut(section, "\n### ")
		for _, part := range []string{"**Symptom.**", "**Check.**", "**Fix.**"} {
			if !strings.Contains(section, part) {
				t.Errorf("docs/runbook.md, section %s: %s is missing", a.Alert, part)
			}
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^### (Nodewarden\S+)$`).FindAllStringSubmatch(page, -1) {
		if !slices.Contains(names, section[1]) {
			t.Errorf("docs/runbook.md has a section %s, and there is no such alert", section[1])
		}
	}
}

// promtest is a file of unit tests, as far as it is looked at here.
type promtest struct {
	Tests []struct {
		Name           string `json:"name"`
		AlertRuleTests []struct {
			Alert    string `json:"alertname"`
			Expected []any  `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

func TestEveryAlertHasATestInWhichItFiresAndOneInWhichItIsSilent(t *testing.T) {
	var file promtest
	if err := yaml.Unmarshal(read(t, "alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, test := range file.Tests {
		name, story, _ := strings.Cut(test.Name, " ")
		fires := strings.HasPrefix(story, "fires: ")
		fired := false
		for _, c := range test.AlertRuleTests {
			if c.Alert != name {
				t.Errorf("%q tests %s", test.Name, c.Alert)
			}
			fired = fired || len(c.Expected) > 0
		}
		if fires != fired {
			t.Errorf("%q: fires is %t", test.Name, fired)
		}
		seen[fmt.Sprint(name, fired)] = true
	}
	for _, a := range load(t).alerts() {
		for _, fired := range []bool{true, false} {
			if !seen[fmt.Sprint(a.Alert, fired)] {
				t.Errorf("%s: no test in alerts.yaml in which it fires is %t", a.Alert, fired)
			}
		}
	}
}

// upstream are the figures of others that the alerts go by, with their labels.
// Those of the API server are held against a real one in apiserver_test.go.
var upstream = map[string][]string{
	"up": {"job"}, // Prometheus itself
	// kube-state-metrics, as of v2.20
	"kube_node_info":                                                   nil,
	"kube_validatingadmissionpolicy_info":                              {"validatingadmissionpolicy", "failure_policy"},
	"kube_validatingadmissionpolicybinding_info":                       {"validatingadmissionpolicybinding", "policy_name"},
	"kube_validatingadmissionpolicybinding_validation_action":          {"validatingadmissionpolicybinding", "action"},
	"kube_deployment_spec_replicas":                                    {"deployment"},
	"kube_validatingwebhookconfiguration_info":                         {"validatingwebhookconfiguration"},
	"kube_validatingwebhookconfiguration_webhook_clientconfig_service": {"validatingwebhookconfiguration", "service_name"},
	"kube_validatingwebhookconfiguration_metadata_resource_version":    {"validatingwebhookconfiguration"},
	// kube-apiserver
	"apiserver_validating_admission_policy_check_total":           {"policy", "error_type"},
	"apiserver_admission_match_condition_evaluation_errors_total": {"name"},
	"apiserver_admission_webhook_fail_open_count":                 {"name"},
	"apiserver_admission_webhook_rejection_count":                 {"name", "error_type"},
}

// target are the labels that Prometheus adds to what it scrapes.
var target = []string{"pod", "job"}

var (
	listed   = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (\\w+) \\| (.*?) \\|")
	selected = regexp.MustCompile(`\b((?:nodewarden|node_collector|apiserver|kube)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
)

// known are all figures that there are, with their labels: ours from
// docs/metrics.md, which is held equal to what the programs register.
func known(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name, labels := range upstream {
		all[name] = labels
	}
	for _, m := range listed.FindAllStringSubmatch(string(read(t, root, "docs", "metrics.md")), -1) {
		name := m[1]
		if m[2] == "histogram" {
			name += "_count"
		}
		all[name] = strings.FieldsFunc(m[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	return all
}

func TestAlertsGoByFiguresThatExist(t *testing.T) {
	all := known(t)
	for _, a := range load(t).alerts() {
		found := selected.FindAllStringSubmatch(withoutGrouping(a.Expr), -1)
		if len(found) == 0 {
			t.Errorf("%s goes by nothing", a.Alert)
		}
		for _, s := range found {
			labels, exists := all[s[1]]
			if !exists {
				t.Errorf("%s: there is no figure %s", a.Alert, s[1])
				continue
			}
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				if !slices.Contains(labels, m[1]) && !slices.Contains(target, m[1]) {
					t.Errorf("%s: %s has no label %s", a.Alert, s[1], m[1])
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(a.Expr, -1) {
			for label := range strings.SplitSeq(g[1], ",") {
				if label = strings.TrimSpace(label); label != "" && !a.mayGroupBy(label, all, found) {
					t.Errorf("%s groups by %s, which none of its figures has", a.Alert, label)
				}
			}
		}
	}
}

var grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)

func withoutGrouping(expr string) string { return grouping.ReplaceAllString(expr, "") }

// mayGroupBy says whether a label comes from a figure, from the target, or is
// made by the expression itself.
func (a alert) mayGroupBy(label string, all map[string][]string, figures [][]string) bool {
	if slices.Contains(target, label) || strings.Contains(a.Expr, `"`+label+`", "$1"`) {
		return true
	}
	for _, s := range figures {
		if slices.Contains(all[s[1]], label) {
			return true
		}
	}
	return false
}

func TestTheServiceMonitorSelectsOurServices(t *testing.T) {
	var monitor struct {
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Endpoints []struct {
				Port string `json:"port"`
			} `json:"endpoints"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(read(t, root, "deploy", "monitoring", "servicemonitor.yaml"), &monitor); err != nil {
		t.Fatal(err)
	}
	if monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "nodewarden" || len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Port != "metrics" {
		t.Errorf("selects %+v", monitor.Spec)
	}
}
