package kubeletcfg_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "record what the real programs say, and what we print")

// loaderBinary builds the program in loader/, which holds the configuration
// code of kubelet and kubeadm 1.37.2. It is a module of its own and costs as
// much to build as they do, unless the test control plane was built before:
// same versions, same settings, same cache.
var loaderBinary = sync.OnceValues(func() (string, error) {
	out := filepath.Join(os.TempDir(), "nodewarden-kubelet-loader")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	cmd.Dir = "loader"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stderr = os.Stderr
	return out, cmd.Run()
})

// runLoader feeds cases to one command of the loader and decodes its answers.
func runLoader[R any](t *testing.T, command string, cases any) []R {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the kubelet; not in -short")
	}
	binary, err := loaderBinary()
	if err != nil {
		t.Fatalf("building test/kubeletcfg/loader: %v", err)
	}
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, command)
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("loader %s: %v\n%s", command, err, errs.String())
	}
	var results []R
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatalf("loader %s: %v", command, err)
	}
	return results
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
	if testing.Short() {
		t.Skip("builds the kubelet; not in -short")
	}
	binary, err := loaderBinary()
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command(binary, "gates").Output()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../../kubeletcfg/gates.txt", got)
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
