package kubeletcfg_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

var update = flag.Bool("update", false, "record what the real programs say, and what we print")

// buildDir holds what the tests build, for as long as they run, however they end.
var buildDir string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, remove, err := controlplane.TempDir("nodewarden-kubeletcfg-")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	code := m.Run()
	remove()
	os.Exit(code)
}

// program is a main package in a nested module, with real code in it that the
// main module does not want to depend on.
type program struct{ dir, pkg string }

var (
	// Kubelet, kubeadm and kube-controller-manager 1.37.2. They cost as much to
	// build as those do, unless the test control plane was built before: same
	// versions, same settings, same cache.
	loaderProgram = program{"loader", "."}
	planeProgram  = program{"loader", "./plane"}
	// The types of Cluster API.
	clusterAPIProgram = program{"clusterapi", "."}
)

var built sync.Map // program -> func() (string, error)

// binary builds a program, once.
func (p program) binary() (string, error) {
	build, _ := built.LoadOrStore(p, sync.OnceValues(func() (string, error) {
		out := filepath.Join(buildDir, p.dir+"-"+filepath.Base(p.pkg))
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, p.pkg)
		cmd.Dir = p.dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if output, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s in test/kubeletcfg/%s: %w\n%s", p.pkg, p.dir, err, output)
		}
		return out, nil
	}))
	return build.(func() (string, error))()
}

// ask runs a program over cases and decodes its answers, one a case.
func ask[R any](t *testing.T, p program, cases any, args ...string) []R {
	t.Helper()
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	var results []R
	if err := json.Unmarshal(output(t, p, in, args...), &results); err != nil {
		t.Fatalf("%s: %v", p.dir, err)
	}
	return results
}

// output runs a program. It is skipped under -short, where nothing big is built.
func output(t *testing.T, p program, in []byte, args ...string) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("builds " + p.dir + "; not in -short")
	}
	binary, err := p.binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", p.dir, args, err, errs.String())
	}
	return out.Bytes()
}

// golden compares got with a file, or writes the file under -update.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\nrecord it: go test ./test/kubeletcfg -run %s -update", err, t.Name())
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; if that is meant: go test ./test/kubeletcfg -run %s -update\ngot:\n%s", file, t.Name(), got)
	}
}

func TestTheFeatureGateTableIsTheKubeletsOwn(t *testing.T) {
	golden(t, "../../kubeletcfg/gates.txt", output(t, loaderProgram, nil, "gates"))
}

// flatten turns a configuration into its leaves by path.
func flatten(value any, at string, into map[string]any) {
	m, ok := value.(map[string]any)
	if !ok {
		into[at] = value
		return
	}
	for key, child := range m {
		if at == "" && (key == "apiVersion" || key == "kind") {
			continue
		}
		flatten(child, at+"/"+key, into)
	}
}

func leavesOf(t *testing.T, config any) map[string]any {
	t.Helper()
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	leaves := map[string]any{}
	flatten(doc, "", leaves)
	return leaves
}

// unlike keeps the leaves that differ from those in base; a leaf that only
// base has is nil.
func unlike(leaves, base map[string]any) map[string]any {
	diff := map[string]any{}
	for path, value := range leaves {
		if other, ok := base[path]; !ok || !reflect.DeepEqual(other, value) {
			diff[path] = value
		}
	}
	for path := range base {
		if _, ok := leaves[path]; !ok {
			diff[path] = nil
		}
	}
	return diff
}
