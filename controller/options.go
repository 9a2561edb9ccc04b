package controller

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
	"github.com/nodewarden/nodewarden/controller/zone"
)

// Gate is the feature gate without which the external source is refused.
const Gate = "ExternalNodeLivenessDetection"

// Mode says how much of the node lifecycle is ours.
type Mode string

const (
	// Replace does everything; the in-tree controller is off.
	Replace Mode = "replace"
	// Beside does only what a running in-tree controller leaves undone for
	// nodes that an outsider reports Unknown: the event and the pods.
	Beside Mode = "beside"
)

// Options are the settings of the controller, named as kube-controller-manager
// names them.
type Options struct {
	// LivenessSource is whose word counts for a node.
	LivenessSource lifecycle.Source
	// ExternalNodes selects nodes whose source is external while
	// LivenessSource is kubelet. Nil selects none.
	ExternalNodes labels.Selector
	// ExternalEnabled is the state of the feature gate.
	ExternalEnabled bool
	// Mode is Replace or Beside.
	Mode Mode
	// NodeMonitorPeriod bounds how long anything can go unnoticed.
	NodeMonitorPeriod time.Duration
	// NodeMonitorGracePeriod is the silence tolerated of a kubelet.
	NodeMonitorGracePeriod time.Duration
	// NodeStartupGracePeriod is the silence tolerated of a node without Ready.
	NodeStartupGracePeriod time.Duration
	// NodeEvictionRate is in nodes per second and zone.
	NodeEvictionRate float32
	// SecondaryNodeEvictionRate is the same for a large, partly disrupted zone.
	SecondaryNodeEvictionRate float32
	// LargeClusterSizeThreshold is the zone size above which a zone is large.
	LargeClusterSizeThreshold int32
	// UnhealthyZoneThreshold is the share of nodes, 0 to 1, at which a zone is
	// partly disrupted.
	UnhealthyZoneThreshold float32
}

// DefaultOptions are kube-controller-manager's defaults.
func DefaultOptions() Options {
	return Options{
		LivenessSource:            lifecycle.Kubelet,
		Mode:                      Replace,
		NodeMonitorPeriod:         5 * time.Second,
		NodeMonitorGracePeriod:    50 * time.Second,
		NodeStartupGracePeriod:    60 * time.Second,
		NodeEvictionRate:          0.1,
		SecondaryNodeEvictionRate: 0.01,
		LargeClusterSizeThreshold: 50,
		UnhealthyZoneThreshold:    0.55,
	}
}

// shortestPeriod is far below what is of use. With less, passes over all nodes
// keep a core busy.
const shortestPeriod = 100 * time.Millisecond

// Validate returns everything wrong with o, each at its own path.
func (o Options) Validate() field.ErrorList {
	errs := o.validateSource()
	errs = append(errs, o.validateMode()...)
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			errs = append(errs, field.Invalid(field.NewPath(name), d.String(), "must be longer than 0s"))
		}
	}
	if o.NodeMonitorPeriod < shortestPeriod {
		errs = append(errs, field.Invalid(field.NewPath("nodeMonitorPeriod"), o.NodeMonitorPeriod.String(), "must be at least "+shortestPeriod.String()+", for all nodes are gone over that often"))
	}
	positive("nodeMonitorGracePeriod", o.NodeMonitorGracePeriod)
	positive("nodeStartupGracePeriod", o.NodeStartupGracePeriod)
	rate := func(name string, r float32) {
		if !(r >= 0 && r <= math.MaxFloat32) {
			errs = append(errs, field.Invalid(field.NewPath(name), r, "must be a number of nodes per second, and not negative; 0 taints no node for eviction"))
		}
	}
	rate("nodeEvictionRate", o.NodeEvictionRate)
	rate("secondaryNodeEvictionRate", o.SecondaryNodeEvictionRate)
	if o.LargeClusterSizeThreshold < 0 {
		errs = append(errs, field.Invalid(field.NewPath("largeClusterSizeThreshold"), o.LargeClusterSizeThreshold, "must not be negative; 0 makes every zone large"))
	}
	if !(o.UnhealthyZoneThreshold >= 0 && o.UnhealthyZoneThreshold <= 1) {
		errs = append(errs, field.Invalid(field.NewPath("unhealthyZoneThreshold"), o.UnhealthyZoneThreshold, "must be between 0 and 1, a share of the nodes of a zone"))
	}
	return errs
}

func (o Options) validateSource() field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("nodeLivenessSource")
	switch o.LivenessSource {
	case lifecycle.Kubelet:
	case lifecycle.External:
		if !o.ExternalEnabled {
			errs = append(errs, field.Forbidden(path, "external needs --feature-gates="+Gate+"=true"))
		}
	default:
		errs = append(errs, field.NotSupported(path, o.LivenessSource, []lifecycle.Source{lifecycle.Kubelet, lifecycle.External}))
	}
	if o.ExternalNodes == nil {
		return errs
	}
	path = field.NewPath("externalNodes")
	if o.LivenessSource == lifecycle.External {
		errs = append(errs, field.Invalid(path, o.ExternalNodes.String(), "selects among nodes of the kubelet source, and nodeLivenessSource external leaves none; set one of the two"))
	}
	if o.ExternalNodes.Empty() {
		errs = append(errs, field.Invalid(path, o.ExternalNodes.String(), "selects every node; name a label, or set nodeLivenessSource to external instead"))
	}
	if !o.ExternalEnabled {
		errs = append(errs, field.Forbidden(path, "external nodes need --feature-gates="+Gate+"=true"))
	}
	return errs
}

func (o Options) validateMode() field.ErrorList {
	path := field.NewPath("mode")
	switch o.Mode {
	case Replace:
		return nil
	case Beside:
		if o.LivenessSource == lifecycle.Kubelet && o.ExternalNodes == nil {
			return field.ErrorList{field.Invalid(path, o.Mode, "acts on outside writes only: set nodeLivenessSource to external, or externalNodes")}
		}
		return nil
	}
	return field.ErrorList{field.NotSupported(path, o.Mode, []Mode{Replace, Beside})}
}

// sourceOf is whose word counts for a node with these labels.
func (o Options) sourceOf(l map[string]string) lifecycle.Source {
	if o.ExternalNodes != nil && o.ExternalNodes.Matches(labels.Set(l)) {
		return lifecycle.External
	}
	return o.LivenessSource
}

// sources are those that some node may have.
func (o Options) sources() []lifecycle.Source {
	if o.ExternalNodes != nil {
		return []lifecycle.Source{lifecycle.Kubelet, lifecycle.External}
	}
	return []lifecycle.Source{o.LivenessSource}
}

// readsLeases says that some node is timed by its Lease.
func (o Options) readsLeases() bool {
	return o.Mode == Replace && o.LivenessSource == lifecycle.Kubelet
}

func (o Options) graces() lifecycle.Graces {
	return lifecycle.Graces{Monitor: o.NodeMonitorGracePeriod, Startup: o.NodeStartupGracePeriod}
}

func (o Options) limits() zone.Limits {
	return zone.Limits{
		Rate:           o.NodeEvictionRate,
		SecondaryRate:  o.SecondaryNodeEvictionRate,
		LargeZone:      o.LargeClusterSizeThreshold,
		UnhealthyShare: o.UnhealthyZoneThreshold,
	}
}

// settle is how long no node may have gone down or come up before one is tainted
// NoExecute: long enough to count nodes that are reported together, and short
// beside the period after which the in-tree controller does the same.
const settle = 50 * time.Millisecond

func (o Options) pace() zone.Pace {
	return zone.Pace{Settle: settle, Patience: o.NodeMonitorPeriod}
}
