package contract

var transitionTimeImplausible = promise{
	name:      TransitionTimeImplausible,
	byDefault: Deny,
	about:     theStamp,
	refuses:   "the new lastTransitionTime is before 2000 or after 2200",
	broken: func(l look) *Violation {
		if l.is.Transition.IsZero() || plausible(l.is.Transition) {
			return nil
		}
		return l.stampViolation("is not between the years 2000 and 2200")
	},
}
