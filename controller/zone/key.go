package zone

import corev1 "k8s.io/api/core/v1"

// Excluded is the label that keeps a node out of the count. Its presence is what
// counts; "false" excludes as well.
const Excluded = "node.kubernetes.io/exclude-disruption"

// Key names the zone of a node with these labels, empty when they say nothing.
// A beta label wins by being there, even empty. The separator is what upstream
// uses and so what dashboards know.
func Key(labels map[string]string) string {
	zone := first(labels, corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone)
	region := first(labels, corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion)
	if zone == "" && region == "" {
		return ""
	}
	return region + ":\x00:" + zone
}

func first(labels map[string]string, keys ...string) string {
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			return v
		}
	}
	return ""
}
