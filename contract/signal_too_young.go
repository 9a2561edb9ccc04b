package contract

import "time"

var signalTooYoung = promise{
	name:      SignalTooYoung,
	byDefault: Off,
	about:     theStamp,
	compares:  true,
	refuses:   "the status became Unknown and the kubelet has been silent for less than signalPersistence",
	broken: func(l look) *Violation {
		if !l.becameUnknown() || !plausible(l.is.Transition) {
			return nil
		}
		silent, measured := l.silence()
		if !measured {
			if !plausible(l.was.Heartbeat) {
				return nil
			}
			silent = between(l.was.Heartbeat, l.is.Transition)
		}
		if l.persistence == 0 || silent >= l.persistence {
			return nil
		}
		v := l.stampViolation("follows a silence of only " + seconds(silent))
		if measured {
			v.NotBefore = time.Time{}
			v.Remedy = "wait until the failure has lasted " + seconds(l.persistence) + ", then look again; " + seconds(l.persistence-silent) + " remain"
		}
		return v
	},
}
