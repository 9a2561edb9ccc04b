package kubeletcfg

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubelet/config/v1beta1"
)

// NodeLeaseGate is the feature gate that KEP-6371 puts before enableNodeLease
// on the kubelet and before --node-liveness-source on the
// kube-controller-manager.
const NodeLeaseGate = "ExternalNodeLivenessDetection"

const (
	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
	kubeletKind       = "KubeletConfiguration"
	nodeLeaseField    = "enableNodeLease"
)

// Config is a KubeletConfiguration with the field that KEP-6371 adds to it.
type Config struct {
	v1beta1.KubeletConfiguration `json:",inline"`
	// EnableNodeLease: whether the kubelet keeps a Lease; nil is true.
	EnableNodeLease *bool `json:"enableNodeLease,omitempty"`
}

// DeepCopyObject makes Config a runtime.Object.
func (c *Config) DeepCopyObject() runtime.Object {
	out := &Config{}
	c.KubeletConfiguration.DeepCopyInto(&out.KubeletConfiguration)
	if c.EnableNodeLease != nil {
		out.EnableNodeLease = new(*c.EnableNodeLease)
	}
	return out
}

// firstMinor holds the fields that came after the oldest version we judge,
// with the minor version of the first kubelet whose type has them.
var firstMinor = map[string]int{
	"failCgroupV1":                           31,
	"crashLoopBackOff":                       32,
	"singleProcessOOMKill":                   32,
	"imagePullCredentialsVerificationPolicy": 33,
	"mergeDefaultEvictionSettings":           33,
	"preloadedImagesVerificationAllowlist":   33,
	"userNamespaces":                         33,
	"memoryReservationPolicy":                36,
	"tlsCurvePreferences":                    36,
	"defaultPodSysctls":                      37,
	nodeLeaseField:                           kepMinor,
}

// knowsField: does a kubelet of this version have the top-level field?
func (v Version) knowsField(name string) bool {
	if name == nodeLeaseField {
		return v.knowsNodeLease()
	}
	return v.minor >= firstMinor[name]
}
