package contract

var reservedReason = promise{
	name:      ReservedReason,
	byDefault: Deny,
	about:     theEntry,
	refuses:   "the new reason is NodeStatusUnknown",
	broken: func(l look) *Violation {
		if l.is.Reason != reasonReserved {
			return nil
		}
		return &Violation{
			Field: readyPath("reason"), Was: quote(l.was.Reason), Is: quote(l.is.Reason),
			Problem: "is reserved for the node lifecycle controller",
			Remedy:  "send a reason of your own, such as OutOfBandProbeFailed",
		}
	},
}

// reasonReserved is what the node lifecycle controller writes when it finds a
// kubelet silent. KEP-6371 keeps it from everybody else.
const reasonReserved = "NodeStatusUnknown"
