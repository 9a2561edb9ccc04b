package policy

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/contract"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

// two is a policy with one rule that denies and one that warns: enough to
// review every part of what is rendered.
func two() contract.Policy {
	p := contract.Default(contract.Enforce)
	p.Rules = map[contract.Rule]contract.Action{}
	for _, r := range contract.Rules() {
		p.Rules[r] = contract.Off
	}
	p.Rules[contract.ReservedReason], p.Rules[contract.ClockSkew] = contract.Deny, contract.Warn
	p.StandIns = []contract.Identity{contract.ServiceAccount("kwok", "kwok-controller")}
	return p
}

func TestRenderedFilesAreAsReviewed(t *testing.T) {
	alone := WebhookOptions{Install: WebhookAlone, URL: "https://127.0.0.1:9443/validate", CABundle: []byte("PEM")}
	for name, render := range map[string]func() (File, error){
		"webhook.yaml":          func() (File, error) { return RenderWebhooks(two(), service()) },
		"webhook-alone.yaml":    func() (File, error) { return RenderWebhooks(two(), alone) },
		"webhook-old.yaml":      func() (File, error) { o := service(); o.Server = Version{1, 27}; return RenderWebhooks(two(), o) },
		"policy.yaml":           func() (File, error) { return RenderPolicies(two(), Version{}) },
		"static.yaml":           static(0),
		"admission-config.yaml": static(1),
	} {
		t.Run(name, func(t *testing.T) {
			file, err := render()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, file.Text)
		})
	}
}

func static(i int) func() (File, error) {
	return func() (File, error) {
		files, err := RenderStatic(two(), Version{}, "/etc/kubernetes/nodewarden")
		if err != nil {
			return File{}, err
		}
		return files[i], nil
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what was reviewed; look at the difference, then: go test ./webhook/policy -run AsReviewed -update", path)
	}
}

// What is written must be what was rendered: YAML is full of ways to lose a
// quote or a line.
func TestNoExpressionIsLostOnItsWayThroughYAML(t *testing.T) {
	p := everything()
	set, err := Policies(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := RenderPolicies(p, Version{})
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	for _, text := range documents(t, file.Text) {
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.UnmarshalStrict(text, &policy); err == nil && policy.Kind == "ValidatingAdmissionPolicy" {
			read[policy.Name] = spec(t, &policy)
		}
	}
	for _, g := range set.Guards {
		if read[g.Policy.Name] != spec(t, g.Policy) {
			t.Errorf("%s is not read back as it was rendered", g.Policy.Name)
		}
	}
}

func spec(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) string {
	t.Helper()
	text, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func documents(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for _, d := range strings.Split(string(text), "\n---\n") {
		if json, err := utilyaml.ToJSON([]byte(d)); err == nil && string(json) != "null" {
			all = append(all, json)
		}
	}
	return all
}

// An API server takes a manifest of comments alone for a broken one.
func TestNothingToLoadIsNotRenderedAsFiles(t *testing.T) {
	p := contract.Default(contract.Enforce)
	p.Rules = map[contract.Rule]contract.Action{}
	for _, r := range contract.Rules() {
		p.Rules[r] = contract.Off
	}
	if files, err := RenderStatic(p, Version{}, "/etc/kubernetes/nodewarden"); err == nil || !strings.Contains(err.Error(), "every rule is off") {
		t.Errorf("%d files, error %v", len(files), err)
	}
}
