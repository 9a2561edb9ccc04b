package main

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
)

// A second kubelet in one process panics because its metrics are registered
// already. Three collectors are in the way: one can be left out by its feature
// gate, and the other two can be taken out of the registries again.

// allowMany leaves out the collector that has a feature gate.
func allowMany() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{"PodCertificateRequest": false})
}

// releaseCollectors takes the collectors of the kubelet that has just been
// started out of the process-wide registries. A registry finds a collector by
// its descriptions, so that a twin is as good as the one inside the kubelet.
func releaseCollectors() error {
	twins := []metrics.StableCollector{
		collectors.NewVolumeStatsCollector(nil),
		collectors.NewLogMetricsCollector(nil),
	}
	metrics.NewKubeRegistry().CustomMustRegister(twins...) // writes the descriptions
	for _, r := range []prometheus.Registerer{legacyregistry.Registerer(), prometheus.DefaultRegisterer} {
		for _, t := range twins {
			if err := unregister(r, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// unregister waits, since the kubelet registers from a goroutine of its own.
func unregister(r prometheus.Registerer, c metrics.StableCollector) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if r.Unregister(c) {
			return nil
		}
	}
	return fmt.Errorf("the kubelet never registered %T, so another one could not run beside it", c)
}
