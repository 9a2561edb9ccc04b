package conformance

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/nodes"
	"github.com/nodewarden/nodewarden/webhook/config"
)

const page = "../../docs/contract.md"

func sections(t *testing.T) (stored *corev1.Node, bySection map[string]string, order []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	stored = &corev1.Node{}
	if err := yaml.UnmarshalStrict([]byte(blocks(string(text), "# stored\n")[0]), stored); err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(text), "\n# The rules\n")
	rules, _, _ = strings.Cut(rules, "\n# The policy file\n")
	bySection = map[string]string{}
	for _, s := range strings.Split(rules, "\n## ")[1:] {
		name, body, _ := strings.Cut(s, "\n")
		bySection[name] = body
		order = append(order, name)
	}
	return stored, bySection, order
}

var fence = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// blocks returns the YAML blocks that begin with prefix, without it.
func blocks(text, prefix string) []string {
	var found []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if body, ok := strings.CutPrefix(m[1], prefix); ok {
			found = append(found, body)
		}
	}
	return found
}

func TestThePageHasASectionARuleInTableOrder(t *testing.T) {
	_, bySection, order := sections(t)
	var want []string
	for _, r := range contract.Rules() {
		want = append(want, string(r))
		sentence := "Default: " + string(r.Default()) + ". Refused when " + r.Refuses() + "."
		if !strings.Contains(bySection[string(r)], sentence) {
			t.Errorf("section %s does not say %q", r, sentence)
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("sections %v, want %v", order, want)
	}
}

func TestTheExamplesOfThePageAreTrue(t *testing.T) {
	stored, bySection, _ := sections(t)
	for _, rule := range contract.Rules() {
		examples := blocks(bySection[string(rule)], "")
		if len(examples) != 2 {
			t.Errorf("%s: %d examples, want a refused and an admitted one", rule, len(examples))
			continue
		}
		for i, text := range examples {
			var want []contract.Rule
			if i == 0 {
				want = []contract.Rule{rule}
			}
			if got := verdict(t, stored, text); !slices.Equal(got, want) {
				t.Errorf("%s, example %d breaks %v, want %v", rule, i+1, got, want)
			}
		}
	}
}

// verdict plays one example, whose first line says how it is sent.
func verdict(t *testing.T, stored *corev1.Node, text string) []contract.Rule {
	t.Helper()
	head, body, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	words := strings.Split(head, " | ")
	f := Function{Policy: contract.Default(contract.Enforce), User: contract.User{Name: Detector.User, Groups: []string{Detector.Group}}, Silence: 40 * time.Second}
	before := stored.DeepCopy()
	ready := nodes.Ready(before)
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, ": ")
		switch {
		case w == "stored: ready since 2s":
			ready.LastTransitionTime = at(-2)
		case w == "stored: recorded":
			report(before, ready)
			ready.LastTransitionTime = at(40)
		case key == "arrives":
			f.Silence = duration(t, value)
		case w == "by: other":
			other := contract.ServiceAccount("liveness", "other")
			f.User = contract.User{Name: other.User, Groups: []string{other.Group}}
		case w == "policy: listed":
			f.Policy = Policy(contract.UnauthorizedDetector)
		case key == "policy":
			f.Policy = parsed(t, value)
		default:
			t.Fatalf("no such note: %q", w)
		}
	}
	broken, err := f.Write(t.Context(), before, patched(t, before, words[0], body))
	if err != nil {
		t.Fatal(err)
	}
	return broken
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parsed(t *testing.T, flow string) contract.Policy {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(flow), &fields); err != nil {
		t.Fatal(err)
	}
	fields["apiVersion"], fields["kind"], fields["profile"] = config.APIVersion, config.Kind, contract.Enforce
	text, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c.Policy()
}

// patched applies a request body as the API server would.
func patched(t *testing.T, before *corev1.Node, kind, body string) *corev1.Node {
	t.Helper()
	patch, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	from, err := yaml.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if from, err = yaml.YAMLToJSON(from); err != nil {
		t.Fatal(err)
	}
	var to []byte
	switch kind {
	case "strategic merge patch":
		to, err = strategicpatch.StrategicMergePatch(from, patch, corev1.Node{})
	case "JSON merge patch":
		to, err = jsonpatch.MergePatch(from, patch)
	case "JSON patch":
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(patch); err == nil {
			to, err = p.Apply(from)
		}
	default:
		t.Fatalf("no such kind of request: %q", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Node{}
	if err := yaml.UnmarshalStrict(to, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func TestThePolicyFileOfThePageIsTheDefault(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(text), "\n# The policy file\n")
	c, err := config.Parse([]byte(blocks(file, "")[0]))
	if err != nil {
		t.Fatal(err)
	}
	printed, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := config.Default().YAML(); err != nil || string(printed) != string(want) {
		t.Errorf("%v\n got %s\nwant %s", err, printed, want)
	}
}
