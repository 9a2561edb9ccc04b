package contract

var reasonMissing = promise{
	name:      ReasonMissing,
	byDefault: Deny,
	about:     theEntry,
	refuses:   "the new reason is empty",
	broken: func(l look) *Violation {
		if l.is.Reason != "" {
			return nil
		}
		return &Violation{
			Field: readyPath("reason"), Was: quote(l.was.Reason), Is: quote(l.is.Reason),
			Problem: "is empty",
			Remedy:  "say in one CamelCase word why, such as OutOfBandProbeFailed",
		}
	},
}
