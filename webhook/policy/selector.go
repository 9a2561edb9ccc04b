package policy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/nodewarden/nodewarden/contract"
)

// nodeLabels are those that decide which detector may write a Node: before the
// write on UPDATE, the new ones on CREATE.
const nodeLabels = `dyn(oldObject == null ? object : oldObject).metadata.?labels.orValue({})`

// listed is true where the writer is a listed detector of a Node with labels.
func listed(detectors []contract.Detector) (string, error) {
	var expressions []string
	for _, d := range detectors {
		if d.User == "" {
			continue
		}
		nodes, err := selects(d.Nodes)
		if err != nil {
			return "", fmt.Errorf("the node selector of detector %q: %w", d.User, err)
		}
		e := is(d.Identity)
		if nodes != "" {
			e += " && " + nodes
		}
		expressions = append(expressions, e)
	}
	return anyOf(expressions...), nil
}

// selects is true for the Nodes that s selects; empty where it selects all.
func selects(s labels.Selector) (string, error) {
	if s == nil {
		return "", nil
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return "false", nil
	}
	var expressions []string
	for _, r := range requirements {
		e, err := meets(r)
		if err != nil {
			return "", err
		}
		expressions = append(expressions, e)
	}
	return strings.Join(expressions, " && "), nil
}

func meets(r labels.Requirement) (string, error) {
	has := quoted(r.Key()) + ` in labels`
	value := `labels[` + quoted(r.Key()) + `]`
	switch r.Operator() {
	case selection.Exists:
		return has, nil
	case selection.DoesNotExist:
		return "!(" + has + ")", nil
	case selection.In, selection.Equals, selection.DoubleEquals:
		return has + ` && ` + value + ` in ` + texts(r.Values().List()), nil
	case selection.NotIn, selection.NotEquals:
		return `!(` + has + ` && ` + value + ` in ` + texts(r.Values().List()) + `)`, nil
	case selection.GreaterThan:
		return numeric(has, value) + ` && int(` + value + `) > ` + r.Values().List()[0], nil
	case selection.LessThan:
		return numeric(has, value) + ` && int(` + value + `) < ` + r.Values().List()[0], nil
	default:
		return "", fmt.Errorf("operator %q has no form in CEL", r.Operator())
	}
}

// numeric guards a conversion to int, which errs on other text. Labels that
// are numbers above 10^18 count as no numbers.
func numeric(has, value string) string {
	return has + ` && ` + value + `.matches("^0*[0-9]{1,18}$")`
}

func texts(values []string) string {
	literals := make([]string, len(values))
	for i, v := range values {
		literals[i] = quoted(v)
	}
	return "[" + strings.Join(literals, ", ") + "]"
}
