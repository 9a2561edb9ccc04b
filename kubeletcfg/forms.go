package kubeletcfg

import (
	"fmt"
	"path"
	"strings"
)

const kubeletHead = "apiVersion: " + kubeletAPIVersion + "\nkind: " + kubeletKind + "\n"

// kubeletLines is the change to a KubeletConfiguration, without its head.
func kubeletLines(in Intent) string {
	switch in.NodeLease {
	case LeaseOff:
		return "featureGates:\n  " + NodeLeaseGate + ": true\n" + nodeLeaseField + ": false\n"
	case LeaseStretched:
		return fmt.Sprintf("%s: %d\n", leaseDurationField, in.Stretch.LeaseDurationSeconds)
	case LeaseOn:
	}
	lines := fmt.Sprintf("%s: %d\n", leaseDurationField, defaultLeaseSeconds)
	if v, err := ParseVersion(in.KubeletVersion); err == nil && v.knowsNodeLease() {
		lines = nodeLeaseField + ": true\n" + lines
	}
	return lines
}

// The folders that a form of several steps is split into. To change both at
// once would leave a moment in which a replica in kubelet mode leads while the
// first Lease is gone already.
const (
	planeFolder   = "1-control-plane/"
	kubeletFolder = "2-kubelets/"
)

func fileOf(s step, name, text string) stepFile {
	return stepFile{File{Name: name, Data: []byte(text)}, s}
}

// changesPlane: does this intent need flags of the kube-controller-manager?
func (in Intent) changesPlane() bool {
	return in.LivenessSource == External || in.Controller == Nodewarden
}

// planeFirst: does this intent change the control plane before the kubelets?
// Where Leases come back under the in-tree external mode, the control plane has
// its flags. Where ours acts they may be new, and its step is there in any case:
// it does nothing where they are not.
func (in Intent) planeFirst() bool {
	return in.changesPlane() && (in.Controller == Nodewarden || in.NodeLease != LeaseOn)
}

// kubeletsIn is the folder of the kubelets' step, which may be the only one.
func (in Intent) kubeletsIn() string {
	if in.planeFirst() {
		return kubeletFolder
	}
	return "1-kubelets/"
}

func configFile(in Intent) []stepFile {
	return []stepFile{fileOf(stepKubelets, "kubelet-config.yaml", kubeletHead+kubeletLines(in))}
}

func dropInFile(in Intent) []stepFile {
	return []stepFile{fileOf(stepKubelets, "90-node-lease.conf", kubeletHead+kubeletLines(in))}
}

// arg is one flag of the kube-controller-manager.
type arg struct{ name, value string }

// planeArgs is the change to the flags of the kube-controller-manager. added
// says that they are put behind those that are there already: --controllers is
// then summed up, while a kubeadm extraArg replaces kubeadm's own value.
func planeArgs(in Intent, added bool) []arg {
	switch {
	case !in.changesPlane():
		return nil
	case in.Controller == InTree:
		return []arg{{"feature-gates", NodeLeaseGate + "=true"}, {"node-liveness-source", "external"}}
	case added:
		return []arg{{"controllers", "*,-node-lifecycle-controller"}}
	}
	return []arg{{"controllers", "*,bootstrapsigner,tokencleaner,-node-lifecycle-controller"}}
}

func staticPodFile(in Intent) []stepFile {
	return []stepFile{fileOf(stepPlane, planePatchName, planePatch(in))}
}

const (
	planePatchName   = "kube-controller-manager0+json.yaml"
	kubeletPatchName = "kubeletconfiguration0+merge.yaml"
)

// planePatch is a JSON patch: a merge would replace the whole command line.
func planePatch(in Intent) string {
	var b strings.Builder
	for _, a := range planeArgs(in, true) {
		fmt.Fprintf(&b, "- op: add\n  path: /spec/containers/0/command/-\n  value: %q\n", "--"+a.name+"="+a.value)
	}
	return b.String()
}

func kubeadmPatches(in Intent) []stepFile {
	var files []stepFile
	if in.planeFirst() {
		files = append(files, fileOf(stepPlane, planeFolder+planePatchName, planePatch(in)))
	}
	if in.changesPlane() {
		// kubeadm forgets patches that it is not given again.
		files = append(files, fileOf(stepRepeating, in.kubeletsIn()+planePatchName, planePatch(in)))
	}
	return append(files, fileOf(stepRepeating, in.kubeletsIn()+kubeletPatchName, kubeletLines(in)))
}

func kubeadmConfig(in Intent) []stepFile {
	const version = "apiVersion: kubeadm.k8s.io/v1beta4\n"
	patches := "  patches:\n    directory: " + in.Kubeadm.PatchesDirectory + "\n"
	start := version + "kind: ClusterConfiguration\n" + extraArgs(in, "") + "---\n" + kubeletHead + kubeletLines(in)
	upgrade := version + "kind: UpgradeConfiguration\napply:\n" + patches + "node:\n" + patches
	return []stepFile{
		fileOf(stepNewCluster, "kubeadm-init.yaml", start),
		fileOf(stepEither, "kubeadm-upgrade.yaml", upgrade),
	}
}

// extraArgs is a controllerManager stanza, empty where no flag changes.
func extraArgs(in Intent, indent string) string {
	args := planeArgs(in, false)
	if len(args) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%[1]scontrollerManager:\n%[1]s  extraArgs:\n", indent)
	for _, a := range args {
		fmt.Fprintf(&b, "%[1]s  - name: %[2]s\n%[1]s    value: %[3]q\n", indent, a.name, a.value)
	}
	return b.String()
}

func clusterAPIFiles(in Intent) []stepFile {
	const plane = "kubeadm-control-plane.yaml"
	var files []stepFile
	if in.planeFirst() {
		files = append(files, fileOf(stepPlane, planeFolder+plane, controlPlane(in, false)))
	}
	dir := in.kubeletsIn()
	files = append(files, fileOf(stepRepeating, dir+plane, controlPlane(in, true)))
	for _, w := range in.ClusterAPI.Workers {
		files = append(files,
			fileOf(stepRepeating, dir+"template-"+w.Template+".yaml", configTemplate(in, w)),
			fileOf(stepRepeating, dir+"machine-deployment-"+w.MachineDeployment+".yaml", machineDeployment(in, w)))
	}
	return files
}

// takeOver warns of the one thing a merge gets wrong.
const takeOver = `# Take these lines over into your own object. Lists such as files are replaced,
# not merged, by kubectl apply and kustomize: keep the entries you have.
`

// controlPlane changes flags first, and the kubelets of the same machines only
// in the step after.
func controlPlane(in Intent, kubelets bool) string {
	c := in.ClusterAPI
	text := takeOver + object("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", c.Namespace, c.ControlPlane) +
		"spec:\n  kubeadmConfigSpec:\n"
	if args := extraArgs(in, "      "); args != "" {
		text += "    clusterConfiguration:\n" + args
	}
	if kubelets {
		text += machinePatches(in, "    ")
	}
	return text
}

func configTemplate(in Intent, w Worker) string {
	return "# A new template, because templates must not be changed: take over the rest\n# of the one that " +
		w.MachineDeployment + " uses now, then apply the MachineDeployment.\n" +
		takeOver + object("bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate", in.ClusterAPI.Namespace, w.Template) +
		"spec:\n  template:\n    spec:\n" + machinePatches(in, "      ")
}

func machineDeployment(in Intent, w Worker) string {
	return "# Applying this replaces every machine of " + w.MachineDeployment + ". One pool at a time.\n" +
		object("cluster.x-k8s.io/v1beta2", "MachineDeployment", in.ClusterAPI.Namespace, w.MachineDeployment) +
		"spec:\n  clusterName: " + in.ClusterAPI.Cluster + "\n  template:\n    spec:\n      bootstrap:\n        configRef:\n" +
		"          apiGroup: bootstrap.cluster.x-k8s.io\n          kind: KubeadmConfigTemplate\n          name: " + w.Template + "\n"
}

func object(apiVersion, kind, namespace, name string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\n  namespace: %s\n", apiVersion, kind, name, namespace)
}

// machinePatches puts the patch file on the machine, and has kubeadm read it
// both when it initializes the first machine and when it joins the others.
func machinePatches(in Intent, indent string) string {
	dir := in.ClusterAPI.PatchesDirectory
	lines := []string{
		"files:",
		"- path: " + path.Join(dir, kubeletPatchName),
		"  owner: root:root",
		`  permissions: "0644"`,
		"  content: |",
	}
	for line := range strings.Lines(kubeletLines(in)) {
		lines = append(lines, "    "+strings.TrimRight(line, "\n"))
	}
	for _, phase := range []string{"initConfiguration", "joinConfiguration"} {
		lines = append(lines, phase+":", "  patches:", "    directory: "+dir)
	}
	return indent + strings.Join(lines, "\n"+indent) + "\n"
}
