package contract

var transitionTimeUnchanged = promise{
	name:      TransitionTimeUnchanged,
	byDefault: Deny,
	about:     theStamp,
	compares:  true,
	refuses:   "the status changed and lastTransitionTime did not",
	broken: func(l look) *Violation {
		if !l.changedStatus() || l.is.Transition.IsZero() || !l.is.Transition.Equal(l.was.Transition) {
			return nil
		}
		return l.stampViolation("did not move with the status")
	},
}
