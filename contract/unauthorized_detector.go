package contract

import (
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
)

var unauthorizedDetector = promise{
	name:      UnauthorizedDetector,
	byDefault: Off,
	about:     theObject,
	refuses:   "detectors are listed and this writer is not one of them for this node, or changes the labels that decide it",
	broken: func(l look) *Violation {
		if len(l.p.Detectors) == 0 {
			return nil
		}
		if l.w.Verb == Update && l.w.Touched.Labels {
			return &Violation{
				Field: "metadata.labels", Was: "unchanged by a status write", Is: "changed",
				Problem: "decide which detector may write",
				Remedy:  "change labels through the node itself, not through nodes/status",
			}
		}
		if l.listed() {
			return nil
		}
		return &Violation{
			Field: "request.userInfo.username", Was: entriesListed(len(l.p.Detectors)), Is: quote(l.w.User.Name),
			Problem: "is not a listed detector of this node",
			Remedy:  "add the writer under detectors in the policy file, with a node selector that matches the node",
		}
	},
}

// listed says whether the writer is a detector of the Node's pool.
func (l look) listed() bool {
	for _, d := range l.p.Detectors {
		if d.Is(l.w.User) && (d.Nodes == nil || d.Nodes.Matches(labels.Set(l.w.Labels))) {
			return true
		}
	}
	return false
}

func entriesListed(n int) string { return "one of " + strconv.Itoa(n) + " listed" }
