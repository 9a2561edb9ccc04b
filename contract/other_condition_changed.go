package contract

import "slices"

var otherConditionChanged = promise{
	name:      OtherConditionChanged,
	byDefault: Warn,
	about:     theObject,
	refuses:   "a write that changes Ready also changes MemoryPressure, DiskPressure or PIDPressure",
	broken: func(l look) *Violation {
		var changed []string
		for _, t := range pressures {
			if hasType(l.w.After, t) && !entriesEqual(l.w.Before, l.w.After, t) {
				changed = append(changed, t)
			}
		}
		if len(changed) == 0 {
			return nil
		}
		return &Violation{
			Field: "status.conditions", Was: "as the kubelet wrote them", Is: list(changed) + " changed",
			Problem: "changed beside Ready",
			Remedy:  "change the Ready entry alone; the other conditions are the kubelet's",
		}
	},
}

// Pressures returns the condition types that a kubelet reports together with
// Ready.
func Pressures() []string { return slices.Clone(pressures) }

var pressures = []string{"MemoryPressure", "DiskPressure", "PIDPressure"}
