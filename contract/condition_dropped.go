package contract

import (
	"slices"
	"strconv"
	"strings"
)

var conditionDropped = promise{
	name:      ConditionDropped,
	byDefault: Deny,
	about:     theObject,
	compares:  true,
	refuses:   "a write that changes Ready also removes another condition type",
	broken: func(l look) *Violation {
		lost := dropped(l.w.Before, l.w.After)
		if len(lost) == 0 {
			return nil
		}
		return &Violation{
			Field: "status.conditions", Was: list(lost), Is: none,
			Problem: "lost other conditions",
			Remedy:  "use a strategic merge patch of the Ready entry alone; a JSON merge patch replaces the whole list",
		}
	},
}

// MaxCompared bounds the pairs of conditions, before and after, that are
// compared to find a lost one. The bound is that of CEL; lists beyond it are no
// accident (a merge patch that wipes the list leaves a short one), and
// ConditionDropped says nothing about them.
const MaxCompared = 250_000

// dropped returns the condition types in before that after has none of, Ready
// aside, each once.
func dropped(before, after []Condition) []string {
	if len(before)*len(after) > MaxCompared {
		return nil
	}
	var lost []string
	for i := range before {
		t := before[i].Type
		if t != typeReady && !hasType(after, t) && !slices.Contains(lost, t) {
			lost = append(lost, t)
		}
	}
	return lost
}

// maxListed bounds how many names a message lists.
const maxListed = 8

func list(names []string) string {
	more := ""
	if n := len(names) - maxListed; n > 0 {
		names, more = names[:maxListed], ", and "+strconv.Itoa(n)+" more"
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ") + more
}
