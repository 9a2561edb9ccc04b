package contract

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Policy is how strictly the contract is applied, and to whom. The zero Policy
// applies the table of rules to everybody but a node's own kubelet, without
// holds; Default is what an install starts from.
type Policy struct {
	// Profile sets all rules at once; empty means Enforce.
	Profile Profile
	// Rules overrides single rules, whatever the profile says.
	Rules map[Rule]Action

	// RecoveryHold is how long after a transition to True nobody may take it
	// back. Zero disables RecoveryHold.
	RecoveryHold time.Duration
	// SignalPersistence is how long a kubelet must have been silent before
	// SignalTooYoung lets a failure be recorded.
	SignalPersistence time.Duration
	// MaxClockSkew is how far a new lastTransitionTime may lie from the API
	// server's clock before ClockSkew speaks.
	MaxClockSkew time.Duration

	// StandIns write for kubelets: kwok, virtual-kubelet, shared identities.
	StandIns []Identity
	// Lifecycle are the identities of node lifecycle controllers.
	Lifecycle []Identity
	// Controller is the identity of nodewarden's own lifecycle controller. It
	// is a lifecycle identity, and the one that never shows skew.
	Controller Identity
	// Detectors lists who may record failures, for UnauthorizedDetector. Empty
	// means anybody.
	Detectors []Detector
}

// Detector is a writer that may record the failure of some nodes.
type Detector struct {
	Identity
	// Nodes selects the detector's nodes by their labels; nil means all.
	Nodes labels.Selector
}

// The defaults of the holds and of the tolerated skew.
const (
	DefaultRecoveryHold = 10 * time.Second
	DefaultMaxClockSkew = 60 * time.Second
)

// Default returns the policy of an untouched policy file at profile p: the
// in-tree controller's identities and our controller's in its usual namespace.
func Default(p Profile) Policy {
	return Policy{
		Profile:      p,
		RecoveryHold: DefaultRecoveryHold,
		MaxClockSkew: DefaultMaxClockSkew,
		Lifecycle: []Identity{
			ServiceAccount("kube-system", "node-controller"),
			{User: "system:kube-controller-manager"},
		},
		Controller: ServiceAccount("nodewarden-system", "nodewarden-controller"),
	}
}

// Action is what p does about a broken r.
func (p *Policy) Action(r Rule) Action {
	known := r.promise()
	if known == nil {
		return Off
	}
	return p.action(known)
}

func (p *Policy) action(r *promise) Action {
	if a, ok := p.Rules[r.name]; ok {
		return a
	}
	return p.Profile.soften(r.byDefault)
}

// effective is d, or 0 where r is off.
func (p *Policy) effective(r Rule, d time.Duration) time.Duration {
	if p.Action(r) == Off {
		return 0
	}
	return d
}

// NeedsLabels says whether p looks at a Node's labels, so that a decoder may
// leave them out where it does not.
func (p *Policy) NeedsLabels() bool {
	return len(p.Detectors) > 0 && p.Action(UnauthorizedDetector) != Off
}
