package kubeletcfg_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

// intents reads every intent file, by name.
func intents(t *testing.T) map[string]kubeletcfg.Intent {
	t.Helper()
	names, err := filepath.Glob("intents/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no intents: %v", err)
	}
	all := map[string]kubeletcfg.Intent{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		intent, err := kubeletcfg.ParseIntent(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".yaml")] = intent
	}
	return all
}

// rendered renders an intent, or says that it has nothing in this form.
func rendered(t *testing.T, in kubeletcfg.Intent, form kubeletcfg.Form) ([]kubeletcfg.File, bool) {
	t.Helper()
	r, err := kubeletcfg.Render(in, form)
	if err != nil {
		t.Logf("%s: %v", form, err)
		return nil, false
	}
	if len(r.Files) == 0 || r.Effect == "" || len(r.Order) == 0 || r.CheckedWith == "" {
		t.Errorf("%s: files %d, effect %q, order %q, checked with %q", form, len(r.Files), r.Effect, r.Order, r.CheckedWith)
	}
	return r.Files, true
}

// nothingIn are the forms that an intent has nothing in.
var nothingIn = map[string][]kubeletcfg.Form{
	"stretched-kubelet-mode": {kubeletcfg.FormStaticPod, kubeletcfg.FormClusterAPI},
}

func TestRenderedFilesAreTheRecordedOnes(t *testing.T) {
	var all []string
	for name, intent := range intents(t) {
		for _, form := range kubeletcfg.Forms() {
			files, ok := rendered(t, intent, form)
			if ok == slices.Contains(nothingIn[name], form) {
				t.Errorf("%s, %s: rendered %t", name, form, ok)
			}
			for _, f := range files {
				file := filepath.Join("golden", name, string(form), f.Name)
				golden(t, file, f.Data)
				all = append(all, file)
			}
		}
	}
	for _, file := range filesBelow(t, "golden") {
		if !slices.Contains(all, file) {
			t.Errorf("%s is recorded and no longer rendered: delete it", file)
		}
	}
}

// filesBelow lists the files of a folder and its folders.
func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryKubeletPartRepeatsThePrecondition(t *testing.T) {
	intent := intents(t)["lease-off"]
	for _, form := range kubeletcfg.Forms() {
		files, ok := rendered(t, intent, form)
		if !ok {
			t.Errorf("%s: not rendered", form)
		}
		for _, f := range files {
			if form == kubeletcfg.FormStaticPod || strings.HasPrefix(f.Name, "1-control-plane/") {
				continue // the control plane is the precondition
			}
			if !strings.Contains(string(f.Data), "PRECONDITION: no kube-controller-manager replica is in kubelet mode") {
				t.Errorf("%s/%s does not say what must be true before:\n%s", form, f.Name, f.Data)
			}
		}
	}
}

// kubeletReport lints a rendered KubeletConfiguration as the intent's kubelet.
func kubeletReport(t *testing.T, in kubeletcfg.Intent, main *kubeletcfg.File, dropIns ...kubeletcfg.File) kubeletcfg.Report {
	t.Helper()
	v, err := kubeletcfg.ParseVersion(in.KubeletVersion)
	if err != nil {
		t.Fatal(err)
	}
	return kubeletcfg.Lint(kubeletcfg.Input{Main: main, MainDir: "/", Dir: dropIns, DirName: "conf.d", Version: v})
}

// checkKubelet: does the configuration do what the intent says, without a finding?
func checkKubelet(t *testing.T, in kubeletcfg.Intent, r kubeletcfg.Report) {
	t.Helper()
	seconds := int32(40)
	if in.Stretch != nil {
		seconds = in.Stretch.LeaseDurationSeconds
	}
	if !r.Clean() || r.Lease.Enabled != (in.NodeLease != kubeletcfg.LeaseOff) || r.Config.NodeLeaseDurationSeconds != seconds {
		t.Errorf("not what the intent says:\n%s", r)
	}
}

func TestRenderedConfigurationsAndDropInsPassLint(t *testing.T) {
	minimal := readEntry(t, "corpus/minimal.txtar").main
	for name, intent := range intents(t) {
		t.Run(name, func(t *testing.T) {
			files, _ := rendered(t, intent, kubeletcfg.FormConfig)
			checkKubelet(t, intent, kubeletReport(t, intent, &files[0]))
			files, _ = rendered(t, intent, kubeletcfg.FormDropIn)
			checkKubelet(t, intent, kubeletReport(t, intent, minimal, files...))
		})
	}
}

func TestTheRealKubeletTakesTheStretchForm(t *testing.T) {
	for _, name := range []string{"stretched", "stretched-kubelet-mode"} {
		intent := intents(t)[name]
		main, _ := rendered(t, intent, kubeletcfg.FormConfig)
		dropIn, _ := rendered(t, intent, kubeletcfg.FormDropIn)
		e := entry{main: &main[0], dir: dropIn, hasDir: true}
		r := ask[kubeletResult](t, loaderProgram, []kubeletCase{e.write(t, t.TempDir())}, "kubelet")[0]
		if !r.Starts || r.Warned || len(r.Skipped) > 0 || r.Config["nodeLeaseDurationSeconds"] != float64(intent.Stretch.LeaseDurationSeconds) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// kubeadmCase and kubeadmResult are the language of loader/kubeadm.go.
type kubeadmCase struct {
	Document string `json:"document"`
	Dir      string `json:"dir"`
	Target   string `json:"target"`
	Data     string `json:"data"`
}

type kubeadmResult struct {
	Error   string          `json:"error"`
	Kind    string          `json:"kind"`
	Patched json.RawMessage `json:"patched"`
	Log     string          `json:"log"`
}

// writeAll puts rendered files on disk.
func writeAll(t *testing.T, files []kubeletcfg.File) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// documentsOf splits a YAML file.
func documentsOf(f kubeletcfg.File) []string {
	return strings.Split(string(f.Data), "\n---\n")
}

func TestKubeadmTakesItsConfiguration(t *testing.T) {
	for name, intent := range intents(t) {
		t.Run(name, func(t *testing.T) {
			files, ok := rendered(t, intent, kubeletcfg.FormKubeadmConfig)
			if !ok {
				t.Fatal("not rendered")
			}
			var cases []kubeadmCase
			for _, f := range files {
				for _, doc := range documentsOf(f) {
					if strings.Contains(doc, "kind: KubeletConfiguration") {
						checkKubelet(t, intent, kubeletReport(t, intent, &kubeletcfg.File{Name: f.Name, Data: []byte(doc)}))
						continue
					}
					cases = append(cases, kubeadmCase{Document: doc})
				}
			}
			var kinds []string
			for i, r := range ask[kubeadmResult](t, loaderProgram, cases, "kubeadm") {
				if r.Error != "" {
					t.Errorf("kubeadm refuses it: %s\n%s", r.Error, cases[i].Document)
				}
				kinds = append(kinds, r.Kind)
			}
			if want := []string{"ClusterConfiguration", "UpgradeConfiguration"}; !slices.Equal(kinds, want) {
				t.Errorf("kinds %q, want %q", kinds, want)
			}
		})
	}
}

// planePod is a static pod as kubeadm writes it, as far as patches care.
const planePod = `apiVersion: v1
kind: Pod
metadata: {name: kube-controller-manager, namespace: kube-system}
spec:
  containers:
  - name: kube-controller-manager
    image: kube-controller-manager:v1.37.2
    command: [kube-controller-manager, --bind-address=127.0.0.1, "--controllers=*,bootstrapsigner,tokencleaner"]
`

func TestKubeadmAppliesItsPatches(t *testing.T) {
	for name, intent := range intents(t) {
		t.Run(name, func(t *testing.T) {
			files, _ := rendered(t, intent, kubeletcfg.FormKubeadmPatches)
			last := filepath.Dir(files[len(files)-1].Name)
			dir := filepath.Join(writeAll(t, files), last)
			if found := kubeletcfg.LintKubeadmPatches(dir, files); len(found) > 0 {
				t.Errorf("lint does not like them: %v", found)
			}
			results := ask[kubeadmResult](t, loaderProgram, []kubeadmCase{
				{Dir: dir, Target: "kubeletconfiguration", Data: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 50\n"},
				{Dir: dir, Target: "kube-controller-manager", Data: planePod},
			}, "kubeadm")
			for _, r := range results {
				if r.Error != "" || strings.Contains(r.Log, "Ignor") {
					t.Fatalf("%s\n%s", r.Error, r.Log)
				}
			}
			patched := kubeletReport(t, intent, &kubeletcfg.File{Name: "config.yaml", Data: results[0].Patched})
			checkKubelet(t, intent, patched)
			if patched.Config.MaxPods != 50 {
				t.Errorf("the patch took maxPods away:\n%s", patched)
			}
			checkPlane(t, intent, commandOf(t, results[1].Patched))
		})
	}
}

func commandOf(t *testing.T, pod []byte) []string {
	t.Helper()
	var p struct {
		Spec struct{ Containers []struct{ Command []string } }
	}
	if err := json.Unmarshal(pod, &p); err != nil {
		t.Fatal(err)
	}
	return p.Spec.Containers[0].Command[1:]
}

type planeResult struct {
	Error   string          `json:"error"`
	Enabled map[string]bool `json:"enabled"`
}

// checkPlane: is the in-tree controller off, and is nothing else?
func checkPlane(t *testing.T, in kubeletcfg.Intent, args []string) {
	t.Helper()
	if in.LivenessSource == kubeletcfg.External && in.Controller == kubeletcfg.InTree {
		// No 1.37.2 knows these flags; their names are the KEP's.
		for _, want := range []string{"--feature-gates=ExternalNodeLivenessDetection=true", "--node-liveness-source=external"} {
			if !slices.Contains(args, want) {
				t.Errorf("%q is missing in %q", want, args)
			}
		}
		return
	}
	before := []string{"--controllers=*,bootstrapsigner,tokencleaner"}
	r := ask[planeResult](t, planeProgram, [][]string{before, args})
	for name, was := range r[0].Enabled {
		want := was && (name != "node-lifecycle-controller" || in.Controller == kubeletcfg.InTree)
		if r[1].Enabled[name] != want {
			t.Errorf("%s: runs %t, want %t, with %q (%s)", name, r[1].Enabled[name], want, args, r[1].Error)
		}
	}
}

func TestNoStepChangesControlPlaneAndKubeletsAtOnce(t *testing.T) {
	for name, intent := range intents(t) {
		for _, form := range []kubeletcfg.Form{kubeletcfg.FormKubeadmPatches, kubeletcfg.FormClusterAPI} {
			files, _ := rendered(t, intent, form)
			for _, f := range files {
				kubelets := strings.Contains(string(f.Data), "enableNodeLease") || strings.Contains(string(f.Data), "nodeLeaseDurationSeconds")
				if kubelets && strings.HasPrefix(f.Name, "1-control-plane/") {
					t.Errorf("%s, %s: %s changes kubelets in the step before theirs", name, form, f.Name)
				}
			}
		}
	}
}

func TestTheExtraArgOfKubeadmKeepsWhatKubeadmTurnsOn(t *testing.T) {
	intent := intents(t)["stretched"]
	files, _ := rendered(t, intent, kubeletcfg.FormKubeadmConfig)
	_, value, found := strings.Cut(string(files[0].Data), "- name: controllers\n    value: \"")
	if !found {
		t.Fatalf("no controllers in\n%s", files[0].Data)
	}
	value, _, _ = strings.Cut(value, `"`)
	checkPlane(t, intent, []string{"--controllers=" + value})
}

func TestRealKubeadmReadsThePatchesThatLintSaysItReads(t *testing.T) {
	for name, data := range map[string]string{
		"kubeletconfiguration0+merge.yaml": "maxPods: 7\n", "kubeletconfiguration.json": `{"maxPods": 7}`,
		"kubeletconfig+merge.yaml": "maxPods: 7\n", "kubeletconfiguration+patch.yaml": "maxPods: 7\n",
		"kubeletconfiguration0+merge.yml": "maxPods: 7\n", "sub/kubeletconfiguration1+strategic.yaml": "maxPods: 7\n",
		"kubeletconfiguration-x+mergeful.yaml": "maxPods: 7\n", "kubeletconfiguration.bak.yaml": "maxPods: 7\n",
		"Kubeletconfiguration.yaml": "maxPods: 7\n", "kubeletconfiguration1.yaml": "", "xkubeletconfiguration.yaml": "maxPods: 7\n",
		"kubeletconfiguration2+.yaml": "maxPods: 7\n", "kubeletconfiguration3+merge.yaml": "maxPods: [7\n", ".yaml": "maxPods: 7\n",
	} {
		t.Run(name, func(t *testing.T) {
			files := []kubeletcfg.File{{Name: name, Data: []byte(data)}}
			r := ask[kubeadmResult](t, loaderProgram, []kubeadmCase{{
				Dir: writeAll(t, files), Target: "kubeletconfiguration",
				Data: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
			}}, "kubeadm")[0]
			want := kubeletcfg.IgnoredWithWarning
			switch {
			case r.Error != "":
				want = kubeletcfg.WouldNotStart
			case strings.Contains(string(r.Patched), `"maxPods":7`):
				want = kubeletcfg.Applied
			}
			got := kubeletcfg.Applied
			if found := kubeletcfg.LintKubeadmPatches("p", files); len(found) > 0 {
				got = found[0].Outcome
			}
			if got != want {
				t.Errorf("lint says %q, kubeadm does %q: %s\n%s", got, want, r.Error, r.Log)
			}
		})
	}
}

type clusterAPIResult struct {
	Kind   string         `json:"kind"`
	Error  string         `json:"error"`
	Object map[string]any `json:"object"`
}

func TestClusterAPITakesItsObjects(t *testing.T) {
	for name, intent := range intents(t) {
		if intent.ClusterAPI == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			files, _ := rendered(t, intent, kubeletcfg.FormClusterAPI)
			var documents []string
			for _, f := range files {
				documents = append(documents, string(f.Data))
				if found, err := kubeletcfg.LintClusterAPI(f); err != nil || len(found) > 0 {
					t.Errorf("lint does not like %s: %v %v", f.Name, found, err)
				}
			}
			var kinds []string
			for i, r := range ask[clusterAPIResult](t, clusterAPIProgram, documents) {
				if r.Error != "" {
					t.Errorf("Cluster API refuses it: %s\n%s", r.Error, documents[i])
				}
				kinds = append(kinds, r.Kind)
				checkMachine(t, intent, r)
			}
			want := []string{"KubeadmControlPlane", "KubeadmControlPlane"}
			if intent.NodeLease == kubeletcfg.LeaseOn && intent.LivenessSource == kubeletcfg.External {
				want = want[1:] // the control plane has done its step already
			}
			for range intent.ClusterAPI.Workers {
				want = append(want, "KubeadmConfigTemplate", "MachineDeployment")
			}
			if !slices.Equal(kinds, want) {
				t.Errorf("kinds %q, want %q", kinds, want)
			}
		})
	}
}

// checkMachine looks for the kubelet's patch in what the types made of it.
func checkMachine(t *testing.T, in kubeletcfg.Intent, r clusterAPIResult) {
	t.Helper()
	at := map[string]string{"KubeadmControlPlane": "kubeadmConfigSpec", "KubeadmConfigTemplate": "template/spec"}[r.Kind]
	if at == "" {
		return
	}
	spec := r.Object["spec"].(map[string]any)
	for _, key := range strings.Split(at, "/") {
		spec = spec[key].(map[string]any)
	}
	if spec["files"] == nil {
		return // the control plane's own step
	}
	file := spec["files"].([]any)[0].(map[string]any)
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + file["content"].(string)
	checkKubelet(t, in, kubeletReport(t, in, &kubeletcfg.File{Name: "content", Data: []byte(config)}))
	if file["owner"] != "root:root" || file["permissions"] != "0644" {
		t.Errorf("the patch is owned by %v with mode %v", file["owner"], file["permissions"])
	}
}
