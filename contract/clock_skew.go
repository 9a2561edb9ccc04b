package contract

var clockSkew = promise{
	name:      ClockSkew,
	byDefault: Warn,
	about:     theEntry,
	refuses:   "a new lastTransitionTime is further than maxClockSkew from the API server's clock",
	broken: func(l look) *Violation {
		// A stamp that this write did not set says nothing about its author's clock.
		if l.is.Transition.Equal(l.was.Transition) || !plausible(l.is.Transition) || !plausible(l.w.Now) {
			return nil
		}
		skew := l.is.Transition.Sub(l.w.Now)
		if skew.Abs() <= l.p.MaxClockSkew {
			return nil
		}
		return &Violation{
			Field: readyPath("lastTransitionTime"), Was: stamp(l.was.Transition), Is: stamp(l.is.Transition),
			Problem: "is " + seconds(skew) + " from the API server's clock, " + stamp(l.w.Now),
			Remedy:  "set the detector's clock",
		}
	},
}
