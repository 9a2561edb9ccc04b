package kubeletcfg_test

import (
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

// wanting is a valid intent of one combination.
func wanting(t *testing.T, source kubeletcfg.LivenessSource, controller kubeletcfg.Controller, lease kubeletcfg.NodeLease) kubeletcfg.Intent {
	t.Helper()
	in, err := kubeletcfg.ParseIntent([]byte(validIntent))
	if err != nil {
		t.Fatal(err)
	}
	in.LivenessSource, in.Controller, in.NodeLease = source, controller, lease
	if lease == kubeletcfg.LeaseStretched {
		in.Stretch = &kubeletcfg.Stretch{LeaseDurationSeconds: 160, NodeMonitorGracePeriodSeconds: 100, Nodes: 10}
	}
	return in
}

// textOf is everything that an intent comes to in one form.
func textOf(t *testing.T, in kubeletcfg.Intent, form kubeletcfg.Form) string {
	t.Helper()
	r, err := kubeletcfg.Render(in, form)
	if err != nil {
		t.Fatalf("%s: %v", form, err)
	}
	var text strings.Builder
	for _, f := range r.Files {
		text.Write(f.Data)
	}
	return text.String()
}

var ofControlPlane = []kubeletcfg.Form{kubeletcfg.FormStaticPod, kubeletcfg.FormKubeadmPatches, kubeletcfg.FormKubeadmConfig, kubeletcfg.FormClusterAPI}

func TestWhereverOurControllerActsTheInTreeOneIsTurnedOff(t *testing.T) {
	for _, source := range []kubeletcfg.LivenessSource{kubeletcfg.Kubelet, kubeletcfg.External} {
		for _, lease := range []kubeletcfg.NodeLease{kubeletcfg.LeaseOn, kubeletcfg.LeaseStretched} {
			for _, form := range ofControlPlane {
				t.Run(strings.Join([]string{string(source), string(lease), string(form)}, " "), func(t *testing.T) {
					if text := textOf(t, wanting(t, source, kubeletcfg.Nodewarden, lease), form); !strings.Contains(text, `,-node-lifecycle-controller"`) {
						t.Errorf("does not turn it off:\n%s", text)
					}
				})
			}
		}
	}
}

func TestEveryFormSaysInWhichOrderControllersAndKubeletsChange(t *testing.T) {
	const off = "STEP 1, the control plane, every replica, standby ones too: node-lifecycle-controller off in kube-controller-manager, then nodewarden-controller in "
	const detector = "PRECONDITION of external mode: a detector writes Ready=Unknown"
	for name, c := range map[string]struct {
		source     kubeletcfg.LivenessSource
		controller kubeletcfg.Controller
		lease      kubeletcfg.NodeLease
		form       kubeletcfg.Form
		want       []string
	}{
		"ours times Leases": {kubeletcfg.Kubelet, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormKubeadmPatches,
			[]string{off + "kubelet mode.", "PRECONDITION of kubelet mode: every node's Lease is renewed.", "STEP 2, the kubelets. PRECONDITION: every kube-controller-manager replica has its flags already"}},
		"and their kubelets alone": {kubeletcfg.Kubelet, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormDropIn,
			[]string{"STEP 2, the kubelets. PRECONDITION: none"}},
		"ours times Leases that are rare": {kubeletcfg.Kubelet, kubeletcfg.Nodewarden, kubeletcfg.LeaseStretched, kubeletcfg.FormClusterAPI,
			[]string{off + "kubelet mode with --node-monitor-grace-period=100s.", "STEP 2, the kubelets, batch by batch.", "PRECONDITION: no kube-controller-manager replica runs the node-lifecycle-controller", "nodewarden-controller runs with --node-monitor-grace-period=100s"}},
		"ours listens to a detector": {kubeletcfg.External, kubeletcfg.Nodewarden, kubeletcfg.LeaseStretched, kubeletcfg.FormKubeadmPatches,
			[]string{off + "external mode.", "STEP 2, the kubelets, batch by batch.", "a detector writes Ready=Unknown"}},
		"ours listens, and Leases stay": {kubeletcfg.External, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormStaticPod,
			[]string{off + "external mode.", detector, "Keep the flag as long as nodewarden-controller runs", "stop nodewarden-controller, and only then remove the flag"}},
		"the same by patches": {kubeletcfg.External, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormKubeadmPatches,
			[]string{off + "external mode.", detector, "STEP 2, the kubelets. PRECONDITION: every kube-controller-manager replica has its flags already"}},
		"the same by Cluster API": {kubeletcfg.External, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormClusterAPI,
			[]string{off + "external mode.", detector, "STEP 2, the kubelets. PRECONDITION: every kube-controller-manager replica has its flags already"}},
		"the same in a new cluster": {kubeletcfg.External, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormKubeadmConfig,
			[]string{"A NEW CLUSTER, control plane and kubelets at once", "node-lifecycle-controller off in kube-controller-manager, then nodewarden-controller in external mode.", detector}},
		"and their kubelets": {kubeletcfg.External, kubeletcfg.Nodewarden, kubeletcfg.LeaseOn, kubeletcfg.FormDropIn,
			[]string{"STEP 2, the kubelets. PRECONDITION: none", "may nodewarden-controller be in kubelet mode, or the in-tree controller take over from it"}},
		"Leases come back under the in-tree one, by patches": {kubeletcfg.External, kubeletcfg.InTree, kubeletcfg.LeaseOn, kubeletcfg.FormKubeadmPatches,
			[]string{"STEP 1, the kubelets. PRECONDITION: every kube-controller-manager replica has its flags already"}},
		"Leases come back under the in-tree one": {kubeletcfg.External, kubeletcfg.InTree, kubeletcfg.LeaseOn, kubeletcfg.FormStaticPod,
			[]string{"Keep them until every node's Lease is renewed again, then remove them."}},
	} {
		t.Run(name, func(t *testing.T) {
			text := textOf(t, wanting(t, c.source, c.controller, c.lease), c.form)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("does not say %q:\n%s", want, text)
				}
			}
		})
	}
}

func TestTurningTheInTreeControllerOffIsAStepOfItsOwn(t *testing.T) {
	for _, source := range []kubeletcfg.LivenessSource{kubeletcfg.Kubelet, kubeletcfg.External} {
		for _, lease := range []kubeletcfg.NodeLease{kubeletcfg.LeaseOn, kubeletcfg.LeaseStretched} {
			for _, form := range ofControlPlane {
				t.Run(strings.Join([]string{string(source), string(lease), string(form)}, " "), func(t *testing.T) {
					r, err := kubeletcfg.Render(wanting(t, source, kubeletcfg.Nodewarden, lease), form)
					if err != nil {
						t.Fatal(err)
					}
					first := string(r.Files[0].Data)
					if !strings.Contains(first, "# STEP 1, the control plane") && !strings.Contains(first, "# A NEW CLUSTER") || strings.Contains(first, "STEP 2") {
						t.Errorf("%s is the first to apply, and not headed as the control plane's part:\n%s", r.Files[0].Name, first)
					}
					for _, f := range r.Files {
						if text := string(f.Data); strings.Contains(text, ",-node-lifecycle-controller\"") && strings.Contains(text, "PRECONDITION: none") {
							t.Errorf("%s turns it off and says that nothing has to be true before:\n%s", f.Name, text)
						}
					}
				})
			}
		}
	}
}

func TestTheFlagsOfAnInTreeControllerThatNeedsNoneAreRefused(t *testing.T) {
	_, err := kubeletcfg.Render(wanting(t, kubeletcfg.Kubelet, kubeletcfg.InTree, kubeletcfg.LeaseOn), kubeletcfg.FormStaticPod)
	if err == nil {
		t.Fatal("something was rendered")
	}
	for _, want := range []string{"livenessSource: Kubelet with controller: InTree", "where nodewarden-controller runs, stop it first"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
}
