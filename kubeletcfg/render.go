package kubeletcfg

import (
	"fmt"
	"slices"
	"strings"
)

// Form is one way of writing an intent down. The strings are public.
type Form string

const (
	// FormConfig: a KubeletConfiguration to take over into a --config file.
	FormConfig Form = "kubelet-config"
	// FormDropIn: a file for the kubelet's --config-dir.
	FormDropIn Form = "drop-in"
	// FormStaticPod: a kubeadm patch for the kube-controller-manager's static pod.
	FormStaticPod Form = "static-pod"
	// FormKubeadmPatches: a directory for kubeadm's --patches.
	FormKubeadmPatches Form = "kubeadm-patches"
	// FormKubeadmConfig: a file for kubeadm's --config, v1beta4.
	FormKubeadmConfig Form = "kubeadm-config"
	// FormClusterAPI: KubeadmControlPlane, KubeadmConfigTemplate, MachineDeployment.
	FormClusterAPI Form = "cluster-api"
)

// form is what there is to know about one Form.
type form struct {
	name Form
	// effect of applying it, in words.
	effect string
	// checkedWith names the code that reads what we write, in its version.
	checkedWith string
	files       func(Intent) []stepFile
}

// stepFile is a file of one step.
type stepFile struct {
	File
	step step
}

// step is what a file changes, which decides when it may be applied.
type step int

const (
	// stepPlane: the control plane.
	stepPlane step = iota
	// stepKubelets: kubelets, and nothing else.
	stepKubelets
	// stepRepeating: kubelets, with the flags that the control plane got in the
	// step before, so that applying it does not take them back.
	stepRepeating
	// stepNewCluster: both at once, where nothing runs yet.
	stepNewCluster
	// stepEither: one or the other, as the patches do that it names.
	stepEither
)

// forms holds every form in the order the documentation lists them. A form
// that nothing could check would not be here.
var forms = []form{
	{FormConfig, "a kubelet reads it when it starts, so restart kubelets, in batches", "the loader of kubelet 1.37.2", configFile},
	{FormDropIn, "a kubelet reads it when it starts, so restart kubelets, in batches", "the loader of kubelet 1.37.2", dropInFile},
	{FormStaticPod, "restarts the kube-controller-manager of a machine when kubeadm, given --patches, writes its static pod", "kubeadm 1.37.2", staticPodFile},
	{FormKubeadmPatches, "works at the next kubeadm join or upgrade that is given --patches, which restarts what it changes; give it at every later upgrade again, or the change is lost", "kubeadm 1.37.2", kubeadmPatches},
	{FormKubeadmConfig, "for new clusters; kubeadm init puts the KubeletConfiguration into the ConfigMap kube-system/kubelet-config, which nodes read when they join or upgrade, and not before", "kubeadm 1.37.2 (v1beta4)", kubeadmConfig},
	{FormClusterAPI, "replaces machines, in every group of machines whose object it changes", "Cluster API 1.14.2 (v1beta2)", clusterAPIFiles},
}

// Forms lists the forms there are.
func Forms() []Form {
	var names []Form
	for _, f := range forms {
		names = append(names, f.name)
	}
	return names
}

// Rendered is an intent in one form.
type Rendered struct {
	Form  Form
	Files []File
	// Effect says what applying it does to the machines.
	Effect string
	// Order says when it may be applied.
	Order []string
	// CheckedWith names the version of the code that the form is tested against.
	CheckedWith string
}

// Render writes the intent in one form. The same intent gives the same bytes.
func Render(in Intent, name Form) (Rendered, error) {
	if err := in.Validate().ToAggregate(); err != nil {
		return Rendered{}, err
	}
	i := slices.IndexFunc(forms, func(f form) bool { return f.name == name })
	if i < 0 {
		return Rendered{}, fmt.Errorf("form: %q is not one of %q", name, Forms())
	}
	f := forms[i]
	if err := f.refuse(in); err != nil {
		return Rendered{}, err
	}
	r := Rendered{Form: name, Effect: f.effect, CheckedWith: f.checkedWith}
	for _, file := range f.files(in) {
		order := order(in, file.step)
		for _, step := range order {
			if !slices.Contains(r.Order, step) {
				r.Order = append(r.Order, step)
			}
		}
		file.Data = append([]byte(f.header(in, order)), file.Data...)
		r.Files = append(r.Files, file.File)
	}
	return r, nil
}

// refuse says what a form has nothing to write for.
func (f form) refuse(in Intent) error {
	switch {
	case f.name == FormKubeadmPatches && in.Kubeadm == nil, f.name == FormKubeadmConfig && in.Kubeadm == nil:
		return fmt.Errorf("kubeadm: the form %s needs kubeadm.patchesDirectory", f.name)
	case f.name == FormClusterAPI && in.ClusterAPI == nil:
		return fmt.Errorf("clusterAPI: the form %s needs clusterAPI", f.name)
	case f.name == FormStaticPod && !in.changesPlane():
		return fmt.Errorf("livenessSource: Kubelet with controller: InTree is how a kube-controller-manager starts without any flag; remove the flags and patches of the external mode instead, and where nodewarden-controller runs, stop it first")
	}
	return nil
}

// order is the sequence of KEP-6371 as far as it concerns one step: the control
// plane leaves kubelet mode before the first Lease goes, and returns to it
// after the last one is back. Of two controllers one stops before the other
// begins, for two at once undo each other's taints.
func order(in Intent, s step) []string {
	switch {
	case s == stepPlane:
		return planeOrder(in)
	case s == stepNewCluster && in.changesPlane():
		return newClusterOrder(in)
	case s == stepEither && in.changesPlane():
		both := append([]string{"What it changes is in the patches, those of the form " + string(FormKubeadmPatches) + ": give it one step of them at a time."}, planeOrder(in)...)
		return append(both, kubeletOrder(in, true)...)
	}
	return kubeletOrder(in, s == stepRepeating)
}

// kubeletOrder is the part of the kubelets. repeated says that flags of the
// control plane come with it.
func kubeletOrder(in Intent, repeated bool) []string {
	step := "STEP 1"
	if in.planeFirst() {
		step = "STEP 2"
	}
	switch in.NodeLease {
	case LeaseOff:
		return []string{
			step + ", the kubelets, batch by batch; stop at the first node that flaps between Unknown and Ready.",
			precondition(in),
			"Leases that exist stay behind and go stale; find their readers first (fencing, dashboards, kubectl describe).",
		}
	case LeaseStretched:
		if !in.changesPlane() {
			return in.Stretch.facts(in.LivenessSource)
		}
		return append([]string{step + ", the kubelets, batch by batch.", precondition(in)}, in.Stretch.facts(in.LivenessSource)...)
	case LeaseOn:
	}
	if repeated && in.changesPlane() {
		return []string{
			step + ", the kubelets. PRECONDITION: every kube-controller-manager replica has its flags already (" + planeSign(in) + "); they are repeated here only so that they stay. Leases hurt nobody.",
			leasesFirst(in),
		}
	}
	return []string{step + ", the kubelets. PRECONDITION: none; Leases hurt nobody.", leasesFirst(in)}
}

// planeOrder is the part of the control plane.
func planeOrder(in Intent) []string {
	if !in.planeFirst() {
		return []string{
			"These are the flags of the external mode. Where they are new, every replica gets them, standby ones too, before any kubelet changes. " + detectorFirst,
			"Keep them until every node's Lease is renewed again, then remove them.",
		}
	}
	steps := []string{"STEP 1, the control plane, every replica, standby ones too: " + planeStep(in) + "."}
	if in.LivenessSource == Kubelet {
		return append(steps, "PRECONDITION of kubelet mode: every node's Lease is renewed. Where kubelets run without theirs, leave nodewarden-controller in external mode until that is so.")
	}
	steps = append(steps, detectorFirst)
	if in.Controller == Nodewarden {
		steps = append(steps, "Keep the flag as long as nodewarden-controller runs. To go back, wait until every node's Lease is renewed again, stop nodewarden-controller, and only then remove the flag.")
	}
	return steps
}

const detectorFirst = "PRECONDITION of external mode: a detector writes Ready=Unknown, for silence alone makes no node Unknown any more."

// newClusterOrder is for what kubeadm init does in one go.
func newClusterOrder(in Intent) []string {
	steps := []string{"A NEW CLUSTER, control plane and kubelets at once, for nothing runs yet that could change in the wrong order: " + planeStep(in) + "."}
	if in.NodeLease != LeaseOn {
		steps = append(steps, precondition(in))
	} else if in.LivenessSource == External {
		steps = append(steps, detectorFirst)
	}
	if in.NodeLease == LeaseStretched {
		steps = append(steps, in.Stretch.facts(in.LivenessSource)...)
	}
	return steps
}

// leasesFirst is what has to wait until Leases are back.
func leasesFirst(in Intent) string {
	if in.Controller == Nodewarden {
		return "Only when every node's Lease is renewed may nodewarden-controller be in kubelet mode, or the in-tree controller take over from it."
	}
	return "Only when every node's Lease is renewed again may a kube-controller-manager return to kubelet mode."
}

// precondition is what must be true before a kubelet changes.
func precondition(in Intent) string {
	if in.LivenessSource == Kubelet {
		return "PRECONDITION: no kube-controller-manager replica runs the node-lifecycle-controller (" + planeSign(in) + "), and nodewarden-controller runs with " + in.Stretch.graceFlag() + "."
	}
	return "PRECONDITION: no kube-controller-manager replica is in kubelet mode (" + planeSign(in) + "), and a detector writes Ready=Unknown."
}

// planeStep is the change to the control plane in words.
func planeStep(in Intent) string {
	if in.Controller == InTree {
		return "kube-controller-manager 1.38 with --node-liveness-source=external (flag and gate as in KEP-6371)"
	}
	const ours = "node-lifecycle-controller off in kube-controller-manager, then nodewarden-controller in "
	switch {
	case in.LivenessSource == External:
		return ours + "external mode"
	case in.NodeLease == LeaseStretched:
		return ours + "kubelet mode with " + in.Stretch.graceFlag()
	}
	return ours + "kubelet mode"
}

// planeSign is how one sees the mode of a replica.
func planeSign(in Intent) string {
	if in.Controller == InTree {
		return `each reports node_collector_liveness_source{source="external"} 1`
	}
	return "each runs with --controllers=...,-node-lifecycle-controller"
}

// facts says what a longer lease saves, what it costs and who notices first.
func (s Stretch) facts(source LivenessSource) []string {
	before := float64(s.Nodes) * renewalsPerLease / defaultLeaseSeconds
	after := float64(s.Nodes) * renewalsPerLease / float64(s.LeaseDurationSeconds)
	facts := []string{
		fmt.Sprintf("Saves %.1f of %.1f Lease writes a second (%d nodes, one renewal every %.0f s instead of 10 s).",
			before-after, before, s.Nodes, float64(s.LeaseDurationSeconds)/renewalsPerLease),
		fmt.Sprintf("Costs certainty: a Lease up to %.0f s old says nothing.", s.renewSeconds()),
	}
	return append(facts, s.firstReader(source))
}

// firstReader names the reader of Leases that a long interval breaks first.
func (s Stretch) firstReader(source LivenessSource) string {
	grace := fmt.Sprintf("--node-monitor-grace-period (%d s)", s.graceSeconds())
	switch every := s.renewSeconds(); {
	case source == Kubelet:
		return fmt.Sprintf("Breaks first: %s, which still has room for %.1f renewals. Raise it before you stretch further.", grace, float64(s.graceSeconds())/every)
	case every > 60:
		return "Breaks first: Deckhouse fencing and other readers with a limit of 60 s; they act on healthy nodes. Turn them off first. The controller in external mode ignores Leases."
	case every > 40:
		return "Breaks first: readers with a limit of 40 s, the default leaseDurationSeconds. The controller in external mode ignores Leases."
	}
	return "Breaks first: readers with a limit of their own below " + fmt.Sprintf("%.0f s", s.renewSeconds()) + ". The controller in external mode ignores Leases."
}

// knownOnlyFromKEP: does the intent use what no released version has yet?
func (in Intent) knownOnlyFromKEP() bool {
	return in.NodeLease == LeaseOff || in.LivenessSource == External && in.Controller == InTree
}

// header is the comment that every rendered file begins with.
func (f form) header(in Intent, order []string) string {
	lines := []string{
		"Rendered by nodewarden kubelet render --form " + string(f.name) + ".",
		"Effect: " + f.effect + ".",
	}
	lines = append(lines, order...)
	checked := "Form checked with " + f.checkedWith
	if in.knownOnlyFromKEP() {
		checked += "; the setting itself is that of KEP-6371, and no release had it then"
	}
	lines = append(lines, checked+".")
	return "# " + strings.Join(lines, "\n# ") + "\n"
}
