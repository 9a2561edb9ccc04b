package contract

import "slices"

// Rule names one promise. The value is public: it labels metrics and audit
// annotations, is the type of a status cause, stands in the bracket of every
// refusal, heads a section of docs/contract.md and names the conformance case.
type Rule string

// The rules, in the order in which every enforcer reports them.
const (
	ReadyMissing              Rule = "ReadyMissing"
	ReadyDuplicated           Rule = "ReadyDuplicated"
	ConditionDropped          Rule = "ConditionDropped"
	OtherConditionChanged     Rule = "OtherConditionChanged"
	LabelsChanged             Rule = "LabelsChanged"
	StatusNotUnknown          Rule = "StatusNotUnknown"
	ReservedReason            Rule = "ReservedReason"
	ReasonMissing             Rule = "ReasonMissing"
	ReasonInherited           Rule = "ReasonInherited"
	ReasonUnclear             Rule = "ReasonUnclear"
	HeartbeatModified         Rule = "HeartbeatModified"
	TransitionTimeMissing     Rule = "TransitionTimeMissing"
	TransitionTimeImplausible Rule = "TransitionTimeImplausible"
	TransitionTimeUnchanged   Rule = "TransitionTimeUnchanged"
	NewerReady                Rule = "NewerReady"
	RecoveryHold              Rule = "RecoveryHold"
	SignalTooYoung            Rule = "SignalTooYoung"
	TransitionTimeMoved       Rule = "TransitionTimeMoved"
	ClockSkew                 Rule = "ClockSkew"
	UnauthorizedDetector      Rule = "UnauthorizedDetector"
)

// rules holds every rule in the order of docs/contract.md.
var rules = []promise{
	readyMissing,
	readyDuplicated,
	conditionDropped,
	otherConditionChanged,
	labelsChanged,
	statusNotUnknown,
	reservedReason,
	reasonMissing,
	reasonInherited,
	reasonUnclear,
	heartbeatModified,
	transitionTimeMissing,
	transitionTimeImplausible,
	transitionTimeUnchanged,
	newerReady,
	recoveryHold,
	signalTooYoung,
	transitionTimeMoved,
	clockSkew,
	unauthorizedDetector,
}

// promise is a rule with everything known about it.
type promise struct {
	name      Rule
	byDefault Action
	// refuses completes the sentence "refused when ...".
	refuses string
	// about says which part of a write the rule looks at, and with that, which
	// writes it has a say in.
	about subject
	// compares marks a rule on what became of something: a creation cannot break it.
	compares bool
	// broken returns what is wrong, or nil.
	broken func(look) *Violation
}

// subject is the part of a write that a rule looks at.
type subject int

const (
	// theObject rules look beside the Ready entry: they also judge a repair.
	theObject subject = iota
	// theEntry rules look at the new Ready entry.
	theEntry
	// theStamp rules look at the new lastTransitionTime. They exclude each
	// other: only the first broken one is reported.
	theStamp
)

// Rules returns every rule in table order.
func Rules() []Rule {
	names := make([]Rule, len(rules))
	for i, r := range rules {
		names[i] = r.name
	}
	return names
}

// Known says whether r is a rule of the contract.
func (r Rule) Known() bool { return r.promise() != nil }

// Default is what the enforce profile does about a broken r.
func (r Rule) Default() Action {
	if p := r.promise(); p != nil {
		return p.byDefault
	}
	return Off
}

// Refuses completes the sentence "A write is refused when ...".
func (r Rule) Refuses() string {
	if p := r.promise(); p != nil {
		return p.refuses
	}
	return ""
}

// JudgesTransitionTime says whether r is one of the rules on a new
// lastTransitionTime, of which only the first broken one is reported.
func (r Rule) JudgesTransitionTime() bool {
	p := r.promise()
	return p != nil && p.about == theStamp
}

// JudgesCreation says whether the creation of a Node can break r. It cannot
// break the rules that compare with what was there before.
func (r Rule) JudgesCreation() bool {
	p := r.promise()
	return p != nil && !p.compares
}

func (r Rule) promise() *promise {
	i := slices.IndexFunc(rules, func(p promise) bool { return p.name == r })
	if i < 0 {
		return nil
	}
	return &rules[i]
}
