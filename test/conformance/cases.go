package conformance

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/nodes"
)

// PoolLabel is the label by which Policy gives nodes to the detector.
const PoolLabel = "node-restriction.kubernetes.io/pool"

// Detector is the writer of every case.
var Detector = contract.ServiceAccount("liveness", "detector")

// Persistence is the signalPersistence that the cases of SignalTooYoung expect.
const Persistence = 2 * time.Second

// Policy is the policy under which the cases of rule are played: the enforce
// profile, with the rule on where it is off by default.
func Policy(rule contract.Rule) contract.Policy {
	p := contract.Default(contract.Enforce)
	if rule == contract.SignalTooYoung {
		p.Rules = map[contract.Rule]contract.Action{rule: contract.Deny}
		p.SignalPersistence = Persistence
	}
	if rule == contract.UnauthorizedDetector {
		p.Rules = map[contract.Rule]contract.Action{rule: contract.Deny}
		p.Detectors = []contract.Detector{{Identity: Detector, Nodes: labels.SelectorFromSet(labels.Set{PoolLabel: "a"})}}
	}
	return p
}

// at is an instant so many seconds after the kubelet's last word.
func at(seconds int) metav1.Time {
	return metav1.NewTime(Epoch.Add(time.Duration(seconds) * time.Second))
}

// edit changes one side of a case.
type edit func(n *corev1.Node, ready *corev1.NodeCondition)

func untouched(*corev1.Node, *corev1.NodeCondition) {}

// report is a correct first report of a failure, one second after the kubelet's
// last word.
func report(n *corev1.Node, ready *corev1.NodeCondition) {
	ready.Status, ready.Reason, ready.Message = corev1.ConditionUnknown, "OutOfBandProbeFailed", "no answer from 3 of 3 observers"
	ready.LastTransitionTime = at(1)
}

// reportWith is a report with something changed.
func reportWith(change func(*corev1.NodeCondition)) edit {
	return func(n *corev1.Node, ready *corev1.NodeCondition) {
		report(n, ready)
		change(ready)
	}
}

// recorded is a node whose failure has been recorded some time ago.
func recorded(n *corev1.Node, ready *corev1.NodeCondition) {
	report(n, ready)
	ready.LastTransitionTime = at(-60)
}

// recovered is a node whose kubelet has been Ready for so many seconds by its
// own clock.
func recovered(seconds int) edit {
	return func(_ *corev1.Node, ready *corev1.NodeCondition) { ready.LastTransitionTime = at(-seconds) }
}

// play makes a case: the healthy node, the edit that makes it the one before,
// and the edit by the writer.
func play(rule contract.Rule, broken bool, name string, before, after edit) Case {
	b := nodes.Reporting("n1", Epoch.Add(-time.Hour), Epoch).Label(PoolLabel, "a").Node()
	before(b, nodes.Ready(b))
	a := b.DeepCopy()
	after(a, nodes.Ready(a))
	return Case{Name: name, Rule: rule, Before: b, After: a, Broken: broken}
}

func refused(rule contract.Rule, name string, before, after edit) Case {
	return play(rule, true, name, before, after)
}

func admitted(rule contract.Rule, name string, before, after edit) Case {
	return play(rule, false, name, before, after)
}

func (c Case) after(silence time.Duration) Case {
	c.Silence = silence
	return c
}

// Cases returns every case, in table order of the rules: for each rule writes
// that break it and no other, and the nearest correct ones.
func Cases() []Case {
	return []Case{
		refused(contract.ReadyMissing, "the Ready entry is taken away", untouched, drop(corev1.NodeReady)),
		admitted(contract.ReadyMissing, "the Ready entry stays where it is", untouched, report),

		refused(contract.ReadyDuplicated, "a second Ready entry is appended", untouched,
			func(n *corev1.Node, ready *corev1.NodeCondition) {
				report(n, ready)
				n.Status.Conditions = append(n.Status.Conditions, *ready)
			}),
		admitted(contract.ReadyDuplicated, "the entry that is there is changed", untouched, report),

		refused(contract.ConditionDropped, "the other conditions are lost", untouched,
			func(n *corev1.Node, ready *corev1.NodeCondition) {
				report(n, ready)
				n.Status.Conditions = []corev1.NodeCondition{*ready}
			}),
		admitted(contract.ConditionDropped, "the other conditions are kept", untouched, report),

		refused(contract.OtherConditionChanged, "memory pressure is declared unknown as well", untouched,
			func(n *corev1.Node, ready *corev1.NodeCondition) {
				report(n, ready)
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			}),
		admitted(contract.OtherConditionChanged, "a condition of the detector's own is added", untouched,
			func(n *corev1.Node, ready *corev1.NodeCondition) {
				report(n, ready)
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "LinkDown", Status: corev1.ConditionTrue, LastTransitionTime: at(1)})
			}),

		refused(contract.LabelsChanged, "an annotation is set along with the status", untouched,
			func(n *corev1.Node, ready *corev1.NodeCondition) {
				report(n, ready)
				n.Annotations = map[string]string{"example.com/seen-by": "detector"}
			}),
		admitted(contract.LabelsChanged, "metadata stays as it is", untouched, report),

		refused(contract.StatusNotUnknown, "a detector declares the node not ready", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.Status = corev1.ConditionFalse })),
		refused(contract.StatusNotUnknown, "a detector declares the recovery", recorded,
			func(_ *corev1.Node, ready *corev1.NodeCondition) {
				ready.Status, ready.Reason, ready.LastTransitionTime = corev1.ConditionTrue, "ProbeAnswered", at(1)
			}),
		admitted(contract.StatusNotUnknown, "a node that was False becomes Unknown",
			func(_ *corev1.Node, ready *corev1.NodeCondition) {
				ready.Status, ready.Reason = corev1.ConditionFalse, "KubeletNotReady"
			}, report),

		refused(contract.ReservedReason, "the reason is the node lifecycle controller's", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.Reason = "NodeStatusUnknown" })),
		admitted(contract.ReservedReason, "the reason is the detector's own", untouched, report),

		refused(contract.ReasonMissing, "there is no reason", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.Reason = "" })),
		admitted(contract.ReasonMissing, "there is a reason", untouched, report),

		refused(contract.ReasonInherited, "the reason is still the kubelet's", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.Reason = "KubeletReady" })),
		admitted(contract.ReasonInherited, "an old reason of the detector's own comes with a new message",
			func(_ *corev1.Node, ready *corev1.NodeCondition) { ready.Reason = "OutOfBandProbeFailed" }, report),

		refused(contract.ReasonUnclear, "the reason is a sentence", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.Reason = "probe failed" })),
		admitted(contract.ReasonUnclear, "the reason is a CamelCase word", untouched, report),

		refused(contract.HeartbeatModified, "the heartbeat is moved", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastHeartbeatTime = at(1) })),
		refused(contract.HeartbeatModified, "the heartbeat is erased", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastHeartbeatTime = metav1.Time{} })),
		// JSON says it in UTC again: only a Target that takes these very Nodes sees the zone.
		admitted(contract.HeartbeatModified, "the heartbeat is the same instant in another zone", untouched,
			reportWith(func(r *corev1.NodeCondition) {
				r.LastHeartbeatTime.Time = r.LastHeartbeatTime.In(time.FixedZone("", 7200))
			})),

		refused(contract.TransitionTimeMissing, "the time of the transition is erased", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = metav1.Time{} })),
		admitted(contract.TransitionTimeMissing, "the time of the transition is there", untouched, report),

		refused(contract.TransitionTimeImplausible, "the transition is dated 1970", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = metav1.Unix(0, 0) })),
		admitted(contract.TransitionTimeImplausible, "the transition is dated in this century", untouched, report),

		refused(contract.TransitionTimeUnchanged, "the status changes and its time does not", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = at(-3600) })),
		admitted(contract.TransitionTimeUnchanged, "the time moves with the status", untouched, report),

		refused(contract.NewerReady, "the decision is as old as the kubelet's last word", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = at(0) })),
		refused(contract.NewerReady, "the decision is from before the recovery", recovered(30),
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = at(-40) })),
		admitted(contract.NewerReady, "the decision is younger than the kubelet's last word", untouched, report),
		admitted(contract.NewerReady, "a kubelet two minutes ahead changes nothing",
			func(_ *corev1.Node, ready *corev1.NodeCondition) {
				ready.LastHeartbeatTime, ready.LastTransitionTime = at(120), at(100)
			}, report),

		refused(contract.RecoveryHold, "a recovery is taken back at once", recovered(0), report),
		admitted(contract.RecoveryHold, "a recovery of a minute is over", recovered(60), report),

		refused(contract.SignalTooYoung, "the kubelet has only just spoken", untouched, report),
		admitted(contract.SignalTooYoung, "the kubelet has been silent for long enough", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = at(int(Persistence / time.Second)) })).after(Persistence + time.Second),

		refused(contract.TransitionTimeMoved, "a recorded failure is stamped again", recorded,
			func(_ *corev1.Node, ready *corev1.NodeCondition) { ready.LastTransitionTime = at(1) }),
		admitted(contract.TransitionTimeMoved, "a recorded failure is worded anew", recorded,
			func(_ *corev1.Node, ready *corev1.NodeCondition) { ready.Message = "still no answer" }),

		refused(contract.ClockSkew, "the detector's clock is an hour ahead", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = at(3600) })),
		admitted(contract.ClockSkew, "the detector's clock is half a minute ahead", untouched,
			reportWith(func(r *corev1.NodeCondition) { r.LastTransitionTime = at(30) })),

		refused(contract.UnauthorizedDetector, "the node belongs to another pool",
			func(n *corev1.Node, _ *corev1.NodeCondition) { n.Labels[PoolLabel] = "b" }, report),
		admitted(contract.UnauthorizedDetector, "the node belongs to the detector's pool", untouched, report),
	}
}

// drop takes a condition away.
func drop(t corev1.NodeConditionType) edit {
	return func(n *corev1.Node, _ *corev1.NodeCondition) {
		kept := n.Status.Conditions[:0]
		for _, c := range n.Status.Conditions {
			if c.Type != t {
				kept = append(kept, c)
			}
		}
		n.Status.Conditions = kept
	}
}
