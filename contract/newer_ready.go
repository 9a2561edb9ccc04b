package contract

import "time"

var newerReady = promise{
	name:      NewerReady,
	byDefault: Deny,
	about:     theStamp,
	compares:  true,
	refuses:   "the status became Unknown and the new lastTransitionTime is not later than the kubelet's last word",
	broken: func(l look) *Violation {
		if !l.becameUnknown() || !plausible(l.is.Transition) {
			return nil
		}
		for _, t := range l.lastWords() {
			if plausible(t) && !l.is.Transition.After(t) {
				return l.stampViolation("is not later than the kubelet's last word at " + stamp(t))
			}
		}
		return nil
	},
}

// lastWords are the instants that a decision must be younger than: the API
// server's time of the kubelet's last word, whatever the kubelet's clock says;
// where managedFields do not tell, both stamps of the stored entry.
func (l look) lastWords() []time.Time {
	if plausible(l.w.Spoke) {
		return []time.Time{l.w.Spoke}
	}
	return []time.Time{l.was.Transition, l.was.Heartbeat}
}
