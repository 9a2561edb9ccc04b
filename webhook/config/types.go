package config

import (
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// The version and kind that a policy file must state.
const (
	APIVersion = "config.nodewarden.dev/v1alpha1"
	Kind       = "WebhookConfiguration"
)

// WebhookConfiguration is the policy file. Every field has a default; an empty
// file of the right kind is an install in the warn profile.
type WebhookConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Profile sets all rules at once: enforce, warn (default) or audit.
	Profile contract.Profile `json:"profile,omitempty"`
	// Rules sets single rules to deny, warn, audit or off, whatever the profile.
	Rules Rules `json:"rules,omitempty"`
	// RecoveryHold is how long after a transition to True nobody may take it
	// back; default 10s, 0s disables the rule.
	RecoveryHold *Duration `json:"recoveryHold,omitempty"`
	// SignalPersistence is how long a kubelet must have been silent before a
	// failure may be recorded, for the rule SignalTooYoung (off by default).
	SignalPersistence *Duration `json:"signalPersistence,omitempty"`
	// MaxClockSkew is how far a new lastTransitionTime may lie from the API
	// server's clock before ClockSkew speaks; default 60s.
	MaxClockSkew *Duration `json:"maxClockSkew,omitempty"`

	// LivenessSource declares who decides that a node is dead, kubelet
	// (default) or external. It arms the alert on skew and nothing else.
	LivenessSource LivenessSource `json:"livenessSource,omitempty"`

	// StandIns write for kubelets and are never judged; default none.
	StandIns []Identity `json:"standIns,omitempty"`
	// Lifecycle are the identities of the in-tree node lifecycle controller;
	// default the service account kube-system/node-controller and the user
	// system:kube-controller-manager. A list takes their place, and names somebody.
	Lifecycle *[]Identity `json:"lifecycle,omitempty"`
	// Controller is nodewarden's own controller; default the service account
	// nodewarden-system/nodewarden-controller.
	Controller *Identity `json:"controller,omitempty"`
	// Detectors lists who may record failures, for UnauthorizedDetector (off by
	// default). An empty list means anybody.
	Detectors []Detector `json:"detectors,omitempty"`

	// Stalled defines when a node's Ready counts as stalled.
	Stalled Stalled `json:"stalled,omitempty"`
}

// Rules are single rules' actions. YAML reads a bare off as false, which is
// therefore taken for off.
type Rules map[contract.Rule]contract.Action

// UnmarshalJSON never fails on a value of the wrong form; Validate reports it.
func (r *Rules) UnmarshalJSON(b []byte) error {
	var raw map[contract.Rule]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return errors.New("rules: want rules with their actions, such as {ReasonUnclear: deny}")
	}
	*r = make(Rules, len(raw))
	for rule, value := range raw {
		var action contract.Action
		if json.Unmarshal(value, &action) != nil {
			action = contract.Action(value)
		}
		if string(value) == "false" {
			action = contract.Off
		}
		(*r)[rule] = action
	}
	return nil
}

// LivenessSource names who decides that a node is dead.
type LivenessSource string

// The liveness sources of KEP-6371.
const (
	FromKubelet  LivenessSource = "kubelet"
	FromExternal LivenessSource = "external"
)

// Identity names a writer: a service account, or a user with, where its
// credentials carry groups, one of them.
type Identity struct {
	ServiceAccount *ServiceAccount `json:"serviceAccount,omitempty"`
	User           string          `json:"user,omitempty"`
	Group          string          `json:"group,omitempty"`
}

// ServiceAccount names a service account.
type ServiceAccount struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Detector is a writer that may record the failure of the nodes it is given.
type Detector struct {
	Identity `json:",inline"`
	// NodeSelector selects the detector's nodes by label; absent means all.
	// Use labels that a kubelet cannot give itself, such as
	// node-restriction.kubernetes.io/pool.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// Stalled defines when a Ready condition of status True or False counts as
// stalled: when nobody has written it for AfterPeriods times StatusReportPeriod.
type Stalled struct {
	// StatusReportPeriod is the kubelets' nodeStatusReportFrequency; default 5m.
	StatusReportPeriod *Duration `json:"statusReportPeriod,omitempty"`
	// AfterPeriods is how many report periods may pass; default 3.
	AfterPeriods *int `json:"afterPeriods,omitempty"`
	// MaxNamedNodes is how many stalled nodes are named in metrics; above it
	// there are only counts. Default 100.
	MaxNamedNodes *int `json:"maxNamedNodes,omitempty"`
}
