package controller

import (
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
)

func TestNonsenseIsRefusedAllAtOnce(t *testing.T) {
	pool := labels.SelectorFromSet(labels.Set{"pool": "x"})
	cases := map[string]struct {
		change func(*Options)
		want   []string
	}{
		"the defaults are fine":           {func(*Options) {}, nil},
		"an unknown source":               {func(o *Options) { o.LivenessSource = "" }, []string{"nodeLivenessSource"}},
		"external without its gate":       {func(o *Options) { o.LivenessSource = lifecycle.External }, []string{"nodeLivenessSource"}},
		"external with its gate is fine":  {func(o *Options) { o.LivenessSource, o.ExternalEnabled = lifecycle.External, true }, nil},
		"external nodes without the gate": {func(o *Options) { o.ExternalNodes = pool }, []string{"externalNodes"}},
		"a selection where all are external": {func(o *Options) {
			o.LivenessSource, o.ExternalEnabled, o.ExternalNodes = lifecycle.External, true, pool
		}, []string{"externalNodes"}},
		"an unknown mode":                    {func(o *Options) { o.Mode = "off" }, []string{"mode"}},
		"beside with nothing to do":          {func(o *Options) { o.Mode = Beside }, []string{"mode"}},
		"beside with external nodes is fine": {func(o *Options) { o.Mode, o.ExternalEnabled, o.ExternalNodes = Beside, true, pool }, nil},
		"negative rates":                     {func(o *Options) { o.NodeEvictionRate, o.SecondaryNodeEvictionRate = -1, -1 }, []string{"nodeEvictionRate", "secondaryNodeEvictionRate"}},
		"rates that are no numbers, or without end": {func(o *Options) {
			o.NodeEvictionRate, o.SecondaryNodeEvictionRate = float32(math.NaN()), float32(math.Inf(1))
		}, []string{"nodeEvictionRate", "secondaryNodeEvictionRate"}},
		"a selection of every node":               {func(o *Options) { o.ExternalEnabled, o.ExternalNodes = true, labels.Everything() }, []string{"externalNodes"}},
		"a period that keeps a core busy":         {func(o *Options) { o.NodeMonitorPeriod = 99 * time.Millisecond }, []string{"nodeMonitorPeriod"}},
		"a tenth of a second is fine":             {func(o *Options) { o.NodeMonitorPeriod = 100 * time.Millisecond }, nil},
		"a share that is not a number":            {func(o *Options) { o.UnhealthyZoneThreshold = float32(math.NaN()) }, []string{"unhealthyZoneThreshold"}},
		"a share above one, a size below nothing": {func(o *Options) { o.UnhealthyZoneThreshold, o.LargeClusterSizeThreshold = 1.1, -1 }, []string{"largeClusterSizeThreshold", "unhealthyZoneThreshold"}},
		"periods that are zero, and an odd source": {func(o *Options) {
			o.NodeMonitorPeriod, o.NodeMonitorGracePeriod, o.NodeStartupGracePeriod, o.LivenessSource = 0, -time.Second, 0, "lease"
		}, []string{"nodeLivenessSource", "nodeMonitorPeriod", "nodeMonitorGracePeriod", "nodeStartupGracePeriod"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			c.change(&o)
			errs := o.Validate()
			if len(errs) != len(c.want) {
				t.Fatalf("%d problems, want %d: %v", len(errs), len(c.want), errs)
			}
			for i, e := range errs {
				if e.Field != c.want[i] {
					t.Errorf("problem %d is with %s, want %s", i, e.Field, c.want[i])
				}
			}
		})
	}
}
