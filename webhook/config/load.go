package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/contract"
)

// Load reads, defaults and validates the policy file at path. An empty path
// is the default policy. The error lists every problem, each at its own path.
func Load(path string) (*WebhookConfiguration, error) {
	if path == "" {
		return Default(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("policy file %s: %w", path, err)
	}
	return c, nil
}

// Parse is Load for text at hand.
func Parse(text []byte) (*WebhookConfiguration, error) {
	document, err := only(text)
	if err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	c := &WebhookConfiguration{}
	strict, err := kjson.UnmarshalStrict(raw, c)
	if err != nil {
		return nil, mistyped(err)
	}
	problems := make([]error, 0, len(strict))
	problems = append(problems, strict...)
	if err := c.checkKind(); err != nil {
		return nil, errors.Join(append(problems, err)...)
	}
	problems = append(problems, errorsOf(empty(raw))...)
	c.fill()
	problems = append(problems, errorsOf(c.Validate())...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return c, nil
}

var wrongType = regexp.MustCompile(`cannot unmarshal (\w+)( \S+)? into Go (?:struct field \w+\.(\S+)|value) of type (\S+)`)

// mistyped is err, which names Go's types, as an error at the value.
func mistyped(err error) error {
	m := wrongType.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	is := kinds[m[1]] + m[2]
	if m[3] == "" {
		return fmt.Errorf("is %s; want fields, such as apiVersion: %s", is, APIVersion)
	}
	// Go puts the names of embedded types among those of the fields.
	steps := slices.DeleteFunc(strings.Split(m[3], "."), func(s string) bool { return s != "" && unicode.IsUpper(rune(s[0])) })
	return fmt.Errorf("%s: is %s; want %s", strings.Join(steps, "."), is, wanted(m[4]))
}

// kinds are the kinds of JSON values as a policy file calls them.
var kinds = map[string]string{"string": "text", "number": "a number", "bool": "true or false", "array": "a list", "object": "fields"}

// texts are the types of a policy file that have a name and are written as text.
var texts = []string{"string", "contract.Profile", "config.LivenessSource", "v1.LabelSelectorOperator"}

// wanted says what a value of a Go type is written as.
func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "map["):
		return "fields"
	case strings.HasPrefix(goType, "int"):
		return "a whole number, without quotes"
	case slices.Contains(texts, goType):
		return "text, in quotes where YAML would take it for something else"
	default:
		return "fields"
	}
}

// only returns the one document in text. A second one would be lost without a word.
func only(text []byte) ([]byte, error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var found []byte
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if blank(doc) {
			continue
		}
		if found != nil {
			return nil, errors.New("holds more than one YAML document; keep one")
		}
		found = doc
	}
	if several(found) {
		return nil, errors.New("holds more than one YAML document; keep one")
	}
	if found == nil {
		return nil, fmt.Errorf("is empty; begin with apiVersion: %s and kind: %s", APIVersion, Kind)
	}
	return found, nil
}

// several reports whether something follows the first document, after the end
// that "..." or the brace of a JSON object sets to it. Text that cannot be read
// is told as such later.
func several(text []byte) bool {
	documents := yamlv3.NewDecoder(bytes.NewReader(text))
	var first, next yamlv3.Node
	return documents.Decode(&first) == nil && !errors.Is(documents.Decode(&next), io.EOF)
}

func blank(doc []byte) bool {
	for line := range strings.Lines(string(doc)) {
		if l := strings.TrimSpace(line); l != "" && l != "---" && !strings.HasPrefix(l, "#") {
			return false
		}
	}
	return true
}

// empty finds words that are there and say nothing, such as a variable that
// was not set. They must not stand for the milder guard that is the default.
func empty(raw []byte) field.ErrorList {
	var words struct {
		Profile        *contract.Profile `json:"profile"`
		LivenessSource *LivenessSource   `json:"livenessSource"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw, &words) // has been read before
	var errs field.ErrorList
	if p := words.Profile; p != nil && *p == "" {
		errs = append(errs, field.NotSupported(field.NewPath("profile"), *p, contract.Profiles()))
	}
	if s := words.LivenessSource; s != nil && *s == "" {
		errs = append(errs, field.NotSupported(field.NewPath("livenessSource"), *s, livenessSources))
	}
	return errs
}

func (c *WebhookConfiguration) checkKind() error {
	var errs field.ErrorList
	if c.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, []string{APIVersion}))
	}
	if c.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), c.Kind, []string{Kind}))
	}
	return errors.Join(errorsOf(errs)...)
}

func errorsOf(list field.ErrorList) []error {
	errs := make([]error, len(list))
	for i, e := range list {
		errs[i] = e
	}
	return errs
}

// Default is the configuration of an untouched install: the warn profile.
func Default() *WebhookConfiguration {
	c := &WebhookConfiguration{APIVersion: APIVersion, Kind: Kind}
	c.fill()
	return c
}

// fill sets what the file leaves open.
func (c *WebhookConfiguration) fill() {
	if c.Profile == "" {
		c.Profile = contract.WarnOnly
	}
	if c.LivenessSource == "" {
		c.LivenessSource = FromKubelet
	}
	usual := contract.Default(c.Profile)
	setDefault(&c.RecoveryHold, Duration{Duration: usual.RecoveryHold})
	setDefault(&c.SignalPersistence, Duration{Duration: usual.SignalPersistence})
	setDefault(&c.MaxClockSkew, Duration{Duration: usual.MaxClockSkew})
	setDefault(&c.Lifecycle, identities(usual.Lifecycle))
	setDefault(&c.Controller, identity(usual.Controller))
	setDefault(&c.Stalled.StatusReportPeriod, Duration{Duration: 5 * time.Minute})
	setDefault(&c.Stalled.AfterPeriods, 3)
	setDefault(&c.Stalled.MaxNamedNodes, 100)
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func identities(ids []contract.Identity) []Identity {
	out := make([]Identity, len(ids))
	for i, id := range ids {
		out[i] = identity(id)
	}
	return out
}

func identity(id contract.Identity) Identity {
	if account, ok := strings.CutPrefix(id.User, serviceAccountPrefix); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return Identity{ServiceAccount: &ServiceAccount{Namespace: namespace, Name: name}}
	}
	return Identity{User: id.User, Group: id.Group}
}

// YAML is the configuration as a policy file with every default filled in.
func (c *WebhookConfiguration) YAML() ([]byte, error) { return yaml.Marshal(c) }
