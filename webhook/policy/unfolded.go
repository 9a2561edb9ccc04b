package policy

import (
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// Folding is how a policy comes to carry few variables: one that is read in a
// single place, or is short, stands where it is read.
type Folding struct {
	// Short is how many bytes an expression may have to stand wherever it is read.
	Short int
	// Kept are variables that stay variables all the same.
	Kept []string
}

// HowVariablesFold is for whoever puts values into unfolded policies, and then
// has to fold them.
func HowVariablesFold() Folding {
	return Folding{Short: short, Kept: slices.Sorted(maps.Keys(apart))}
}

// variables are those that a policy with that message carries.
func (r *renderer) variables(message string, expressions ...string) []admissionv1.Variable {
	known := append(slices.Clone(r.known), variable("message", message))
	if r.unfolded {
		return reached(known, expressions...)
	}
	return needed(known, expressions...)
}

// reached are those of the known variables that expressions read, directly or
// not, in order and as they are.
func reached(known []admissionv1.Variable, expressions ...string) []admissionv1.Variable {
	of := map[string]string{}
	for _, v := range known {
		of[v.Name] = v.Expression
	}
	reads := map[string]int{}
	for _, e := range expressions {
		for _, name := range references(e) {
			count(of, name, reads)
		}
	}
	return slices.DeleteFunc(known, func(v admissionv1.Variable) bool { return reads[v.Name] == 0 })
}
