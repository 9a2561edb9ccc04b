package contract

var readyMissing = promise{
	name:      ReadyMissing,
	byDefault: Deny,
	about:     theObject,
	compares:  true,
	refuses:   "the stored Node has a Ready entry and the new one has none",
	broken: func(l look) *Violation {
		if !l.had || hasType(l.w.After, typeReady) {
			return nil
		}
		return &Violation{
			Field: "status.conditions[Ready]", Was: quote(l.was.Status), Is: none,
			Problem: "is gone",
			Remedy:  "leave the entry in place; record a failure with a strategic merge patch of the Ready entry alone",
		}
	},
}
