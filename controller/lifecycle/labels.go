package lifecycle

import corev1 "k8s.io/api/core/v1"

// mirrors are the beta labels that old clients still read, and where their value
// comes from. It never flows the other way.
var mirrors = []struct{ from, to string }{
	{corev1.LabelOSStable, "beta.kubernetes.io/os"},
	{corev1.LabelArchStable, "beta.kubernetes.io/arch"},
}

// Labels returns the labels to set, nil when none differ.
func Labels(n *corev1.Node) map[string]string {
	var set map[string]string
	for _, m := range mirrors {
		value, ok := n.Labels[m.from]
		if old, there := n.Labels[m.to]; !ok || there && old == value {
			continue
		}
		if set == nil {
			set = map[string]string{}
		}
		set[m.to] = value
	}
	return set
}
