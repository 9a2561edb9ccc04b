package kubeletcfg_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

// B47: patches whose names are off by a letter.
func TestEveryPatchThatKubeadmDoesNotReadIsReported(t *testing.T) {
	patch := []byte("enableNodeLease: false\n")
	var files []kubeletcfg.File
	for _, name := range []string{
		"kubeletconfiguration0+merge.yaml", "kubeletconfiguration.yaml", "kubeletconfiguration1+strategic.json",
		"kubeletconfig+merge.yaml", "kubelet-configuration.yaml", "kubeletconfiguration+patch.yaml",
		"kubeletconfiguration0+merge.yml", "etcd.json", "sub/kubeletconfiguration9.yaml", "README.md", ".yaml",
	} {
		files = append(files, kubeletcfg.File{Name: name, Data: patch})
	}
	files = append(files, kubeletcfg.File{Name: "kube-apiserver.yaml"})
	var got []string
	for _, f := range kubeletcfg.LintKubeadmPatches("p", files) {
		got = append(got, f.File+": "+string(f.Outcome))
	}
	want := []string{
		"p/kubeletconfiguration+patch.yaml: would not start",
		"p/.yaml: ignored with a warning", "p/README.md: ignored with a warning",
		"p/kube-apiserver.yaml: ignored with a warning",
		"p/kubelet-configuration.yaml: ignored with a warning", "p/kubeletconfig+merge.yaml: ignored with a warning",
		"p/kubeletconfiguration0+merge.yml: ignored with a warning",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const halfConfigured = `apiVersion: v1
kind: Namespace
metadata: {name: x}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp}
spec:
  kubeadmConfigSpec:
    files:
    - path: /etc/kubernetes/patches/kubeletconfiguration0+merge.yaml
      content: "enableNodeLease: false"
    initConfiguration:
      patches: {directory: /etc/kubernetes/patches}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: workers}
spec:
  template:
    spec:
      files:
      - path: /etc/kubernetes/patches/kubeletconfiguration0+merge.yaml
        content: "enableNodeLease: false"
      - path: /etc/kubernetes/patches/kubeletconfig+merge.yaml
        content: "enableNodeLease: false"
      initConfiguration:
        patches: {directory: /etc/kubernetes/patches}
      joinConfiguration:
        patches: {directory: /etc/kubernetes/patch}
`

// B49: patches on the machine that kubeadm is not told of when it joins.
func TestAHalfConfiguredClusterAPIObjectIsReported(t *testing.T) {
	lint := func(text string) []string {
		found, err := kubeletcfg.LintClusterAPI(kubeletcfg.File{Name: "m.yaml", Data: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.String())
		}
		return got
	}
	want := []string{
		"m.yaml:10: ignored silently: spec.kubeadmConfigSpec.files: KubeadmControlPlane cp: /etc/kubernetes/patches/kubeletconfiguration0+merge.yaml is not read: set spec.kubeadmConfigSpec.joinConfiguration.patches.directory to /etc/kubernetes/patches",
		"m.yaml:22: ignored silently: spec.template.spec.files: KubeadmConfigTemplate workers: /etc/kubernetes/patches/kubeletconfiguration0+merge.yaml is not read: spec.template.spec.joinConfiguration.patches.directory is /etc/kubernetes/patch",
	}
	if got := lint(halfConfigured); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	mended := strings.ReplaceAll(halfConfigured, "directory: /etc/kubernetes/patch}", "directory: /etc/kubernetes/patches}")
	if got := strings.Join(lint(mended), "\n"); !strings.Contains(got, "kubeletconfig+merge.yaml: kubeadm skips it") {
		t.Errorf("a misnamed file in the right directory passes:\n%s", got)
	}
}

func TestAManifestWithoutClusterAPIIsNoAnswer(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                   "",
		"only a comment":            "# nothing\n",
		"a kubelet's own file":      config("maxPods: 5"),
		"a ConfigMap":               "apiVersion: v1\nkind: ConfigMap\n",
		"a List, never looked into": "apiVersion: v1\nkind: List\nitems: [{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			found, err := kubeletcfg.LintClusterAPI(kubeletcfg.File{Name: "m.yaml", Data: []byte(text)})
			if err == nil || !strings.Contains(err.Error(), "m.yaml: holds no object of Cluster API: want documents such as a KubeadmControlPlane") {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
	if _, err := kubeletcfg.LintClusterAPI(kubeletcfg.File{Name: "m.yaml", Data: []byte("apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\n")}); err != nil {
		t.Errorf("a MachineDeployment carries nothing and is in its place: %v", err)
	}
}
