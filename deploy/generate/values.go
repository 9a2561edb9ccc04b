package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nodewarden/nodewarden/contract"
)

// values are the settings of values.yaml, in its order.
type values []*value

// value is one setting: its description and limits are the comment above it.
type value struct {
	path string
	name string
	// about is the description, in one line.
	about string
	// limit is the directive that the comment ends with, and its arguments.
	limit []string
	node  *yaml.Node
	// inner are the settings of a map that has them.
	inner values
}

func readValues(path string) (values, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return valuesOf("", root.Content[0])
}

func valuesOf(prefix string, mapping *yaml.Node) (values, error) {
	var all values
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		v := &value{path: prefix + key.Value, name: key.Value, node: node}
		v.readComment(key.HeadComment)
		if node.Kind == yaml.MappingNode && len(node.Content) > 0 && v.limit == nil {
			var err error
			if v.inner, err = valuesOf(v.path+".", node); err != nil {
				return nil, err
			}
		}
		if v.about == "" && !obvious[v.name] {
			return nil, fmt.Errorf("%s in values.yaml has no comment above it: say what it does", v.path)
		}
		all = append(all, v)
	}
	return all, nil
}

// obvious are the names that say it all.
var obvious = map[string]bool{
	"resources": true, "podLabels": true, "podAnnotations": true, "logLevel": true, "logFormat": true,
	"enabled": true, "create": true, "pullPolicy": true,
}

// readComment takes the last paragraph of a comment apart: what stands before
// it is about the file.
func (v *value) readComment(comment string) {
	paragraphs := strings.Split(comment, "\n\n")
	var about []string
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if directive, found := strings.CutPrefix(line, "@"); found {
			v.limit = strings.Fields(directive)
			continue
		}
		about = append(about, line)
	}
	v.about = strings.TrimSpace(strings.Join(about, " "))
}

// object is a JSON object in the making; encoding sorts its keys.
type object = map[string]any

// schema is values.schema.json.
func (vs values) schema() ([]byte, error) {
	properties, err := vs.properties()
	if err != nil {
		return nil, err
	}
	// Helm hands charts a map of its own, and parents of a chart theirs.
	properties["global"] = object{"type": "object"}
	root := object{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the nodewarden chart",
		"$comment": "Generated from values.yaml by make generate.",
		"type":     "object", "additionalProperties": false, "properties": properties, "required": vs.required(), "definitions": definitions(),
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(root)
	return out.Bytes(), err
}

func (vs values) properties() (object, error) {
	all := object{}
	for _, v := range vs {
		s, err := v.schema()
		if err != nil {
			return nil, err
		}
		if v.about != "" {
			s["description"] = v.about
		}
		all[v.name] = s
	}
	return all, nil
}

// required are the settings that a null must not take away: without a default
// templates would render nothing in their place, or something else.
func (vs values) required() []string {
	names := []string{}
	for _, v := range vs {
		if !v.nullable() {
			names = append(names, v.name)
		}
	}
	slices.Sort(names)
	return names
}

// nullable are lists and maps, of which null is an empty one, but for those of
// the policy file and ports, which may not be empty; and what may be off, of
// which null is another way to say it.
func (v *value) nullable() bool {
	switch v.directive() {
	case "enum":
		return slices.Contains(v.limit, "off")
	case "ports":
		return false
	}
	return v.inner == nil && v.node.Kind != yaml.ScalarNode && !strings.HasPrefix(v.path, "policy.")
}

// directive is the limit's first word, if there is a limit.
func (v *value) directive() string {
	if len(v.limit) == 0 {
		return ""
	}
	return v.limit[0]
}

func (v *value) schema() (object, error) {
	if len(v.limit) > 0 {
		return v.limited()
	}
	switch {
	case v.inner != nil:
		properties, err := v.inner.properties()
		return object{"type": "object", "additionalProperties": false, "properties": properties, "required": v.inner.required()}, err
	case v.node.Tag == "!!bool":
		return object{"type": "boolean"}, nil
	case v.node.Tag == "!!int":
		return object{"type": "integer"}, nil
	case v.node.Tag == "!!str":
		return object{"type": "string"}, nil
	}
	return nil, fmt.Errorf("%s in values.yaml needs a line with @ in its comment: its value alone does not say what it may hold", v.path)
}

var singular = map[string]string{"identities": "identity", "detectors": "detector"}

// limited is the schema of a value whose comment has a directive.
func (v *value) limited() (object, error) {
	args := v.limit[1:]
	switch v.directive() {
	case "enum":
		return object{"enum": words(args)}, nil
	case "range":
		least, err := strconv.Atoi(args[0])
		if err != nil {
			return nil, fmt.Errorf("%s: @range: %w", v.path, err)
		}
		most, err := strconv.Atoi(args[1])
		return object{"type": "integer", "minimum": least, "maximum": most}, err
	case "port": // of a server, which is not root
		return object{"type": "integer", "minimum": 1024, "maximum": 65535}, nil
	case "duration":
		return object{"type": "string", "pattern": `^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$`, "minLength": 2}, nil
	case "ports": // one at least: a network policy without any lets everything through
		return object{"type": "array", "minItems": 1, "items": object{"type": "integer", "minimum": 1, "maximum": 65535}}, nil
	case "name":
		return v.optional(dnsName, 253), nil
	case "registry":
		return object{"type": "string", "pattern": whole(`(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][-A-Za-z0-9.]*)(:[0-9]+)?(/` + imagePart + `)*/?`)}, nil
	case "tag":
		return v.optional(`[A-Za-z0-9_][-A-Za-z0-9_.]*`, 128), nil
	case "selector":
		return v.optional(conditions, 4096), nil
	case "labels":
		return labelMap(), nil
	case "source":
		return object{"enum": []string{"", "kubelet", "external"}}, nil
	case "url":
		return object{"type": "string", "pattern": `^(https://.+)?$`}, nil
	case "rules":
		return object{"$ref": "#/definitions/rules"}, nil
	case "identities", "detectors":
		return object{"type": "array", "items": object{"$ref": "#/definitions/" + singular[v.limit[0]]}}, nil
	case "strings":
		if v.node.Kind == yaml.SequenceNode {
			return object{"type": "array", "items": object{"type": "string"}}, nil
		}
		return object{"type": "object", "additionalProperties": object{"type": "string"}}, nil
	case "object", "quantities":
		return object{"type": "object"}, nil
	case "objects":
		return object{"type": "array", "items": object{"type": "object"}}, nil
	}
	return nil, fmt.Errorf("%s: @%s is no directive", v.path, v.limit[0])
}

// The forms of names, as API servers and registries take them.
const (
	dnsLabel   = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	dnsName    = dnsLabel + `(\.` + dnsLabel + `)*`
	labelName  = `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
	labelKey   = `(` + dnsName + `/)?` + labelName
	labelValue = `(` + labelName + `)?`
	imagePart  = `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
)

// A selector of labels as one text is conditions with commas between them.
const (
	among      = `\s(in|notin)\s*\(\s*` + labelValue + `(\s*,\s*` + labelValue + `)*\s*\)`
	compared   = `\s*(==?|!=)\s*` + labelValue + `|\s*[<>]\s*[0-9]+`
	condition  = `\s*(!\s*` + labelKey + `|` + labelKey + `(` + compared + `|` + among + `)?)\s*`
	conditions = condition + `(,` + condition + `)*`
)

func whole(pattern string) string { return "^(" + pattern + ")$" }

// optional is a text of that form, or none if none is the default.
func (v *value) optional(pattern string, length int) object {
	if v.node.Value == "" {
		pattern += "|"
	}
	return object{"type": "string", "pattern": whole(pattern), "maxLength": length}
}

func labelMap() object {
	return object{
		"type": "object", "propertyNames": object{"pattern": whole(labelKey)},
		"additionalProperties": object{"type": "string", "pattern": whole(labelValue)},
	}
}

// words are the values that a text may have; of a bare off YAML makes false.
func words[T ~string](of []T) (all []any) {
	for _, word := range of {
		all = append(all, word)
		if word == "off" {
			all = append(all, false)
		}
	}
	return all
}

// definitions are the parts of the policy file that are more than a scalar.
func definitions() object {
	actions, rules := words(contract.Actions()), object{}
	for _, r := range contract.Rules() {
		rules[string(r)] = object{"enum": actions, "description": "Refused when " + r.Refuses() + "."}
	}
	// What CEL's text form and Go's agree on: printable ASCII.
	text := object{"type": "string", "pattern": `^[ -~]*$`}
	account := object{
		"type": "object", "additionalProperties": false, "required": []string{"namespace", "name"},
		"properties": object{
			"namespace": object{"type": "string", "pattern": whole(dnsLabel), "maxLength": 63},
			"name":      object{"type": "string", "pattern": whole(dnsName), "maxLength": 253},
		},
	}
	identity := func(more object) object {
		properties := object{"serviceAccount": account, "user": text, "group": text}
		for name, s := range more {
			properties[name] = s
		}
		return object{"type": "object", "additionalProperties": false, "properties": properties}
	}
	key, value := object{"type": "string", "pattern": whole(labelKey)}, object{"type": "string", "pattern": whole(labelValue)}
	requirement := object{
		"type": "object", "additionalProperties": false, "required": []string{"key", "operator"},
		"properties": object{
			"key": key, "operator": object{"enum": []string{"In", "NotIn", "Exists", "DoesNotExist"}},
			"values": object{"type": "array", "items": value},
		},
	}
	selector := object{
		"type": "object", "additionalProperties": false,
		"properties": object{
			"matchLabels":      labelMap(),
			"matchExpressions": object{"type": "array", "items": requirement},
		},
	}
	return object{
		"rules":    object{"type": "object", "additionalProperties": false, "properties": rules},
		"identity": identity(nil),
		"detector": identity(object{"nodeSelector": selector}),
	}
}

// readme is README.md of the chart.
func (vs values) readme() []byte {
	var b bytes.Buffer
	b.WriteString(readmeHead)
	b.WriteString("\n| value | default | |\n|---|---|---|\n")
	vs.rows(&b)
	return b.Bytes()
}

const readmeHead = `<!-- Generated from values.yaml by make generate. -->
# nodewarden chart

Installs the guard of KEP-6371's contract, and on request the node lifecycle controller, into a cluster of Kubernetes 1.30 or newer.

    helm install nodewarden deploy/chart --namespace nodewarden-system --create-namespace --wait \
      --set image.registry=YOUR.REGISTRY/nodewarden
    helm test nodewarden --namespace nodewarden-system

[docs/install.md](../../docs/install.md) leads from there to refusals in three steps; [docs/upgrade.md](../../docs/upgrade.md) says how to
upgrade, go back and uninstall. One install a cluster: names do not carry the release's name, since the policies have the cluster to themselves.

## Values
`

func (vs values) rows(b *bytes.Buffer) {
	for _, v := range vs {
		if v.inner != nil {
			if v.about != "" {
				fmt.Fprintf(b, "| **%s** | | %s |\n", v.path, cell(v.about))
			}
			v.inner.rows(b)
			continue
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", v.path, cell(v.inline()), cell(v.about+v.choices()))
	}
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// inline is the default on one line.
func (v *value) inline() string {
	var plain any
	if err := v.node.Decode(&plain); err != nil {
		return ""
	}
	if s, ok := plain.(string); ok && s != "" {
		return s
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(plain); err != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}

func (v *value) choices() string {
	if v.directive() != "enum" {
		return ""
	}
	choices := "One of `" + strings.Join(v.limit[1:], "`, `") + "`."
	if v.about == "" {
		return choices
	}
	return " " + choices
}
