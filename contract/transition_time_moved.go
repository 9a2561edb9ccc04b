package contract

var transitionTimeMoved = promise{
	name:      TransitionTimeMoved,
	byDefault: Deny,
	about:     theEntry,
	compares:  true,
	refuses:   "the status stayed Unknown and lastTransitionTime moved",
	broken: func(l look) *Violation {
		stayed := l.was.Status == statusUnknown && l.is.Status == statusUnknown
		if !stayed || !plausible(l.was.Transition) || l.is.Transition.IsZero() || l.is.Transition.Equal(l.was.Transition) {
			return nil
		}
		return &Violation{
			Field: readyPath("lastTransitionTime"), Was: stamp(l.was.Transition), Is: stamp(l.is.Transition),
			Problem: "moved without a transition",
			Remedy:  "leave it at " + stamp(l.was.Transition) + ": a timer that is re-stamped never expires, and a node that is already Unknown need not be written",
		}
	},
}
