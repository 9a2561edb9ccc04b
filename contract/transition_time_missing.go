package contract

var transitionTimeMissing = promise{
	name:      TransitionTimeMissing,
	byDefault: Deny,
	about:     theStamp,
	refuses:   "the new lastTransitionTime is absent or zero",
	broken: func(l look) *Violation {
		if !l.is.Transition.IsZero() {
			return nil
		}
		return l.stampViolation("is missing")
	},
}

// stampViolation is what a rule says that a better lastTransitionTime satisfies.
func (l look) stampViolation(problem string) *Violation {
	v := &Violation{
		Field: readyPath("lastTransitionTime"), Was: stamp(l.was.Transition), Is: stamp(l.is.Transition),
		Problem: problem, NotBefore: l.earliest(),
	}
	switch v.Remedy = "look again, then send the time of the transition"; {
	case !l.changedStatus() && plausible(l.was.Transition):
		v.Remedy = "the status did not change: keep " + stamp(v.NotBefore)
	case v.NotBefore.After(theBeginning):
		v.Remedy += ", " + stamp(v.NotBefore) + " or later"
	}
	return v
}
