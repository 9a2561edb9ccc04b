package contract

import "strings"

var labelsChanged = promise{
	name:      LabelsChanged,
	byDefault: Warn,
	about:     theObject,
	compares:  true,
	refuses:   "a write that changes Ready also changes labels, annotations, ownerReferences or finalizers",
	broken: func(l look) *Violation {
		touched := l.w.Touched.names()
		if len(touched) == 0 {
			return nil
		}
		return &Violation{
			Field: strings.Join(touched, ","), Was: "unchanged by a status write", Is: "changed",
			Problem: "changed together with Ready",
			Remedy:  "change metadata through the node itself, not through nodes/status",
		}
	},
}
