package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/nodewarden/nodewarden/contract"
)

func (v verdict) json(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// text is the verdict for a person: the answer first, then a paragraph a rule.
func (v verdict) text(out io.Writer) error {
	var b strings.Builder
	answer := "admitted"
	if !v.Admitted {
		answer = "REFUSED " + v.bracket()
	}
	fmt.Fprintf(&b, "%s: Node %s, written by %s (%s)\n", answer, orNone(v.Node), orNone(v.User), v.Writer)
	for _, each := range v.Broken {
		fmt.Fprintf(&b, "\n%s (%s): broken when %s\n", each.Rule, each.Action, each.Rule.Refuses())
		fmt.Fprintf(&b, "  field   %s %s\n", each.Field, each.Problem)
		fmt.Fprintf(&b, "  was     %s\n", each.Was)
		fmt.Fprintf(&b, "  is      %s\n", each.Is)
		fmt.Fprintf(&b, "  remedy  %s\n", each.Remedy)
	}
	for _, note := range v.Notes {
		fmt.Fprintf(&b, "\nNote: %s.\n", note)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (v verdict) bracket() string {
	var names []string
	for _, each := range v.Broken {
		if each.Action == contract.Deny {
			names = append(names, string(each.Rule))
		}
	}
	return "[" + strings.Join(names, ",") + "]"
}

func orNone(s string) string {
	if s == "" {
		return "(nobody named)"
	}
	return s
}
