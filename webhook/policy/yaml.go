package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is one object of a file and what is worth saying about it.
type document struct {
	comment string
	object  any
}

// encode writes documents as YAML: fields in the order of the API, expressions
// as blocks, nothing that the server fills in.
func encode(head string, documents []document) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(commented(head))
	for i, d := range documents {
		tree, err := treeOf(d.object)
		if err != nil {
			return nil, err
		}
		// The head belongs to the first document: the API server's loader of
		// files does not take one that is nothing but a comment.
		separator := "---\n"
		if i == 0 {
			separator = "\n"
		}
		out.WriteString(separator + commented(d.comment))
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(tree); err != nil {
			return nil, err
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// treeOf goes by way of JSON, which knows the API's field names and is YAML.
func treeOf(object any) (*yaml.Node, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", object, err)
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", object, err)
	}
	plain(&tree)
	return &tree, nil
}

// plain gives every node the style a person would write, and drops what only
// the server sets.
func plain(n *yaml.Node) {
	n.Style = 0
	switch {
	case n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "\n"):
		n.Style = yaml.LiteralStyle
	case n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Kind != yaml.ScalarNode }):
		n.Style = yaml.FlowStyle
	case n.Kind == yaml.MappingNode:
		dropServers(n)
		versionFirst(n)
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// versionFirst puts apiVersion before kind, as everybody writes it.
func versionFirst(mapping *yaml.Node) {
	if c := mapping.Content; len(c) > 4 && c[0].Value == "kind" && c[2].Value == "apiVersion" {
		c[0], c[1], c[2], c[3] = c[2], c[3], c[0], c[1]
	}
}

// dropServers leaves out what a client does not set.
func dropServers(mapping *yaml.Node) {
	var kept []*yaml.Node
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		unset := key.Value == "creationTimestamp" && value.Tag == "!!null" || key.Value == "status" && value.Kind == yaml.MappingNode
		if !unset {
			kept = append(kept, key, value)
		}
	}
	mapping.Content = kept
}

func commented(text string) string {
	if text == "" {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
	}
	return b.String()
}
