package contract

var reasonUnclear = promise{
	name:      ReasonUnclear,
	byDefault: Warn,
	about:     theEntry,
	refuses:   "the new reason is NodeStatusNeverUpdated, or not a CamelCase word",
	broken: func(l look) *Violation {
		if l.is.Reason == "" || l.is.Reason != reasonNeverUpdated && camelCase(l.is.Reason) {
			return nil
		}
		return &Violation{
			Field: readyPath("reason"), Was: quote(l.was.Reason), Is: quote(l.is.Reason),
			Problem: "is not a clear reason",
			Remedy:  "send one CamelCase word of your own, such as OutOfBandProbeFailed",
		}
	},
}

// reasonNeverUpdated is what the node lifecycle controller writes for a node
// that never reported.
const reasonNeverUpdated = "NodeStatusNeverUpdated"

// maxReason is how long a clear reason may be, as for conditions elsewhere in
// Kubernetes. It also bounds what a policy in CEL spends on matching one.
const maxReason = 1024

// camelCase says whether s is a letter from A to Z followed by ASCII letters
// and digits, and no longer than a reason should be.
func camelCase(s string) bool {
	if len(s) > maxReason {
		return false
	}
	for i := range len(s) {
		c := s[i]
		upper, lower, digit := 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9'
		if i == 0 && !upper || !upper && !lower && !digit {
			return false
		}
	}
	return s != ""
}
