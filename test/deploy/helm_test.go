package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

const (
	root      = "../.."
	chart     = root + "/deploy/chart"
	namespace = "nodewarden-system"
	release   = "nodewarden"
)

// helmPath is a helm of the version that tools/helm pins.
var helmPath = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "-modfile=tools/helm/go.mod", "helm")
	cmd.Dir = root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build helm: %w\n%s", err, &complaint)
	}
	return strings.TrimSpace(string(out)), nil
})

// helm runs helm and returns what it printed.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs helm, which -short leaves out")
	}
	path, err := helmPath()
	if err != nil {
		t.Fatal(err)
	}
	if err := noticed(); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+kubeconfig)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %q: %w\n%s", args, err, &complaint)
	}
	return out.String(), nil
}

// noticed reads every file of the chart, so that a cached test result is not
// one about another chart.
var noticed = sync.OnceValue(func() error {
	return filepath.WalkDir(chart, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			_, err = os.ReadFile(path)
		}
		return err
	})
})

// values are values of the chart, as helm reads them from a file.
type values map[string]any

// at sets a value by its dotted path.
func (v values) at(path string, value any) values {
	keys := strings.Split(path, ".")
	inner := map[string]any(v)
	for _, key := range keys[:len(keys)-1] {
		next, ok := inner[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			inner[key] = next
		}
		inner = next
	}
	inner[keys[len(keys)-1]] = value
	return v
}

func (v values) file(t *testing.T) string {
	t.Helper()
	text, err := sigsyaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nodewarden-values-") //nolint:usetesting // helm takes the commas of a test's name for separators
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// template renders the chart without a cluster.
func template(t *testing.T, v values, args ...string) (objects, error) {
	t.Helper()
	text, err := helm(t, "", append([]string{"template", release, chart, "--namespace", namespace, "--kube-version", "1.37.2", "--values", v.file(t)}, args...)...)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func render(t *testing.T, v values, args ...string) objects {
	t.Helper()
	all, err := template(t, v, args...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// objects are rendered objects by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func parse(text string) (objects, error) {
	all := objects{}
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) == 0 {
			continue
		}
		k := key(o.GetKind(), o.GetNamespace(), o.GetName())
		if all[k] != nil {
			return nil, fmt.Errorf("%s stands twice", k)
		}
		all[k] = o
	}
}

// ofKind are the objects of a kind, by name.
func (o objects) ofKind(kind string) objects {
	some := objects{}
	for _, one := range o {
		if one.GetKind() == kind {
			some[one.GetName()] = one
		}
	}
	return some
}
