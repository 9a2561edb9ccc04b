package kubelet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodewarden/nodewarden/cmd/nodewarden/kubelet"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

const intent = `apiVersion: config.nodewarden.dev/v1alpha1
kind: KubeletIntent
controlPlaneVersion: v1.37.2
kubeletVersion: v1.37.2
livenessSource: Kubelet
controller: InTree
nodeLease: Stretched
stretch: {leaseDurationSeconds: 80, nodes: 100}
`

// run is `nodewarden kubelet` in a directory with these files.
func run(t *testing.T, files map[string]string, args ...string) (string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue // a directory alone
		}
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return again(args...)
}

// again runs a command where the last one ran.
func again(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := kubelet.Command(kubelet.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// exitCode is the program's for what a command returned.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, kubelet.ErrFindings):
		return 1
	}
	return 2
}

func TestTheExitCodeSaysWhetherTheQuestionWasAnswered(t *testing.T) {
	files := map[string]string{
		"good.yaml": head + "maxPods: 5\n", "odd.yaml": head + "maxPod: 5\n", "bad.yaml": "x: [\n", "d/10.conf": head + "maxPods: 6\n",
		"intent.yaml": intent, "p/kubeletconfiguration.yaml": "maxPods: 5\n", "vm.yaml": "kind: VM\n",
		"md.yaml": "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\n", "empty/": "",
		"anchors.yaml": head + "nodeLeaseDurationSeconds: &a 40\nenableNodeLease: &b false\n",
	}
	for name, c := range map[string]struct {
		args string
		want int
		say  string
	}{
		"all applied":                        {"lint good.yaml --kubelet-version 1.37", 0, "starts, no findings"},
		"something is ignored":               {"lint odd.yaml --kubelet-version 1.37", 1, "ignored with a warning: maxPod: "},
		"one of two is bad":                  {"lint good.yaml bad.yaml --kubelet-version 1.37", 1, "would not start"},
		"a drop-in directory alone":          {"lint --config-dir d --kubelet-version 1.37", 0, "d/10.conf:3"},
		"a kubelet file that is missing":     {"lint none.yaml --kubelet-version 1.37", 2, "cannot lint none.yaml: open none.yaml: no such file"},
		"a kubelet file that is a directory": {"lint good.yaml d --kubelet-version 1.37", 2, "cannot lint d: read d: is a directory"},
		"a drop-in directory that is a file": {"lint good.yaml --config-dir odd.yaml --kubelet-version 1.37", 2,
			"--config-dir: odd.yaml is not a directory"},
		"a version nobody can read": {"lint good.yaml --kubelet-version stable", 2, `"stable" cannot be read`},
		"no version":                {"lint good.yaml", 2, "--kubelet-version is required"},
		"nothing to lint":           {"lint --kubelet-version 1.37", 2, "nothing to lint"},
		"a gate that is no boolean": {"lint good.yaml --kubelet-version 1.37 --feature-gates A=maybe", 2, "write true or false"},
		"a gate the kubelet refuses": {"lint good.yaml --kubelet-version 1.37 --feature-gates A=true", 1,
			"--feature-gates: would not start: featureGates.A"},
		"an output nobody knows":          {"lint good.yaml --kubelet-version 1.37 -o yaml", 2, "neither text nor json"},
		"kubeadm patches need no version": {"lint --kubeadm-patches p", 0, "no findings in: p, files: 1"},
		"no patch directory":              {"lint --kubeadm-patches q", 2, "--kubeadm-patches"},
		"no manifest":                     {"lint --cluster-api none.yaml", 2, "--cluster-api"},
		"a manifest of something else":    {"lint --cluster-api vm.yaml", 2, "--cluster-api: vm.yaml: holds no object of Cluster API"},
		"a manifest of nothing":           {"lint --cluster-api /dev/null", 2, "--cluster-api: /dev/null: holds no object of Cluster API"},
		"a manifest of Cluster API":       {"lint --cluster-api md.yaml", 0, "no findings in: md.yaml"},
		"patches that are none":           {"lint --kubeadm-patches empty", 2, "--kubeadm-patches: empty holds no file: want patches such as kubeletconfiguration0+merge.yaml"},
		"drop-ins that are none":          {"lint good.yaml --config-dir empty --kubelet-version 1.37", 2, "--config-dir: empty holds no file: want drop-ins"},
		"a number that is too large":      {"edit good.yaml --lease-duration-seconds 99999999999", 2, `invalid argument "99999999999" for "--lease-duration-seconds" flag: out of range; it must be from 1 to 2147483647`},
		"a number that is none":           {"edit good.yaml --lease-duration-seconds x", 2, "must be an integer"},
		"rendered":                        {"render intent.yaml --form drop-in", 0, "nodeLeaseDurationSeconds: 80"},
		"a form nobody knows":             {"render intent.yaml --form talos", 2, `"talos" is not one of`},
		"no form":                         {"render intent.yaml", 2, "--form is required"},
		"an intent that is none":          {"render good.yaml --form drop-in", 2, "must be config.nodewarden.dev/v1alpha1"},
		"a directory that is missing":     {"render intent.yaml --form drop-in --dir a/b", 0, "a/b/90-node-lease.conf\n"},
		"a directory that is a file":      {"render intent.yaml --form drop-in --dir odd.yaml", 2, "--dir: mkdir odd.yaml: not a directory"},
		"edited":                          {"edit good.yaml --node-lease off", 0, "enableNodeLease: false"},
		"nothing to change":               {"edit good.yaml", 2, "nothing to change"},
		"a duration of zero":              {"edit good.yaml --lease-duration-seconds 0", 2, "0 must be at least 1"},
		"neither on nor off":              {"edit good.yaml --node-lease no", 2, "neither on nor off"},
		"two files on one output":         {"edit good.yaml odd.yaml --node-lease on", 2, "needs --write"},
		"a file that cannot be edited":    {"edit bad.yaml --node-lease on", 2, "bad.yaml: yaml: "},
		"two fields that cannot be edited": {"edit anchors.yaml --node-lease on --lease-duration-seconds 80", 2,
			"anchors.yaml: enableNodeLease: line 4: the value has the anchor &b and may be used elsewhere; make this change by hand\n" +
				"anchors.yaml: nodeLeaseDurationSeconds: line 3: the value has the anchor &a"},
		"an unknown flag": {"lint --fix", 2, "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, files, strings.Fields(c.args)...)
			if got := exitCode(err); got != c.want {
				t.Errorf("exit code %d, want %d: %v\n%s", got, c.want, err, out)
			}
			if err != nil {
				out += err.Error()
			}
			if !strings.Contains(out, c.say) {
				t.Errorf("does not say %q:\n%s", c.say, out)
			}
		})
	}
}

func TestLintSpeaksJSON(t *testing.T) {
	out, err := run(t, map[string]string{"odd.yaml": head + "maxPods: 5\nmaxPod: 5\n"}, "lint", "odd.yaml", "--kubelet-version", "1.37.2", "-o", "json")
	if exitCode(err) != 1 {
		t.Fatal(err)
	}
	var got struct {
		Kubelets []struct {
			Starts   bool
			Findings []struct {
				Outcome, Path, File, Basis string
				Line                       int
			}
			Values []struct {
				Path  string
				Value any
				From  struct {
					File string
					Line int
				}
			}
		}
		Carriers []any
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	k := got.Kubelets[0]
	if f := k.Findings[0]; !k.Starts || f.Outcome != "ignored with a warning" || f.Path != "maxPod" || f.Line != 4 || f.File != "odd.yaml" || f.Basis != "kubelet 1.37.2" {
		t.Errorf("finding %+v", f)
	}
	for _, v := range k.Values {
		if v.Path == "maxPods" && (v.Value != 5.0 || v.From.Line != 3) {
			t.Errorf("value %+v", v)
		}
	}
	if got.Carriers == nil || len(k.Values) < 80 {
		t.Errorf("carriers %v, %d values: lists must be there even when empty, and defaults too", got.Carriers, len(k.Values))
	}
}

func TestEveryListOfTheJSONIsAListEvenWhenItIsEmpty(t *testing.T) {
	files := map[string]string{"good.yaml": head, "p/kubeletconfiguration.yaml": "maxPods: 5\n", "bad.yaml": "x: [\n"}
	for _, args := range []string{"good.yaml --kubelet-version 1.37", "bad.yaml --kubelet-version 1.37", "--kubeadm-patches p"} {
		out, _ := run(t, files, append([]string{"lint", "-o", "json"}, strings.Fields(args)...)...)
		if strings.Contains(out, "null") {
			t.Errorf("lint %s:\n%s", args, out)
		}
	}
}

func TestEditWritesAFileBackInOneStepAndKeepsItsMode(t *testing.T) {
	files := map[string]string{"a.yaml": head + "maxPods: 5\n", "b.yaml": head + "enableNodeLease: true\n"}
	out, err := run(t, files, "edit", "a.yaml", "b.yaml", "--node-lease", "on", "--write")
	if err != nil || out != "a.yaml: changed\nb.yaml: unchanged\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile("a.yaml")
	if err != nil || string(data) != head+"enableNodeLease: true\nmaxPods: 5\n" {
		t.Errorf("%v\n%s", err, data)
	}
	if info, err := os.Stat("a.yaml"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(".nodewarden-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestEditKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give files away")
	}
	if _, err := run(t, map[string]string{"a.yaml": head}, "lint", "a.yaml", "--kubelet-version", "1.37"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown("a.yaml", 1000, 1001); err != nil {
		t.Fatal(err)
	}
	if out, err := again("edit", "a.yaml", "--node-lease", "off", "--write"); err != nil || out != "a.yaml: changed\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat("a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (stat.Uid != 1000 || stat.Gid != 1001) {
		t.Errorf("it belongs to %d:%d now", stat.Uid, stat.Gid)
	}
}

func TestEditWritesNothingIfOneFileIsRefused(t *testing.T) {
	files := map[string]string{"a.yaml": head, "b.yaml": "kind: Other\n"}
	if _, err := run(t, files, "edit", "a.yaml", "b.yaml", "--node-lease", "off", "-w"); exitCode(err) != 2 {
		t.Fatalf("error %v", err)
	}
	if data, _ := os.ReadFile("a.yaml"); string(data) != head {
		t.Errorf("a.yaml was written:\n%s", data)
	}
}

func TestEditFollowsALinkAndKeepsIt(t *testing.T) {
	if _, err := run(t, map[string]string{"real/a.yaml": head}, "lint", "--kubeadm-patches", "real"); err == nil {
		t.Fatal("a kubelet configuration passes as a patch by its name")
	}
	if err := os.Symlink("real/a.yaml", "link.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := again("edit", "link.yaml", "--node-lease", "off", "-w"); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile("real/a.yaml"); !strings.Contains(string(data), "enableNodeLease: false") {
		t.Errorf("the file behind the link is\n%s", data)
	}
	if info, err := os.Lstat("link.yaml"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
}

func TestRenderDoesNotReplaceFiles(t *testing.T) {
	files := map[string]string{"intent.yaml": intent, "out/x": ""}
	if out, err := run(t, files, "render", "intent.yaml", "--form", "drop-in", "--dir", "out"); err != nil || !strings.HasPrefix(out, "out/90-node-lease.conf\nEffect: ") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := again("render", "intent.yaml", "--form", "drop-in", "--dir", "out"); exitCode(err) != 2 || !strings.Contains(err.Error(), "exists") || out != "" {
		t.Errorf("a second time: %v\n%s", err, out)
	}
	if out, err := again("lint", "--config-dir", "out", "--kubelet-version", "1.37.2"); exitCode(err) != 1 || !strings.Contains(out, "out/x: ignored silently") {
		t.Errorf("%v\n%s", err, out)
	}
}
