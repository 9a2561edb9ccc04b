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
		return fmt.Sprintf("nodeLeaseDurationSeconds: %d\n", in.Stretch.LeaseDurationSeconds)
	}
	lines := fmt.Sprintf("nodeLeaseDurationSeconds: %d\n", defaultLeaseSeconds)
	if v, err := ParseVersion(in.KubeletVersion); err == nil && v.knowsNodeLease() {
		lines = nodeLeaseField + ": true\n" + lines
	}
	return lines
}

func configFile(in Intent) []File {
	return []File{{Name: "kubelet-config.yaml", Data: []byte(kubeletHead + kubeletLines(in))}}
}

func dropInFile(in Intent) []File {
	return []File{{Name: "90-node-lease.conf", Data: []byte(kubeletHead + kubeletLines(in))}}
}

// arg is one flag of the kube-controller-manager.
type arg struct{ name, value string }

// planeArgs is the change to the flags of the kube-controller-manager. added
// says that they are put behind those that are there already: --controllers is
// then summed up, while a kubeadm extraArg replaces kubeadm's own value.
func planeArgs(in Intent, added bool) []arg {
	switch {
	case in.LivenessSource == Kubelet:
		return nil
	case in.Controller == InTree:
		return []arg{{"feature-gates", NodeLeaseGate + "=true"}, {"node-liveness-source", "external"}}
	case added:
		return []arg{{"controllers", "*,-node-lifecycle-controller"}}
	}
	return []arg{{"controllers", "*,bootstrapsigner,tokencleaner,-node-lifecycle-controller"}}
}

func staticPodFile(in Intent) []File {
	var b strings.Builder
	for _, a := range planeArgs(in, true) {
		fmt.Fprintf(&b, "- op: add\n  path: /spec/containers/0/command/-\n  value: %q\n", "--"+a.name+"="+a.value)
	}
	return []File{{Name: "kube-controller-manager0+json.yaml", Data: []byte(b.String())}}
}

func kubeadmPatches(in Intent) []File {
	files := []File{{Name: kubeletPatchName, Data: []byte(kubeletLines(in))}}
	if in.LivenessSource == External {
		files = append(files, staticPodFile(in)...)
	}
	return files
}

const kubeletPatchName = "kubeletconfiguration0+merge.yaml"

func kubeadmConfig(in Intent) []File {
	const version = "apiVersion: kubeadm.k8s.io/v1beta4\n"
	patches := "  patches:\n    directory: " + in.Kubeadm.PatchesDirectory + "\n"
	docs := []string{
		version + "kind: ClusterConfiguration\n" + extraArgs(in, ""),
		kubeletHead + kubeletLines(in),
	}
	upgrade := version + "kind: UpgradeConfiguration\napply:\n" + patches + "node:\n" + patches
	return []File{
		{Name: "kubeadm-init.yaml", Data: []byte(strings.Join(docs, "---\n"))},
		{Name: "kubeadm-upgrade.yaml", Data: []byte(upgrade)},
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

func clusterAPIFiles(in Intent) []File {
	files := []File{{Name: "kubeadm-control-plane.yaml", Data: []byte(controlPlane(in))}}
	for _, w := range in.ClusterAPI.Workers {
		files = append(files,
			File{Name: "template-" + w.Template + ".yaml", Data: []byte(configTemplate(in, w))},
			File{Name: "machine-deployment-" + w.MachineDeployment + ".yaml", Data: []byte(machineDeployment(in, w))})
	}
	return files
}

// takeOver warns of the one thing a merge gets wrong.
const takeOver = `# Take these lines over into your own object. Lists such as files are replaced,
# not merged, by kubectl apply and kustomize: keep the entries you have.
`

func controlPlane(in Intent) string {
	c := in.ClusterAPI
	text := takeOver + object("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", c.Namespace, c.ControlPlane) +
		"spec:\n  kubeadmConfigSpec:\n"
	if args := extraArgs(in, "      "); args != "" {
		text += "    clusterConfiguration:\n" + args
	}
	return text + machinePatches(in, "    ")
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
