package kubeletcfg_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nodewarden/nodewarden/kubeletcfg"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

const added = "featureGates:\n  ExternalNodeLivenessDetection: true\n"

func TestEditChangesTheFieldAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"both are added below kind": {
			"# ours\n" + head + "maxPods: 50 # not more\n",
			"# ours\n" + head + "enableNodeLease: false\n" + added + "maxPods: 50 # not more\n",
		},
		"a value is replaced where it stands": {
			head + "enableNodeLease: true   # for now\nfeatureGates:\n  # why\n  ExternalNodeLivenessDetection: false\n  B: true\n",
			head + "enableNodeLease: false   # for now\nfeatureGates:\n  # why\n  ExternalNodeLivenessDetection: true\n  B: true\n",
		},
		"a gate joins the others with their indentation": {
			head + "featureGates:\n    # first\n    A: true\nenableNodeLease: false\n",
			head + "featureGates:\n    ExternalNodeLivenessDetection: true\n    # first\n    A: true\nenableNodeLease: false\n",
		},
		"flow mappings stay flow mappings": {
			head + "featureGates: {A: true} # few\nenableNodeLease: false\n",
			head + "featureGates: {ExternalNodeLivenessDetection: true, A: true} # few\nenableNodeLease: false\n",
		},
		"an empty flow mapping is filled": {
			head + "featureGates: {}\nenableNodeLease: false\n",
			head + "featureGates: {ExternalNodeLivenessDetection: true}\nenableNodeLease: false\n",
		},
		"an empty mapping is filled": {
			head + "featureGates:\nenableNodeLease: false\n",
			head + "featureGates:\n  ExternalNodeLivenessDetection: true\nenableNodeLease: false\n",
		},
		"null is filled": {
			head + "featureGates: null\nenableNodeLease: false\n",
			head + "featureGates: {ExternalNodeLivenessDetection: true}\nenableNodeLease: false\n",
		},
		"a quoted value becomes a proper one": {
			head + "enableNodeLease: \"false\"\nfeatureGates: {ExternalNodeLivenessDetection: 'true'}\n",
			head + "enableNodeLease: false\nfeatureGates: {ExternalNodeLivenessDetection: true}\n",
		},
		"line ends stay what they are": {
			strings.ReplaceAll(head+"maxPods: 50\n", "\n", "\r\n"),
			strings.ReplaceAll(head+"enableNodeLease: false\n"+added+"maxPods: 50\n", "\n", "\r\n"),
		},
		"a missing line end stays missing": {
			head + "maxPods: 50\nenableNodeLease: true",
			head + added + "maxPods: 50\nenableNodeLease: false",
		},
		"kind may be the last word of the file": {
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration",
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nenableNodeLease: false\nfeatureGates:\n  ExternalNodeLivenessDetection: true",
		},
		"JSON on many lines": {
			"{\n  \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n  \"kind\": \"KubeletConfiguration\"\n}\n",
			"{\n  \"enableNodeLease\": false,\n  \"featureGates\": {\"ExternalNodeLivenessDetection\": true},\n  \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n  \"kind\": \"KubeletConfiguration\"\n}\n",
		},
		"JSON on one line": {
			`{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "enableNodeLease": true}`,
			`{"featureGates": {"ExternalNodeLivenessDetection": true}, "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "enableNodeLease": false}`,
		},
		"one document of a kubeadm configuration": {
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n" + head + "---\nkind: InitConfiguration\n",
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\n" + head + "enableNodeLease: false\n" + added + "---\nkind: InitConfiguration\n",
		},
		"wide characters before the place on the same line": {
			`{clusterDomain: "köln/北", kind: KubeletConfiguration, apiVersion: kubelet.config.k8s.io/v1beta1, enableNodeLease: true, featureGates: {A: true}}`,
			`{clusterDomain: "köln/北", kind: KubeletConfiguration, apiVersion: kubelet.config.k8s.io/v1beta1, enableNodeLease: false, featureGates: {"ExternalNodeLivenessDetection": true, A: true}}`,
		},
		"unknown fields, odd spaces and wide characters stay": {
			head + "weird:   [ 1,2 ,3]\n# über alles\nclusterDomain: \"köln\"\nfeatureGates: {A: true}\n",
			head + "enableNodeLease: false\nweird:   [ 1,2 ,3]\n# über alles\nclusterDomain: \"köln\"\nfeatureGates: {ExternalNodeLivenessDetection: true, A: true}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kubeletcfg.Edit([]byte(c.before), kubeletcfg.LeaseOffChanges()...)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.after {
				t.Errorf("got\n%s\nwant\n%s", got, c.after)
			}
			again, err := kubeletcfg.Edit(got, kubeletcfg.LeaseOffChanges()...)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("a second time it changes again (%v):\n%s", err, again)
			}
		})
	}
}

func TestEditRefusesWhatItCannotKeep(t *testing.T) {
	for name, text := range map[string]string{
		"no KubeletConfiguration":              "apiVersion: v1\nkind: ConfigMap\n",
		"nothing at all":                       "",
		"another version":                      "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n",
		"two KubeletConfigurations":            head + "---\n" + head,
		"a key that is there twice":            head + "enableNodeLease: true\nenableNodeLease: true\n",
		"a value with an anchor":               head + "enableNodeLease: &x true\nfailSwapOn: *x\n",
		"a value that is an alias":             head + "failSwapOn: &x true\nenableNodeLease: *x\n",
		"a value that is a mapping":            head + "enableNodeLease: {a: b}\n",
		"a value in a block":                   head + "enableNodeLease: |\n  true\n",
		"a value with a tag":                   head + "enableNodeLease: !!bool \"true\"\n",
		"an empty value":                       head + "enableNodeLease:\n",
		"gates shared by an anchor":            head + "featureGates: &g {A: true}\nother: *g\n",
		"gates in a block shared by an anchor": head + "featureGates: &g\n  A: true\nother: *g\n",
		"gates that are an alias":              head + "other: &g {A: true}\nfeatureGates: *g\n",
		"gates completed by a merge":           head + "other: &g {A: true}\nfeatureGates: {<<: *g}\n",
		"gates that are a list":                head + "featureGates: [A]\n",
		"a lone carriage return":               head + "maxPods: 50\r# x\n",
		"something that is not UTF-8":          head + "clusterDomain: \xff\n",
		"something that is not YAML":           head + "maxPods: [\n",
		"a root completed by a merge":          "x: &x {kind: KubeletConfiguration}\n<<: *x\napiVersion: kubelet.config.k8s.io/v1beta1\n",
		"keys behind a document start":         "--- {kind: KubeletConfiguration, apiVersion: kubelet.config.k8s.io/v1}\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kubeletcfg.Edit([]byte(text), kubeletcfg.LeaseOffChanges()...)
			if err == nil {
				t.Errorf("was changed to\n%s", got)
			}
		})
	}
}

func TestEditNamesTheLinesOfTheFileThatWasGiven(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a value with an anchor": {
			head + "enableNodeLease: &a true\n",
			"enableNodeLease: line 3: the value has the anchor &a and may be used elsewhere; make this change by hand",
		},
		"a list of gates": {
			head + "featureGates:\n- A\nenableNodeLease: false\n",
			"featureGates.ExternalNodeLivenessDetection: line 3: featureGates is no plain mapping",
		},
		"everything at once": {
			head + "featureGates: [A]\nenableNodeLease: {a: b}\n",
			"featureGates.ExternalNodeLivenessDetection: line 3: featureGates is no plain mapping\n" +
				"enableNodeLease: line 4: the value is not a simple one",
		},
		"a tab, which is no fault of a field": {
			head + "featureGates:\n\tA: true\n",
			"yaml: line 4: found character that cannot start any token",
		},
		"a root completed by a merge": {
			head + "x: &x {maxPods: 5}\n<<: *x\n",
			"line 4: the mapping is completed by <<, so what it holds is written elsewhere",
		},
		"a merge that holds itself": {
			"&x\n<<: *x\n",
			"line 2: the mapping is completed by <<, so what it holds is written elsewhere",
		},
		"a kind that is there twice": {
			head + "kind: KubeletConfiguration\n",
			"lines 2 and 3: kind is there twice; delete one",
		},
		"an apiVersion that is there twice": {
			head + "apiVersion: kubelet.config.k8s.io/v1beta1\n",
			"lines 1 and 3: apiVersion is there twice; delete one",
		},
		"another document completed by a merge": {
			"kind: Other\nx: &x {a: b}\n<<: *x\n---\n" + head + "enableNodeLease: [1]\n",
			"enableNodeLease: line 7: the value is not a simple one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kubeletcfg.Edit([]byte(c.text), kubeletcfg.LeaseOffChanges()...)
			if err == nil || err.Error() != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestEditTakesOneChangeForEachFieldOfTheTop(t *testing.T) {
	gate := func(name string) kubeletcfg.Change {
		return kubeletcfg.Change{Path: []string{"featureGates", name}, Value: "true"}
	}
	if got, err := kubeletcfg.Edit([]byte(head), gate("A"), gate("B")); err == nil || !strings.Contains(err.Error(), "featureGates.B: featureGates is changed already") {
		t.Errorf("two gates at once: %v\n%s", err, got)
	}
	got, err := kubeletcfg.Edit([]byte(head), append(kubeletcfg.LeaseOffChanges(), kubeletcfg.LeaseDurationChange(80))...)
	if want := head + "nodeLeaseDurationSeconds: 80\nenableNodeLease: false\n" + added; err != nil || string(got) != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

// FuzzEditKeepsEverythingElse: whatever parses and is not refused differs
// afterwards in the one field only, and a second edit changes nothing.
func FuzzEditKeepsEverythingElse(f *testing.F) {
	f.Add([]byte(head+"maxPods: 5\n"), true)
	f.Add([]byte(head+"featureGates:\n- a\n"), false)
	f.Add([]byte(strings.ReplaceAll(head+"a:\n  b: |\n    c\n# x\n", "\n", "\r\n")), true)
	f.Add([]byte(`{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}`), true)
	f.Add([]byte("? kind\n: KubeletConfiguration\n? apiVersion\n: kubelet.config.k8s.io/v1beta1\n"), true)
	f.Add([]byte("{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, featureGates: {\n  A: true}}"), false)
	f.Fuzz(func(t *testing.T, data []byte, off bool) {
		changes := kubeletcfg.LeaseOnChanges()
		if off {
			changes = kubeletcfg.LeaseOffChanges()
		}
		edited, err := kubeletcfg.Edit(data, changes...)
		if err != nil {
			return
		}
		again, err := kubeletcfg.Edit(edited, changes...)
		if err != nil || !bytes.Equal(again, edited) {
			t.Fatalf("not idempotent (%v):\n%q\n%q", err, edited, again)
		}
		before, after := plain(data), plain(edited)
		if before == nil {
			return // keys that are no strings, or twice: nothing to compare with
		}
		for _, c := range changes {
			forget(before, c.Path)
			forget(after, c.Path)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("something else changed:\n%q\n%q", data, edited)
		}
		if lost := lostComment(data, edited); lost != "" {
			t.Fatalf("lost %q:\n%q\n%q", lost, data, edited)
		}
	})
}

// plain is the KubeletConfiguration of a file as plain values, nil if it has none.
func plain(data []byte) map[string]any {
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := d.Decode(&n); err != nil {
			return nil
		}
		var doc map[string]any
		if n.Decode(&doc) == nil && doc["kind"] == "KubeletConfiguration" {
			return doc
		}
	}
}

// forget takes a path out of a document, and the mapping around it if that is
// empty then: a null mapping and one with only our key are alike but for it.
func forget(doc map[string]any, path []string) {
	if len(path) == 2 {
		inner, _ := doc[path[0]].(map[string]any)
		delete(inner, path[1])
		if len(inner) == 0 {
			delete(doc, path[0])
		}
		return
	}
	delete(doc, path[0])
}

// lostComment is a line of comment that the old file has and the new one has not.
func lostComment(before, after []byte) string {
	for line := range bytes.Lines(before) {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) && !bytes.Contains(after, bytes.TrimSpace(line)) {
			return string(line)
		}
	}
	return ""
}
