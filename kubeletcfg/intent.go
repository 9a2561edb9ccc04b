package kubeletcfg

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	// IntentAPIVersion is the apiVersion of an intent file.
	IntentAPIVersion = "config.nodewarden.dev/v1alpha1"
	// IntentKind is its kind.
	IntentKind = "KubeletIntent"
)

// LivenessSource is who says that a node is gone.
type LivenessSource string

const (
	// Kubelet: the node lifecycle controller, from Leases and status. The default.
	Kubelet LivenessSource = "Kubelet"
	// External: a detector outside the core, as in KEP-6371.
	External LivenessSource = "External"
)

// Controller is who acts on it.
type Controller string

const (
	// InTree is the controller inside kube-controller-manager.
	InTree Controller = "InTree"
	// Nodewarden is nodewarden-controller, with the in-tree one switched off.
	Nodewarden Controller = "Nodewarden"
)

// NodeLease is what kubelets do about their Lease. The values are no words
// that YAML takes for true or false.
type NodeLease string

const (
	// LeaseOn: renewed every quarter of 40 s. The default, and the way back.
	LeaseOn NodeLease = "Enabled"
	// LeaseOff: neither created nor renewed. Needs kubelets from 1.38 on.
	LeaseOff NodeLease = "Disabled"
	// LeaseStretched: renewed less often. The most that older kubelets can do.
	LeaseStretched NodeLease = "Stretched"
)

// Intent is what somebody wants of a cluster's kubelets and of what watches them.
type Intent struct {
	metav1.TypeMeta `json:",inline"`

	// ControlPlaneVersion and KubeletVersion as in `kubectl version`. Where
	// versions are mixed, the oldest of each.
	ControlPlaneVersion string         `json:"controlPlaneVersion"`
	KubeletVersion      string         `json:"kubeletVersion"`
	LivenessSource      LivenessSource `json:"livenessSource"`
	Controller          Controller     `json:"controller"`
	NodeLease           NodeLease      `json:"nodeLease"`
	// Stretch belongs to nodeLease: Stretched.
	Stretch *Stretch `json:"stretch,omitempty"`
	// Kubeadm and ClusterAPI belong to the forms of that name.
	Kubeadm    *KubeadmIntent    `json:"kubeadm,omitempty"`
	ClusterAPI *ClusterAPIIntent `json:"clusterAPI,omitempty"`
}

// Stretch makes Leases rarer.
type Stretch struct {
	// LeaseDurationSeconds; a kubelet renews every quarter of it.
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds"`
	// NodeMonitorGracePeriodSeconds of whichever controller acts; 0 is 50.
	NodeMonitorGracePeriodSeconds int32 `json:"nodeMonitorGracePeriodSeconds,omitempty"`
	// Nodes in the cluster, for the figures in the rendered text.
	Nodes int32 `json:"nodes"`
}

// KubeadmIntent says where kubeadm finds its patches.
type KubeadmIntent struct {
	// PatchesDirectory on the node, absolute.
	PatchesDirectory string `json:"patchesDirectory"`
}

// ClusterAPIIntent names the objects of Cluster API that carry the change.
type ClusterAPIIntent struct {
	Namespace string `json:"namespace"`
	// Cluster is the name of the Cluster object.
	Cluster string `json:"cluster"`
	// ControlPlane is the KubeadmControlPlane that exists.
	ControlPlane string `json:"controlPlane"`
	// PatchesDirectory on the machines, absolute.
	PatchesDirectory string   `json:"patchesDirectory"`
	Workers          []Worker `json:"workers"`
}

// Worker is one pool of machines.
type Worker struct {
	// MachineDeployment is the one that exists.
	MachineDeployment string `json:"machineDeployment"`
	// Template is the name of a KubeadmConfigTemplate that does not exist yet:
	// templates must not be changed.
	Template string `json:"template"`
}

const (
	defaultLeaseSeconds = 40
	defaultGraceSeconds = 50
	// renewalsPerLease: a kubelet renews this often within a lease duration,
	// up to 4 % late.
	renewalsPerLease = 4
)

// ParseIntent reads an intent file. It is strict: an unknown or repeated key
// is an error, and so is everything that Validate finds.
func ParseIntent(data []byte) (Intent, error) {
	var in Intent
	if linesOf(data).extra > 0 {
		return in, errors.New("intent: holds more than one YAML document; keep one")
	}
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return in, fmt.Errorf("intent: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(doc, &in)
	if err != nil {
		return in, fmt.Errorf("intent: %w", mistyped(err))
	}
	var errs field.ErrorList
	for _, e := range strict {
		errs = append(errs, unknown(e))
	}
	return in, append(errs, in.Validate()...).ToAggregate()
}

// unknown is an error at the key that e quotes.
func unknown(e error) *field.Error {
	_, quoted, _ := strings.Cut(e.Error(), `"`)
	return field.Forbidden(field.NewPath(strings.TrimSuffix(quoted, `"`)), "a "+IntentKind+" has no such field: remove it, or mend its spelling")
}

var wrongType = regexp.MustCompile(`cannot unmarshal (\w+).* into Go struct field \w+\.(\S+) of type`)

// mistyped is err, which names Go's types, as an error at the value. YAML makes
// numbers of versions, and true and false of words such as on and off.
func mistyped(err error) error {
	m := wrongType.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	return field.TypeInvalid(field.NewPath(m[2]), m[1], "something else belongs here; what YAML takes for a number, for true or for false needs quotes to be text")
}

// Validate returns everything wrong with in, each at its own path.
func (in Intent) Validate() field.ErrorList {
	var errs field.ErrorList
	if in.APIVersion != IntentAPIVersion || in.Kind != IntentKind {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), in.APIVersion+", "+in.Kind,
			"must be "+IntentAPIVersion+" with kind: "+IntentKind))
	}
	errs = append(errs, oneOf("livenessSource", in.LivenessSource, Kubelet, External)...)
	errs = append(errs, oneOf("controller", in.Controller, InTree, Nodewarden)...)
	errs = append(errs, oneOf("nodeLease", in.NodeLease, LeaseOn, LeaseOff, LeaseStretched)...)
	errs = append(errs, in.validateVersions()...)
	errs = append(errs, in.validateLease()...)
	errs = append(errs, in.Kubeadm.validate(field.NewPath("kubeadm"))...)
	return append(errs, in.ClusterAPI.validate(field.NewPath("clusterAPI"))...)
}

func oneOf[T ~string](name string, got T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, got) {
		return nil
	}
	if got == "" {
		return field.ErrorList{field.Required(field.NewPath(name), fmt.Sprintf("say one of %q", allowed))}
	}
	return field.ErrorList{field.NotSupported(field.NewPath(name), got, allowed)}
}

func (in Intent) validateVersions() field.ErrorList {
	var errs field.ErrorList
	plane, err := ParseVersion(in.ControlPlaneVersion)
	if err != nil {
		errs = append(errs, field.Invalid(field.NewPath("controlPlaneVersion"), in.ControlPlaneVersion, err.Error()))
	}
	kubelet, err2 := ParseVersion(in.KubeletVersion)
	if err2 != nil {
		errs = append(errs, field.Invalid(field.NewPath("kubeletVersion"), in.KubeletVersion, err2.Error()))
	}
	if err != nil || err2 != nil {
		return errs
	}
	if kubelet.minor > plane.minor {
		errs = append(errs, field.Invalid(field.NewPath("kubeletVersion"), in.KubeletVersion,
			"is newer than the control plane, "+in.ControlPlaneVersion+", which Kubernetes does not support"))
	}
	if in.LivenessSource == External && in.Controller == InTree && !plane.knowsNodeLease() {
		errs = append(errs, field.Invalid(field.NewPath("controller"), in.Controller,
			"has no external mode before 1.38; use Nodewarden"))
	}
	if in.NodeLease == LeaseOff && !kubelet.knowsNodeLease() {
		errs = append(errs, field.Invalid(field.NewPath("nodeLease"), in.NodeLease,
			"kubelet "+in.KubeletVersion+" cannot do without its Lease; use Stretched until every kubelet is 1.38"))
	}
	return errs
}

func (in Intent) validateLease() field.ErrorList {
	var errs field.ErrorList
	if in.NodeLease == LeaseOff && in.LivenessSource != External {
		errs = append(errs, field.Invalid(field.NewPath("nodeLease"), in.NodeLease,
			"needs livenessSource: External; otherwise live nodes are taken for dead about once a minute"))
	}
	at := field.NewPath("stretch")
	switch {
	case in.NodeLease != LeaseStretched && in.Stretch != nil:
		errs = append(errs, field.Forbidden(at, "belongs to nodeLease: Stretched"))
	case in.NodeLease == LeaseStretched && in.Stretch == nil:
		errs = append(errs, field.Required(at, "nodeLease: Stretched needs leaseDurationSeconds and nodes"))
	case in.Stretch != nil:
		errs = append(errs, in.Stretch.validate(at, in.LivenessSource)...)
	}
	return errs
}

func (s Stretch) validate(at *field.Path, source LivenessSource) field.ErrorList {
	var errs field.ErrorList
	if s.LeaseDurationSeconds <= defaultLeaseSeconds || s.LeaseDurationSeconds > 3600 {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), s.LeaseDurationSeconds,
			fmt.Sprintf("must be above %d, the default, and at most 3600", defaultLeaseSeconds)))
	}
	if s.NodeMonitorGracePeriodSeconds < 0 {
		errs = append(errs, field.Invalid(at.Child("nodeMonitorGracePeriodSeconds"), s.NodeMonitorGracePeriodSeconds, "must not be negative"))
	}
	if s.Nodes < 1 {
		errs = append(errs, field.Invalid(at.Child("nodes"), s.Nodes, "must be at least 1"))
	}
	if source == Kubelet && 2*s.renewSeconds() > float64(s.graceSeconds()) {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), s.LeaseDurationSeconds,
			fmt.Sprintf("means a renewal every %.0f s, so not even two fit into the grace period of %d s, and live nodes would be taken for dead; use at most %d, or a longer --node-monitor-grace-period",
				s.renewSeconds(), s.graceSeconds(), s.longestSafe())))
	}
	return errs
}

// renewSeconds is the longest time between two renewals.
func (s Stretch) renewSeconds() float64 {
	return float64(s.LeaseDurationSeconds) / renewalsPerLease * 1.04
}

func (s Stretch) graceSeconds() int32 {
	if s.NodeMonitorGracePeriodSeconds == 0 {
		return defaultGraceSeconds
	}
	return s.NodeMonitorGracePeriodSeconds
}

func (s Stretch) graceFlag() string {
	return fmt.Sprintf("--node-monitor-grace-period=%ds", s.graceSeconds())
}

// longestSafe is the longest lease duration of which two renewals fit into
// the grace period.
func (s Stretch) longestSafe() int32 {
	return int32(float64(s.graceSeconds()) * renewalsPerLease / 2 / 1.04)
}

func (k *KubeadmIntent) validate(at *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	return validateDirectory(at.Child("patchesDirectory"), k.PatchesDirectory)
}

func validateDirectory(at *field.Path, dir string) field.ErrorList {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || strings.ContainsAny(dir, " \"'\n") {
		return field.ErrorList{field.Invalid(at, dir, "must be a clean absolute path, such as /etc/kubernetes/patches")}
	}
	return nil
}

func (c *ClusterAPIIntent) validate(at *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := validateDirectory(at.Child("patchesDirectory"), c.PatchesDirectory)
	errs = append(errs, validateName(at.Child("namespace"), c.Namespace)...)
	errs = append(errs, validateName(at.Child("cluster"), c.Cluster)...)
	errs = append(errs, validateName(at.Child("controlPlane"), c.ControlPlane)...)
	pools, templates := map[string]bool{}, map[string]bool{}
	for i, w := range c.Workers {
		pool := at.Child("workers").Index(i)
		errs = append(errs, validateName(pool.Child("machineDeployment"), w.MachineDeployment)...)
		errs = append(errs, validateName(pool.Child("template"), w.Template)...)
		if pools[w.MachineDeployment] {
			errs = append(errs, field.Duplicate(pool.Child("machineDeployment"), w.MachineDeployment))
		}
		if templates[w.Template] {
			errs = append(errs, field.Duplicate(pool.Child("template"), w.Template))
		}
		pools[w.MachineDeployment], templates[w.Template] = true, true
	}
	return errs
}

func validateName(at *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	return errs
}
