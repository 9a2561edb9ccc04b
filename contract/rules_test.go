package contract

import (
	"slices"
	"strings"
	"testing"
	"time"
)

type ruleCase struct {
	again  bool
	write  func(*Write)
	policy func() Policy
	broken []Rule
}

// play returns the write of the case and the policy it is judged by.
func (c ruleCase) play() (Write, Policy) {
	w, p := failure(), strict()
	if c.again {
		w = again()
	}
	if c.policy != nil {
		p = c.policy()
	}
	c.write(&w)
	return w, p
}

// crowd fills a list up to n Ready entries.
func crowd(conditions []Condition, n int) []Condition {
	for count(conditions, typeReady) < n {
		conditions = append(conditions, Condition{Type: "Ready", Status: "True"})
	}
	return conditions
}

// Every case starts from a correct first report (or, where it says again, from
// a rewrite of a recorded node) and changes what its name says. broken is the
// whole set of rules expected.
var cases = map[Rule]map[string]ruleCase{
	ReadyMissing: {
		"an entry that is taken away is missed": {
			write: func(w *Write) { w.After = w.After[:3] }, broken: []Rule{ReadyMissing}},
		"an entry that changes is still there": {
			write: func(*Write) {}},
		"a node that never had one may stay without": {
			write: func(w *Write) { w.Before, w.After = w.Before[:3], w.After[:3] }},
		"a whole list wiped is both": {
			write: func(w *Write) { w.After = nil }, broken: []Rule{ReadyMissing, ConditionDropped}},
	},
	ReadyDuplicated: {
		"a second entry appended by JSON patch is refused": {
			write: func(w *Write) { w.After = append(w.After, *w.is()) }, broken: []Rule{ReadyDuplicated}},
		"a second entry beside an untouched first is refused, and the first is still judged": {
			write: func(w *Write) {
				*w.is() = *w.was()
				w.After = append(w.After, Condition{Type: "Ready", Status: "Unknown"})
			},
			broken: []Rule{ReadyDuplicated, StatusNotUnknown, ReasonInherited}},
		"of very many entries, even untouched, nothing but the number is looked at": {
			write: func(w *Write) { w.Before = crowd(w.Before, MaxReady+1); w.After = slices.Clone(w.Before) }, broken: []Rule{ReadyDuplicated}},
		"many entries that nobody touches are nobody's business": {
			write: func(w *Write) { w.Before = crowd(w.Before, MaxReady); w.After = slices.Clone(w.Before) }},
		"very many entries may be reduced to any one": {
			write: func(w *Write) { w.Before = crowd(w.Before, MaxReady+1); w.is().Status = "False" }},
		"reducing two entries to the first one is a repair": {
			write: func(w *Write) {
				w.Before = append(w.Before, Condition{Type: "Ready", Status: "Unknown"})
				*w.is() = *w.was()
			}},
		"reducing two entries to the second one is a write like any other": {
			write: func(w *Write) {
				w.Before = append(w.Before, Condition{Type: "Ready", Status: "False"})
				w.is().Status = "False"
			},
			broken: []Rule{StatusNotUnknown}},
		"a repair must not drop another condition": {
			write: func(w *Write) {
				w.Before = append(w.Before, Condition{Type: "Ready", Status: "Unknown"})
				*w.is() = *w.was()
				w.After = w.After[1:]
			}, broken: []Rule{ConditionDropped}},
	},
	ConditionDropped: {
		"a merge patch that wipes the list is refused": {
			write: func(w *Write) { w.After = w.After[3:] }, broken: []Rule{ConditionDropped}},
		"a condition of somebody else's counts as well": {
			write: func(w *Write) { w.Before = append(w.Before, Condition{Type: "KernelDeadlock"}) }, broken: []Rule{ConditionDropped}},
		"a condition that is added is no loss": {
			write: func(w *Write) { w.After = append(w.After, Condition{Type: "KernelDeadlock"}) }},
		"another order is no loss": {
			write: func(w *Write) { w.After[0], w.After[2] = w.After[2], w.After[0] }},
		"a twin that is removed is no loss": {
			write: func(w *Write) { w.Before = append(w.Before, w.Before[0]) }, broken: []Rule{OtherConditionChanged}},
	},
	OtherConditionChanged: {
		"a pressure condition that goes Unknown too is warned of": {
			write: func(w *Write) { w.After[0].Status = "Unknown" }, broken: []Rule{OtherConditionChanged}},
		"a heartbeat of a pressure condition counts": {
			write: func(w *Write) { w.After[2].Heartbeat = at(1) }, broken: []Rule{OtherConditionChanged}},
		"a pressure condition that appears counts": {
			write: func(w *Write) { w.Before = w.Before[1:] }, broken: []Rule{OtherConditionChanged}},
		"a condition of somebody else's is not the kubelet's": {
			write: func(w *Write) { w.After = append(w.After, Condition{Type: "KernelDeadlock", Status: "True"}) }},
	},
	LabelsChanged: {
		"labels": {
			write: func(w *Write) { w.Touched.Labels = true }, broken: []Rule{LabelsChanged}},
		"annotations": {
			write: func(w *Write) { w.Touched.Annotations = true }, broken: []Rule{LabelsChanged}},
		"owners and finalizers": {
			write: func(w *Write) { w.Touched.OwnerReferences, w.Touched.Finalizers = true, true }, broken: []Rule{LabelsChanged}},
		"nothing": {write: func(*Write) {}},
	},
	StatusNotUnknown: {
		"True belongs to the kubelet": {
			write: func(w *Write) { w.was().Status = "False"; w.is().Status = "True" }, broken: []Rule{StatusNotUnknown}},
		"False belongs to the kubelet": {
			write: func(w *Write) { w.is().Status = "False" }, broken: []Rule{StatusNotUnknown}},
		"a status that is none of the three": {
			write: func(w *Write) { w.is().Status = "unknown" }, broken: []Rule{StatusNotUnknown}},
		"a new reason on a True that stays True": {
			write: func(w *Write) { *w.is() = *w.was(); w.is().Reason = "Fine" }, broken: []Rule{StatusNotUnknown}},
		"no status at all": {
			write: func(w *Write) { w.is().Status = "" }, broken: []Rule{StatusNotUnknown}},
		"False to Unknown is a failure like any other": {
			write: func(w *Write) { w.was().Status = "False"; w.was().Reason = "KubeletNotReady" }},
	},
	ReservedReason: {
		"the controller's reason is its own": {
			write: func(w *Write) { w.is().Reason = "NodeStatusUnknown" }, broken: []Rule{ReservedReason}},
		"also when a recorded node is reworded": {
			again: true, write: func(w *Write) { w.is().Reason = "NodeStatusUnknown" }, broken: []Rule{ReservedReason}},
		"another case is another word": {
			write: func(w *Write) { w.is().Reason = "NodestatusUnknown" }},
	},
	ReasonMissing: {
		"a reason left empty": {
			write: func(w *Write) { w.is().Reason = "" }, broken: []Rule{ReasonMissing}},
		"a reason of one letter is one": {
			write: func(w *Write) { w.is().Reason = "X" }},
	},
	ReasonInherited: {
		"a patch without reason keeps the kubelet's": {
			write: func(w *Write) { w.is().Reason = "KubeletReady" }, broken: []Rule{ReasonInherited}},
		"KubeletNotReady is the kubelet's as well": {
			write: func(w *Write) { w.is().Reason = "KubeletNotReady" }, broken: []Rule{ReasonInherited}},
		"neither reason nor message is the detector's": {
			write: func(w *Write) {
				w.was().Reason, w.was().Message = "Odd", "same"
				w.is().Reason, w.is().Message = "Odd", "same"
			},
			broken: []Rule{ReasonInherited}},
		"the old reason with a new message is the detector's": {
			write: func(w *Write) { w.was().Reason = "OutOfBandProbeFailed" }},
		"a rewrite of a recorded node may keep both": {
			again: true, write: func(w *Write) { w.was().Transition = time.Time{} }},
		"a rewrite may not hand the reason back to the kubelet": {
			again: true, write: func(w *Write) { w.is().Reason = "KubeletReady" }, broken: []Rule{ReasonInherited}},
	},
	ReasonUnclear: {
		"the controller's other reason": {
			write: func(w *Write) { w.is().Reason = "NodeStatusNeverUpdated" }, broken: []Rule{ReasonUnclear}},
		"words with spaces": {
			write: func(w *Write) { w.is().Reason = "has space" }, broken: []Rule{ReasonUnclear}},
		"a lower-case word": {
			write: func(w *Write) { w.is().Reason = "probeFailed" }, broken: []Rule{ReasonUnclear}},
		"a newline hidden at the end": {
			write: func(w *Write) { w.is().Reason = "Probe\n" }, broken: []Rule{ReasonUnclear}},
		"digits are fine": {
			write: func(w *Write) { w.is().Reason = "Probe3Of3Failed" }},
	},
	HeartbeatModified: {
		"moved to now": {
			write: func(w *Write) { w.is().Heartbeat = at(40) }, broken: []Rule{HeartbeatModified}},
		"nulled": {
			write: func(w *Write) { w.is().Heartbeat = time.Time{} }, broken: []Rule{HeartbeatModified}},
		"set where the kubelet never set one": {
			write: func(w *Write) { w.was().Heartbeat = time.Time{} }, broken: []Rule{HeartbeatModified}},
		"set on an entry that was not there": {
			write: func(w *Write) { w.Before = w.Before[:3]; w.Spoke = time.Time{} }, broken: []Rule{HeartbeatModified}},
		"the same instant in another zone is the same": {
			write: func(w *Write) { w.is().Heartbeat = w.is().Heartbeat.In(time.FixedZone("", 7200)) }},
		"Ready on a node that never had one": {
			write: func(w *Write) { w.Before = w.Before[:3]; w.Spoke = time.Time{}; w.is().Heartbeat = time.Time{} }},
	},
	TransitionTimeMissing: {
		"left out": {
			write: func(w *Write) { w.is().Transition = time.Time{} }, broken: []Rule{TransitionTimeMissing}},
		"taken away from a recorded node": {
			again: true, write: func(w *Write) { w.is().Transition = time.Time{} }, broken: []Rule{TransitionTimeMissing}},
		"supplied where it was missing": {
			again: true, write: func(w *Write) { w.was().Transition = time.Time{} }},
	},
	TransitionTimeImplausible: {
		"the year 1999": {
			write: func(w *Write) { w.is().Transition = time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC) }, broken: []Rule{TransitionTimeImplausible}},
		"the year 2201": {
			write: func(w *Write) { w.is().Transition = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC) }, broken: []Rule{TransitionTimeImplausible}},
		"the year 10000": {
			write: func(w *Write) { w.is().Transition = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, broken: []Rule{TransitionTimeImplausible}},
		"the last second of 2200 is far off and no more than that": {
			write: func(w *Write) { w.is().Transition = time.Date(2200, 12, 31, 23, 59, 59, 0, time.UTC) }, broken: []Rule{ClockSkew}},
	},
	TransitionTimeUnchanged: {
		"the status moved and the stamp did not": {
			write: func(w *Write) { w.is().Transition = w.was().Transition }, broken: []Rule{TransitionTimeUnchanged}},
		"a recorded node that is reworded keeps its stamp": {
			again: true, write: func(w *Write) { w.is().Message = "still no answer" }},
	},
	NewerReady: {
		"a decision from before the kubelet's last word": {
			write: func(w *Write) { w.is().Transition = at(-1) }, broken: []Rule{NewerReady}},
		"a decision from the second of the kubelet's last word": {
			write: func(w *Write) { w.is().Transition = at(0) }, broken: []Rule{NewerReady}},
		"one second later is later": {
			write: func(w *Write) { w.is().Transition = at(1) }},
		"the kubelet's own clock does not matter": {
			write: func(w *Write) { w.was().Heartbeat, w.is().Heartbeat = at(120), at(120); w.was().Transition = at(100) }},
		"without managedFields, not later than the heartbeat": {
			write: func(w *Write) { w.unmanaged(); w.is().Transition = at(0) }, broken: []Rule{NewerReady}},
		"without managedFields, not later than the transition": {
			write: func(w *Write) { w.unmanaged(); w.was().Transition = at(50); w.is().Transition = at(49) }, broken: []Rule{NewerReady}},
		"without managedFields, later than both": {
			write: func(w *Write) { w.unmanaged(); w.is().Transition = at(1) }},
		"a heartbeat from the year 1 counts as absent": {
			write: func(w *Write) {
				w.unmanaged()
				y := time.Date(1, 6, 1, 0, 0, 0, 0, time.UTC)
				w.was().Heartbeat, w.is().Heartbeat, w.was().Transition = y, y, y
			}},
		"a heartbeat from the year 9999 counts as absent": {
			write: func(w *Write) {
				w.unmanaged()
				y := time.Date(9999, 6, 1, 0, 0, 0, 0, time.UTC)
				w.was().Heartbeat, w.is().Heartbeat = y, y
			}},
	},
	RecoveryHold: {
		"a recovery of nine seconds is left alone": {
			write: func(w *Write) { w.was().Transition = noon; w.Now = at(9); w.is().Transition = at(9) }, broken: []Rule{RecoveryHold}},
		"after ten it may be taken back": {
			write: func(w *Write) { w.was().Transition = noon; w.Now = at(10); w.is().Transition = at(10) }},
		"the kubelet's own time as Ready counts": {
			write: func(w *Write) { w.was().Transition = at(-4); w.Now = at(6); w.is().Transition = at(6) }},
		"a kubelet that steps its clock back has not been Ready for less than nothing": {
			write: func(w *Write) { w.was().Transition = at(500); w.Now = at(10); w.is().Transition = at(10) }},
		"two ages that are longer together than a Duration can say are no young recovery": {
			write: func(w *Write) {
				end := time.Date(2200, 12, 31, 23, 59, 59, 0, time.UTC)
				w.was().Transition = noon
				w.was().Heartbeat, w.is().Heartbeat = end, end
				w.Now, w.is().Transition = end, end
			}},
		"taking it back to False as well": {
			write: func(w *Write) {
				w.was().Transition = noon
				w.Now = at(9)
				w.is().Transition = at(9)
				w.is().Status = "False"
			},
			broken: []Rule{StatusNotUnknown, RecoveryHold}},
		"without managedFields the stamps must do": {
			write: func(w *Write) { w.unmanaged(); w.was().Transition = noon; w.is().Transition = at(9) }, broken: []Rule{RecoveryHold}},
		"without managedFields, ten seconds by the stamps": {
			write: func(w *Write) { w.unmanaged(); w.was().Transition = noon; w.is().Transition = at(10) }},
		"a False that goes Unknown is no recovery": {
			write: func(w *Write) {
				w.was().Status = "False"
				w.was().Transition = noon
				w.Now = at(2)
				w.is().Transition = at(2)
			}},
		"a stale intent is told as such, not as a hold": {
			write: func(w *Write) { w.was().Transition = noon; w.Now = at(3); w.is().Transition = at(-10) }, broken: []Rule{NewerReady}},
	},
	SignalTooYoung: {
		"29 seconds of silence are too few": {policy: patient,
			write: func(w *Write) { w.Now = at(29); w.is().Transition = at(29) }, broken: []Rule{SignalTooYoung}},
		"30 are enough": {policy: patient,
			write: func(w *Write) { w.Now = at(30); w.is().Transition = at(30) }},
		"without managedFields the heartbeat must do": {policy: patient,
			write: func(w *Write) { w.unmanaged(); w.is().Transition = at(29) }, broken: []Rule{SignalTooYoung}},
		"without managedFields, 30 by the stamps": {policy: patient,
			write: func(w *Write) { w.unmanaged(); w.is().Transition = at(30) }},
		"is off unless asked for": {
			write: func(w *Write) { w.Now = at(2); w.is().Transition = at(2) }},
	},
	TransitionTimeMoved: {
		"a timer that is re-stamped never expires": {
			again: true, write: func(w *Write) { w.is().Transition = at(70) }, broken: []Rule{TransitionTimeMoved}},
		"backwards as well": {
			again: true, write: func(w *Write) { w.is().Transition = at(20) }, broken: []Rule{TransitionTimeMoved}},
		"an identical rewrite is no write": {again: true, write: func(*Write) {}},
		"a stored stamp of the year 341 counts as missing": {
			again: true, write: func(w *Write) { w.was().Transition = time.Date(341, 6, 1, 0, 0, 0, 0, time.UTC) }},
	},
	ClockSkew: {
		"a detector 61 seconds ahead": {
			write: func(w *Write) { w.is().Transition = at(101) }, broken: []Rule{ClockSkew}},
		"60 are tolerated": {
			write: func(w *Write) { w.is().Transition = at(100) }},
		"a detector 61 seconds behind that stamps past the last word": {
			write: func(w *Write) { w.Now = at(62); w.is().Transition = at(1) }, broken: []Rule{ClockSkew}},
		"says nothing without the API server's clock": {
			write: func(w *Write) { w.unmanaged(); w.is().Transition = at(4000) }},
		"says nothing about a stamp that this write did not set": {
			again: true, write: func(w *Write) { w.Now = at(4000); w.is().Message = "still no answer" }},
	},
	UnauthorizedDetector: {
		"a writer that is not listed": {policy: listing,
			write: func(w *Write) {
				w.User = User{Name: "admin", Groups: []string{"system:masters"}}
				w.Labels = map[string]string{"pool": "a"}
			}, broken: []Rule{UnauthorizedDetector}},
		"a listed one on another pool's node": {policy: listing,
			write: func(w *Write) { w.Labels = map[string]string{"pool": "b"} }, broken: []Rule{UnauthorizedDetector}},
		"a listed one on its own pool's node": {policy: listing,
			write: func(w *Write) { w.Labels = map[string]string{"pool": "a"} }},
		"the name without the group is somebody else": {policy: listing,
			write: func(w *Write) { w.User.Groups = nil; w.Labels = map[string]string{"pool": "a"} }, broken: []Rule{UnauthorizedDetector}},
		"labels that decide it may not move with the status": {policy: listing,
			write: func(w *Write) { w.Labels = map[string]string{"pool": "a"}; w.Touched.Labels = true }, broken: []Rule{LabelsChanged, UnauthorizedDetector}},
		"nor on their own": {policy: listing,
			write: func(w *Write) { w.After = w.Before; w.Touched.Labels = true }, broken: []Rule{UnauthorizedDetector}},
		"a repair needs no listing": {policy: listing,
			write: func(w *Write) { w.Before = append(w.Before, Condition{Type: "Ready"}); *w.is() = *w.was() }},
		"without a list everybody may": {
			write: func(w *Write) { w.User = User{Name: "admin"} }},
		"without a list labels on their own are nobody's business": {
			write: func(w *Write) { w.After = w.Before; w.Touched.Labels = true }},
	},
}

func TestRule(t *testing.T) {
	for _, rule := range Rules() {
		t.Run(string(rule), func(t *testing.T) {
			if len(cases[rule]) < 2 {
				t.Fatal("has no cases")
			}
			for name, c := range cases[rule] {
				t.Run(name, func(t *testing.T) {
					w, p := c.play()
					check(t, w, p, c.broken...)
				})
			}
		})
	}
}

// Without its code, or always broken, a rule must fail cases of its own name.
func TestEveryRuleIsProvenByItsOwnCases(t *testing.T) {
	for i := range rules {
		rule, real := rules[i].name, rules[i].broken
		for name, mutant := range map[string]func(look) *Violation{
			"never broken":  func(look) *Violation { return nil },
			"always broken": func(look) *Violation { return &Violation{} },
		} {
			rules[i].broken = mutant
			caught := false
			for _, c := range cases[rule] {
				w, p := c.play()
				caught = caught || !slices.Equal(names(Check(w, p)), c.broken)
			}
			rules[i].broken = real
			if !caught {
				t.Errorf("%s %s goes unnoticed", rule, name)
			}
		}
	}
}

func TestEveryBrokenRuleIsReportedAtOnceInTableOrder(t *testing.T) {
	w := failure()
	w.After = []Condition{{Type: "Ready", Status: "False", Reason: "NodeStatusUnknown"}}
	w.Touched.Labels = true
	check(t, w, strict(), ConditionDropped, LabelsChanged, StatusNotUnknown, ReservedReason, HeartbeatModified, TransitionTimeMissing)
}

func TestARuleThatIsOffNeitherSpeaksNorHidesTheNext(t *testing.T) {
	w := failure()
	w.was().Transition, w.Now, w.is().Transition = noon, at(3), noon
	p := strict()
	for _, step := range []struct{ off, next Rule }{
		{"", TransitionTimeUnchanged}, {TransitionTimeUnchanged, NewerReady}, {NewerReady, RecoveryHold},
	} {
		if step.off != "" {
			if p.Rules == nil {
				p.Rules = map[Rule]Action{}
			}
			p.Rules[step.off] = Off
		}
		check(t, w, p, step.next)
	}
}

func TestRefusalsNameFieldValuesAndRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*Write)
		want  string
	}{
		"a reserved reason": {func(w *Write) { w.is().Reason = "NodeStatusUnknown" },
			`[ReservedReason] status.conditions[Ready].reason is reserved for the node lifecycle controller (was "KubeletReady", is "NodeStatusUnknown"): send a reason of your own, such as OutOfBandProbeFailed`},
		"a heartbeat": {func(w *Write) { w.is().Heartbeat = at(40) },
			`[HeartbeatModified] status.conditions[Ready].lastHeartbeatTime is the kubelet's and must stay as it is (was 2026-11-29T12:00:00Z, is 2026-11-29T12:00:40Z): leave lastHeartbeatTime out of a strategic merge patch, which keeps it; in any other request send 2026-11-29T12:00:00Z`},
		"a stale intent": {func(w *Write) { w.is().Transition = at(-10) },
			`[NewerReady] status.conditions[Ready].lastTransitionTime is not later than the kubelet's last word at 2026-11-29T12:00:00Z (was 2026-11-29T11:00:00Z, is 2026-11-29T11:59:50Z): look again, then send the time of the transition, 2026-11-29T12:00:01Z or later`},
		"a hold": {func(w *Write) { w.was().Transition = noon; w.Now, w.is().Transition = at(3), at(3) },
			`[RecoveryHold] status.conditions[Ready].lastTransitionTime takes back a recovery that is 3s old (was 2026-11-29T12:00:00Z, is 2026-11-29T12:00:03Z): leave the recovery alone for 10s, then look again; 7s remain`},
		"a status that is no detector's": {func(w *Write) { w.is().Status, w.is().Transition = "False", at(-3600) },
			`[StatusNotUnknown,TransitionTimeUnchanged] status.conditions[Ready].status may only become Unknown (was "True", is "False"): send Unknown, or nothing: True, False and the recovery belong to the kubelet; whoever writes for kubelets is listed under standIns in the policy file; status.conditions[Ready].lastTransitionTime did not move with the status (was 2026-11-29T11:00:00Z, is 2026-11-29T11:00:00Z): look again, then send the time of the transition, 2026-11-29T12:00:01Z or later`},
		"an unknown node without a stamp, and none sent": {func(w *Write) {
			w.was().Status, w.was().Transition, w.is().Transition = "Unknown", time.Time{}, time.Time{}
		},
			`[TransitionTimeMissing] status.conditions[Ready].lastTransitionTime is missing (was none, is none): look again, then send the time of the transition, 2026-11-29T12:00:01Z or later`},
		"a node of which nothing is known": {func(w *Write) {
			w.Before, w.Spoke = w.Before[:3], time.Time{}
			w.is().Heartbeat, w.is().Transition = time.Time{}, time.Time{}
		},
			`[TransitionTimeMissing] status.conditions[Ready].lastTransitionTime is missing (was none, is none): look again, then send the time of the transition`},
		"a clock that is hours behind": {func(w *Write) { w.Spoke, w.Now = time.Time{}, at(7200); w.is().Transition = at(1) },
			`[ClockSkew] status.conditions[Ready].lastTransitionTime is -7199s from the API server's clock, 2026-11-29T14:00:00Z (was 2026-11-29T11:00:00Z, is 2026-11-29T12:00:01Z): set the detector's clock`},
		"two at once": {func(w *Write) { w.is().Reason = ""; w.After = w.After[3:] },
			`[ConditionDropped,ReasonMissing] status.conditions lost other conditions (was "MemoryPressure", "DiskPressure", "PIDPressure", is none): use a strategic merge patch of the Ready entry alone; a JSON merge patch replaces the whole list; status.conditions[Ready].reason is empty (was "KubeletReady", is ""): say in one CamelCase word why, such as OutOfBandProbeFailed`},
	} {
		t.Run(name, func(t *testing.T) {
			w := failure()
			c.write(&w)
			if got := Message(Check(w, strict())); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestHostileValuesAreQuotedAndCutInMessages(t *testing.T) {
	w := failure()
	w.is().Reason = "NodeStatusNeverUpdated\n" + strings.Repeat("ü", 100_000)
	for i := range 3000 {
		w.Before = append(w.Before, Condition{Type: strings.Repeat("x", 5000) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))})
	}
	message := Message(Check(w, strict()))
	if len(message) > 4096 || strings.ContainsAny(message, "\n\r") || !strings.HasPrefix(message, "[ConditionDropped,ReasonUnclear]") {
		t.Errorf("%d bytes: %.300q", len(message), message)
	}
}
