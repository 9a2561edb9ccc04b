package policy

import (
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// An API server prepares every variable of a policy for every request that the
// policy matches, a kubelet's included, whether or not anything will read it.
// So a policy carries no variable that it does not read, and few that it reads
// in one place only.

// short is how long an expression may be to stand wherever it is read.
const short = 72

// apart must stay variables: some are read once for every condition and so must
// be worked out before, the others may be megabytes to cut, which each has a
// cost limit of its own for.
var apart = map[string]bool{
	"afterTypes": true, "oldPressures": true, "newPressures": true,
	"wasStatus": true, "isStatus": true, "wasReason": true, "isReason": true,
}

// needed are those of the known variables that expressions read, directly or
// not, in order. What is short or read once stands where it is read.
func needed(known []admissionv1.Variable, expressions ...string) []admissionv1.Variable {
	of := map[string]string{}
	for _, v := range known {
		of[v.Name] = v.Expression
	}
	direct, reads := map[string]bool{}, map[string]int{}
	for _, e := range expressions {
		for _, name := range references(e) {
			direct[name] = true
			count(of, name, reads)
		}
	}
	var kept []admissionv1.Variable
	final := map[string]string{} // of what does not stay a variable
	for _, v := range known {
		n := reads[v.Name]
		if n == 0 {
			continue
		}
		e := substituted(v.Expression, final)
		if !direct[v.Name] && !apart[v.Name] && (n == 1 || len(e) <= short) {
			final[v.Name] = e
			continue
		}
		kept = append(kept, variable(v.Name, e))
	}
	return kept
}

// count counts in how many places each variable is read, beginning with name.
func count(of map[string]string, name string, reads map[string]int) {
	reads[name]++
	if reads[name] > 1 {
		return // what it reads has been counted
	}
	for _, next := range references(of[name]) {
		count(of, next, reads)
	}
}

// substituted puts expressions where their variables were read.
func substituted(expression string, final map[string]string) string {
	return reference.ReplaceAllStringFunc(expression, func(read string) string {
		e, ok := final[strings.TrimPrefix(read, "variables.")]
		switch {
		case !ok:
			return read
		case atom.MatchString(e):
			return e
		default:
			return "(" + e + ")"
		}
	})
}

// atom matches what needs no parentheses to stand anywhere.
var atom = regexp.MustCompile(`^[\w.]+$`)
