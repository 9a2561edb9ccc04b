package contract

import (
	"math"
	"time"
)

var recoveryHold = promise{
	name:      RecoveryHold,
	byDefault: Deny,
	about:     theStamp,
	compares:  true,
	refuses:   "the stored status is True, the new one is not, and the recovery is younger than recoveryHold",
	broken: func(l look) *Violation {
		if !l.takesBack() || !plausible(l.is.Transition) {
			return nil
		}
		age, ok := l.recoveryAge()
		if !ok || l.hold == 0 || age >= l.hold {
			return nil
		}
		v := l.stampViolation("takes back a recovery that is " + seconds(age) + " old")
		if _, measured := l.silence(); measured {
			v.NotBefore = time.Time{}
			v.Remedy = "leave the recovery alone for " + seconds(l.hold) + ", then look again; " + seconds(l.hold-age) + " remain"
		}
		return v
	},
}

// takesBack reads: this write ends a recovery.
func (l look) takesBack() bool { return l.was.Status == statusTrue && l.is.Status != statusTrue }

// recoveryAge sums intervals that were each measured on one clock: how long
// the kubelet has been reporting True by its own, and how long ago it spoke by
// the API server's. Where managedFields do not tell, the stamps must do.
func (l look) recoveryAge() (time.Duration, bool) {
	if silent, ok := l.silence(); ok {
		return sum(max(0, between(l.was.Transition, l.was.Heartbeat)), silent), true
	}
	if !plausible(l.was.Transition) {
		return 0, false
	}
	return between(l.was.Transition, l.is.Transition), true
}

// sum is a + b, or the longest Duration: two intervals of up to two hundred
// years each can be more than it holds. a is not negative.
func sum(a, b time.Duration) time.Duration {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
