package contract

import "time"

// look is what one rule sees of a write.
type look struct {
	w *Write
	p *Policy
	// was and is are the Ready entries before and after; zero where there is none.
	was, is Condition
	had     bool
	// hold and persistence are the policy's, zero where their rules are off.
	hold, persistence time.Duration
}

// Check returns every rule of p that w breaks, in table order, except those
// that p turns off. It returns nothing for a write out of scope, and nothing
// for a writer that is never judged.
//
// The rules on a new lastTransitionTime exclude each other: of those that p
// does not turn off, only the first broken one is returned.
func Check(w Write, p Policy) []Violation {
	if p.Class(w.User, w.Node) != External {
		return nil
	}
	l := look{w: &w, p: &p, hold: p.effective(RecoveryHold, p.RecoveryHold), persistence: p.effective(SignalTooYoung, p.SignalPersistence)}
	l.was, l.had = ready(w.Before)
	var has bool
	l.is, has = ready(w.After)

	if !w.changesReady() {
		if !p.guardsLabels(w) {
			return nil
		}
		return l.judge(func(r *promise) bool { return r.name == UnauthorizedDetector })
	}
	repair := l.repairs()
	return l.judge(func(r *promise) bool {
		return r.about == theObject && (!repair || r.name != UnauthorizedDetector || w.Touched.Labels) ||
			r.about != theObject && has && !repair && !w.crowded()
	})
}

// judge runs the rules that have a say.
func (l look) judge(hasSay func(*promise) bool) []Violation {
	var broken []Violation
	stamped := false
	for i := range rules {
		r := &rules[i]
		action := l.p.action(r)
		if action == Off || !hasSay(r) || r.about == theStamp && stamped {
			continue
		}
		v := r.broken(l)
		if v == nil {
			continue
		}
		stamped = stamped || r.about == theStamp
		v.Rule, v.Action = r.name, l.mostly(action)
		broken = append(broken, *v)
	}
	return broken
}

// mostly caps an action at a warning where a Node is created: that records no
// failure, and restores, GitOps and simulators do it with a status.
func (l look) mostly(a Action) Action {
	if l.w.Verb == Create && a == Deny {
		return Warn
	}
	return a
}

// repairs says whether the write does nothing but reduce several Ready entries
// to the first one.
func (l look) repairs() bool {
	return count(l.w.Before, typeReady) > 1 && count(l.w.After, typeReady) == 1 && l.is.same(l.was)
}

// becameUnknown reads: this write records a failure.
func (l look) becameUnknown() bool {
	return l.is.Status == statusUnknown && l.was.Status != statusUnknown
}

// changedStatus reads: this write is a transition.
func (l look) changedStatus() bool { return l.is.Status != l.was.Status }

// plausible says whether t can be reckoned with. Outside these years an
// instant is taken for absent, so that every enforcer's arithmetic is total.
func plausible(t time.Time) bool {
	return !t.IsZero() && t.UTC().Year() >= 2000 && t.UTC().Year() <= 2200
}

// silence is how long the kubelet has been silent, both ends by the API
// server's clock; not ok where managedFields do not tell.
func (l look) silence() (d time.Duration, ok bool) {
	if !plausible(l.w.Spoke) || !plausible(l.w.Now) {
		return 0, false
	}
	return l.w.Now.Sub(l.w.Spoke), true
}

// between is the time from one instant to another, or 0 where either cannot be
// reckoned with.
func between(from, to time.Time) time.Duration {
	if !plausible(from) || !plausible(to) {
		return 0
	}
	return to.Sub(from)
}

// theBeginning is the first instant that can be reckoned with.
var theBeginning = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// earliest is the first lastTransitionTime that all rules would accept for
// this write as it otherwise stands, and for the same one with status Unknown.
func (l look) earliest() time.Time {
	if !l.changedStatus() && plausible(l.was.Transition) {
		return l.was.Transition // TransitionTimeMoved accepts no other
	}
	at := theBeginning
	later := func(t time.Time, by time.Duration) {
		if t = t.Add(by); plausible(t) && t.After(at) {
			at = t
		}
	}
	for _, t := range l.lastWords() {
		later(t, time.Second)
	}
	if _, ok := l.silence(); !ok {
		if l.takesBack() && l.hold > 0 {
			later(l.was.Transition, l.hold)
		}
		if l.becameUnknown() && l.persistence > 0 {
			later(l.was.Heartbeat, l.persistence)
		}
	}
	if at.Equal(l.was.Transition) {
		at = at.Add(time.Second)
	}
	return at
}
