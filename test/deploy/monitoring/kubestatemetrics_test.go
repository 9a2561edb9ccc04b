package monitoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

// kubeStateMetrics compiles the version that the module beside this file pins.
func kubeStateMetrics(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile=test/deploy/monitoring/kubestatemetrics/go.mod", "kube-state-metrics")
	cmd.Dir = root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build kube-state-metrics: %v\n%s", err, &complaint)
	}
	return strings.TrimSpace(string(out))
}

// TestTheAlertsFireOnWhatKubeStateMetricsShows has a real kube-state-metrics look
// at a guard that is there, that somebody edited, and that is damaged, and gives
// the three pages to Prometheus' own rules.
func TestTheAlertsFireOnWhatKubeStateMetricsShows(t *testing.T) {
	program := promtool(t)
	cp := controlplane.ForTest(t, controlplane.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	kubectl := func(args ...string) {
		t.Helper()
		if out, err := cp.Kubectl(ctx, cp.Admin(), args...); err != nil {
			t.Fatalf("kubectl %q: %v\n%s", args, err, out)
		}
	}
	nodewarden, err := guard.Build(ctx, cp, "nodewarden")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, args := range map[string][]string{"policies.yaml": {"--form", "policy", "--profile", "enforce"}, "webhook.yaml": {"--form", "webhook"}} {
		text, err := exec.CommandContext(ctx, nodewarden, append([]string{"policy", "render"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl("apply", "--server-side", "-f", file)
	}
	write(t, dir, "node.yaml", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1"}})
	kubectl("apply", "--server-side", "-f", filepath.Join(dir, "node.yaml"))

	page := show(ctx, t, cp)
	intact := page("everything is there", func(p pageOfSeries) bool {
		return p.has("kube_node_info", "n1") && p.has("kube_validatingwebhookconfiguration_info", "nodewarden-contract") &&
			p.has("kube_validatingadmissionpolicy_info", "reserved-reason.contract") && p.has("kube_validatingadmissionpolicybinding_validation_action", "newer-ready.contract", `"Deny"`)
	})
	kubectl("annotate", "validatingwebhookconfiguration", "nodewarden-contract", "edited=by-hand")
	edited := page("the configuration is another one", func(p pageOfSeries) bool {
		series := "kube_validatingwebhookconfiguration_metadata_resource_version"
		return p.find(series, "nodewarden-contract") != "" && p[p.find(series, "nodewarden-contract")] != intact[intact.find(series, "nodewarden-contract")]
	})
	kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "reserved-reason.contract.nodewarden.dev")
	kubectl("patch", "validatingadmissionpolicybinding", "newer-ready.contract.nodewarden.dev", "--type=merge", "-p", `{"spec":{"validationActions":["Warn"]}}`)
	kubectl("patch", "validatingadmissionpolicy", "reason-missing.contract.nodewarden.dev", "--type=merge", "-p", `{"spec":{"failurePolicy":"Ignore"}}`)
	kubectl("delete", "validatingwebhookconfiguration", "nodewarden-contract")
	damaged := page("all damage is seen", func(p pageOfSeries) bool {
		return !p.has("kube_validatingwebhookconfiguration_info", "nodewarden-contract") && !p.has("kube_validatingadmissionpolicybinding_info", `binding="reserved-reason.contract`) &&
			!p.has("kube_validatingadmissionpolicy_info", "reserved-reason.contract") && p.has("kube_validatingadmissionpolicybinding_validation_action", "newer-ready.contract", `"Warn"`) &&
			p.has("kube_validatingadmissionpolicy_info", "reason-missing.contract", `"Ignore"`)
	})

	missing := func(kind, label, name string) map[string]any {
		return map[string]any{"severity": "critical", "object": kind + "/" + name, label: name}
	}
	weakened := func(kind, label, name string) map[string]any {
		return map[string]any{"severity": "warning", "object": kind + "/" + name, label: name}
	}
	const policy, binding = "validatingadmissionpolicy", "validatingadmissionpolicybinding"
	story := newStory(intact, edited, damaged)
	story.expect("19m", map[string][]map[string]any{"NodewardenGuardMissing": nil, "NodewardenGuardWeakened": nil, "NodewardenGuardChanged": nil, "NodewardenWebhookUnconfigured": nil})
	story.expect("22m", map[string][]map[string]any{
		"NodewardenGuardMissing": nil, "NodewardenGuardWeakened": nil, "NodewardenWebhookUnconfigured": nil,
		"NodewardenGuardChanged": {{"severity": "info", "validatingwebhookconfiguration": "nodewarden-contract"}},
	})
	story.expect("50m", map[string][]map[string]any{
		"NodewardenGuardMissing": {
			missing("ValidatingAdmissionPolicy", policy, "reserved-reason.contract.nodewarden.dev"),
			missing("ValidatingAdmissionPolicyBinding", binding, "reserved-reason.contract.nodewarden.dev"),
		},
		"NodewardenGuardWeakened": {
			weakened("ValidatingAdmissionPolicyBinding", binding, "newer-ready.contract.nodewarden.dev"),
			weakened("ValidatingAdmissionPolicyBinding", binding, "reserved-reason.contract.nodewarden.dev"),
			weakened("ValidatingAdmissionPolicy", policy, "reason-missing.contract.nodewarden.dev"),
		},
		"NodewardenWebhookUnconfigured": {{"severity": "critical", "validatingwebhookconfiguration": "nodewarden-contract"}},
		"NodewardenGuardChanged":        nil,
	})
	// Nobody scrapes a webhook here, and there is no Deployment of one: that there should be one shows in the configuration, while it is there.
	story.expect("20m", map[string][]map[string]any{"NodewardenWebhookDown": {{"severity": "warning"}}})
	story.expect("51m", map[string][]map[string]any{"NodewardenWebhookDown": nil})
	s := load(t)
	for _, g := range s.Groups {
		for i := range g.Rules {
			g.Rules[i].Annotations = nil
		}
	}
	write(t, dir, "rules.yaml", s)
	write(t, dir, "story.yaml", story.file())
	if out, err := run(t, dir, program, "test", "rules", "story.yaml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// show runs kube-state-metrics with its defaults, less what this API server does
// not need, and returns what reads its page until it is as wanted.
func show(ctx context.Context, t *testing.T, cp *controlplane.ControlPlane) func(what string, wanted func(pageOfSeries) bool) pageOfSeries {
	t.Helper()
	kubeconfig, err := cp.Kubeconfig(cp.Admin())
	if err != nil {
		t.Fatal(err)
	}
	var ports [2]int
	for i := range ports {
		if ports[i], err = controlplane.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	p, err := cp.Run(ctx, controlplane.Command{Path: kubeStateMetrics(t), Args: []string{
		"--kubeconfig=" + kubeconfig, "--host=127.0.0.1", "--port=" + strconv.Itoa(ports[0]), "--telemetry-host=127.0.0.1", "--telemetry-port=" + strconv.Itoa(ports[1]),
	}, Ready: func(ctx context.Context) error { _, err := body(ctx, url+"/healthz"); return err }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return func(what string, wanted func(pageOfSeries) bool) pageOfSeries {
		t.Helper()
		deadline, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		for {
			text, err := body(deadline, url+"/metrics")
			if err == nil {
				if page := seriesOf(text); wanted(page) {
					return page
				}
				err = errors.New("it shows something else")
			}
			select {
			case <-deadline.Done():
				t.Fatalf("never seen: %s: %v", what, err)
			case <-time.After(50 * time.Millisecond): // between two scrapes
			}
		}
	}
}

func body(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}

// pageOfSeries are the series of a scraped page, with their values.
type pageOfSeries map[string]string

// seriesOf reads what the alerts go by.
func seriesOf(text string) pageOfSeries {
	page := pageOfSeries{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if at := strings.LastIndexByte(line, ' '); at > 0 && (strings.HasPrefix(line, "kube_validating") || strings.HasPrefix(line, "kube_node_info")) {
			page[line[:at]] = line[at+1:]
		}
	}
	return page
}

// find returns a series of that name whose labels contain all fragments.
func (p pageOfSeries) find(name string, fragments ...string) string {
	for series := range p {
		if strings.HasPrefix(series, name+"{") && holdsAll(series, fragments) {
			return series
		}
	}
	return ""
}

func (p pageOfSeries) has(name string, fragments ...string) bool {
	return p.find(name, fragments...) != ""
}

// scrapes are how often, at one a minute, each of a story's pages is read.
const scrapes = 20

// story is a unit test of promtool, in which one page is scraped after the other.
type story struct {
	series []map[string]string
	tests  []map[string]any
}

func newStory(pages ...pageOfSeries) *story {
	all := map[string]bool{}
	for _, p := range pages {
		for series := range p {
			all[series] = true
		}
	}
	s := &story{series: []map[string]string{{"series": `nodewarden_webhook_in_flight_reviews{pod="w-1"}`, "values": fmt.Sprintf("0x%d", len(pages)*scrapes)}}}
	for _, series := range slices.Sorted(maps.Keys(all)) {
		var values []string
		before := false
		for _, p := range pages {
			value, shown := p[series]
			switch {
			case shown:
				values = append(values, fmt.Sprintf("%sx%d", plain(value), scrapes-1))
			case before:
				values = append(values, fmt.Sprintf("stale _x%d", scrapes-1))
			default:
				values = append(values, fmt.Sprintf("_x%d", scrapes))
			}
			before = shown
		}
		s.series = append(s.series, map[string]string{"series": series, "values": strings.Join(values, " ")})
	}
	return s
}

// plain writes a value such as 1.7e+09 in the form that promtool reads.
func plain(value string) string {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return value
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// expect adds what every alert says at one time.
func (s *story) expect(at string, alerts map[string][]map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		expected := []map[string]any{}
		for _, labels := range alerts[name] {
			expected = append(expected, map[string]any{"exp_labels": labels})
		}
		s.tests = append(s.tests, map[string]any{"alertname": name, "eval_time": at, "exp_alerts": expected})
	}
}

func (s *story) file() map[string]any {
	return map[string]any{
		"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m",
		"tests": []map[string]any{{"interval": "1m", "input_series": s.series, "alert_rule_test": s.tests}},
	}
}
