package contract

import "strconv"

var readyDuplicated = promise{
	name:      ReadyDuplicated,
	byDefault: Deny,
	about:     theObject,
	refuses:   "the new Node has more than one Ready entry",
	broken: func(l look) *Violation {
		n := count(l.w.After, typeReady)
		if n < 2 {
			return nil
		}
		return &Violation{
			Field: "status.conditions[Ready]", Was: entries(count(l.w.Before, typeReady)), Is: entries(n),
			Problem: "stands more than once",
			Remedy:  "change the entry that is there; do not append a second one",
		}
	},
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return strconv.Itoa(n) + " entries"
}
