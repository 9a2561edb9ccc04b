package kubeletcfg_test

import (
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

const validIntent = `apiVersion: config.nodewarden.dev/v1alpha1
kind: KubeletIntent
controlPlaneVersion: v1.38.0
kubeletVersion: v1.38.0
livenessSource: External
controller: InTree
nodeLease: Disabled
kubeadm:
  patchesDirectory: /etc/kubernetes/patches
clusterAPI:
  namespace: clusters
  cluster: prod
  controlPlane: cp
  patchesDirectory: /etc/kubernetes/patches
  workers:
  - machineDeployment: a
    template: a-2
`

func TestAnIntentIsReadStrictly(t *testing.T) {
	if _, err := kubeletcfg.ParseIntent([]byte(validIntent)); err != nil {
		t.Fatalf("a valid one is refused: %v", err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"an unknown key":          {"nodeLease: Disabled", "nodeLease: Disabled\nnodeLeases: x", `nodeLeases: Forbidden: a KubeletIntent has no such field`},
		"a key in the wrong case": {"livenessSource:", "LivenessSource:", `LivenessSource: Forbidden: a KubeletIntent has no such field`},
		"a key that is there twice": {"controller: InTree", "controller: InTree\ncontroller: InTree",
			`"controller" already set`},
		"a second document":                          {"nodeLease: Disabled\n", "nodeLease: Disabled\n---\nnodeLease: Enabled\n", "more than one YAML document"},
		"another version":                            {"v1alpha1", "v1", "must be config.nodewarden.dev/v1alpha1 with kind: KubeletIntent"},
		"off, which YAML takes for false":            {"Disabled", "off", `nodeLease: Invalid value: "bool": something else belongs here`},
		"off in quotes":                              {"Disabled", `"off"`, `nodeLease: Unsupported value: "off": supported values: "Enabled", "Disabled", "Stretched"`},
		"a version that YAML takes for a number":     {"kubeletVersion: v1.38.0", "kubeletVersion: 1.38", `kubeletVersion: Invalid value: "number": something else belongs here`},
		"a list deep inside":                         {"template: a-2", "template: [a-2]", `clusterAPI.workers.template: Invalid value: "array"`},
		"no lease at all":                            {"nodeLease: Disabled\n", "", `nodeLease: Required value: say one of ["Enabled" "Disabled" "Stretched"]`},
		"a lease that is neither":                    {"Disabled", "Gone", `nodeLease: Unsupported value: "Gone"`},
		"a version nobody can read":                  {"kubeletVersion: v1.38.0", "kubeletVersion: newest", `kubeletVersion: Invalid value: "newest"`},
		"a kubelet newer than the control plane":     {"kubeletVersion: v1.38.0", "kubeletVersion: v1.39.0", "newer than the control plane"},
		"leases off before 1.38":                     {"kubeletVersion: v1.38.0", "kubeletVersion: v1.37.2", "use Stretched"},
		"leases off on an alpha of 1.38":             {"kubeletVersion: v1.38.0", "kubeletVersion: v1.38.0-alpha.1", "use Stretched"},
		"the in-tree external mode before 1.38":      {"controlPlaneVersion: v1.38.0", "controlPlaneVersion: v1.37.2", "use Nodewarden"},
		"leases off while the kubelet is the source": {"External", "Kubelet", "needs livenessSource: External"},
		"a relative patch directory":                 {"patchesDirectory: /etc/kubernetes/patches\nclusterAPI", "patchesDirectory: patches\nclusterAPI", "clean absolute path"},
		"an object name that is none":                {"template: a-2", "template: A_2", "clusterAPI.workers[0].template"},
		"a pool that is there twice":                 {"template: a-2", "template: a-2\n  - machineDeployment: a\n    template: a-3", "Duplicate value"},
		"a stretch with nothing to stretch":          {"kubeadm:\n", "stretch: {leaseDurationSeconds: 100, nodes: 3}\nkubeadm:\n", "belongs to nodeLease: Stretched"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(validIntent, c.old, c.new, 1)
			if text == validIntent {
				t.Fatal("the case changes nothing")
			}
			_, err := kubeletcfg.ParseIntent([]byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestEverythingWrongWithAnIntentIsReportedAtOnce(t *testing.T) {
	_, err := kubeletcfg.ParseIntent([]byte("kind: X\nlivenessSource: A\ncontroller: B\nnodeLease: C\nkubeletVersion: D\ncontrolPlaneVersion: E\n"))
	for _, path := range []string{"apiVersion", "livenessSource", "controller", "nodeLease", "kubeletVersion", "controlPlaneVersion"} {
		if err == nil || !strings.Contains(err.Error(), path+": ") {
			t.Errorf("%s is missing in %v", path, err)
		}
	}
}

// B50: timings with which live nodes are taken for dead.
func TestAStretchThatOutrunsTheGracePeriodIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		source         kubeletcfg.LivenessSource
		seconds, grace int32
		want           string
	}{
		"two renewals fit":                              {kubeletcfg.Kubelet, 96, 0, ""},
		"two renewals do not fit":                       {kubeletcfg.Kubelet, 97, 0, "use at most 96"},
		"a longer grace period makes room":              {kubeletcfg.Kubelet, 190, 100, ""},
		"in external mode nobody waits for a Lease":     {kubeletcfg.External, 300, 0, ""},
		"shorter than the default is no stretch":        {kubeletcfg.External, 40, 0, "must be above 40"},
		"an hour is the most":                           {kubeletcfg.External, 3601, 0, "at most 3600"},
		"a grace period below zero is none":             {kubeletcfg.External, 80, -1, "must not be negative"},
		"zero would be the default, and no stretch too": {kubeletcfg.External, 0, 0, "must be above 40"},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := kubeletcfg.ParseIntent([]byte(validIntent))
			if err != nil {
				t.Fatal(err)
			}
			in.LivenessSource, in.NodeLease = c.source, kubeletcfg.LeaseStretched
			in.Stretch = &kubeletcfg.Stretch{LeaseDurationSeconds: c.seconds, NodeMonitorGracePeriodSeconds: c.grace, Nodes: 10}
			err = in.Validate().ToAggregate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestAFormWithoutItsPartOfTheIntentIsRefused(t *testing.T) {
	in, err := kubeletcfg.ParseIntent([]byte(validIntent))
	if err != nil {
		t.Fatal(err)
	}
	in.Kubeadm, in.ClusterAPI = nil, nil
	for form, want := range map[kubeletcfg.Form]string{
		kubeletcfg.FormKubeadmPatches: "needs kubeadm.patchesDirectory",
		kubeletcfg.FormKubeadmConfig:  "needs kubeadm.patchesDirectory",
		kubeletcfg.FormClusterAPI:     "needs clusterAPI",
		"helm":                        "is not one of",
	} {
		if _, err := kubeletcfg.Render(in, form); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", form, err, want)
		}
	}
	in.LivenessSource, in.NodeLease = kubeletcfg.Kubelet, kubeletcfg.LeaseOn
	if _, err := kubeletcfg.Render(in, kubeletcfg.FormStaticPod); err == nil {
		t.Error("flags were rendered for a control plane that needs none")
	}
}
