package monitoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// promtool returns the path of promtool: the one on the path, or Debian's, which
// is unpacked into the user's cache folder once. Compiling it takes minutes.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "nodewarden", "promtool")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if controlplane.Short() {
		t.Skip("promtool is not here, and -short fetches nothing")
	}
	if err := fetchPromtool(t.Context(), path); err != nil {
		t.Skipf("THE ALERTS ARE NOT TESTED: promtool is not here and cannot be fetched (%v). Install it, or put it at %s.", err, path)
	}
	return path
}

// fetchPromtool unpacks Debian's package, without installing it, to path.
func fetchPromtool(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "promtool-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	in := func(program string, args ...string) error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %q: %w: %s", program, args, err, bytes.TrimSpace(out))
		}
		return nil
	}
	if err := in("apt-get", "download", "prometheus"); err != nil {
		// A fresh machine has no lists of packages yet.
		if again := errors.Join(in("apt-get", "update"), in("apt-get", "download", "prometheus")); again != nil {
			return again
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "prometheus_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("downloaded %q, %w", packages, err)
	}
	if err := in("dpkg", "-x", packages[0], "."); err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(dir, "usr", "bin", "promtool"))
	if err != nil {
		return err
	}
	return keep(path, program)
}

// keep never lets anybody see half a program.
func keep(path string, program []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(next, program, 0o755); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// rulesFile writes s as promtool wants it, and the unit tests beside it.
func rulesFile(t *testing.T, s spec, tests string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", s)
	if err := os.WriteFile(filepath.Join(dir, tests), read(t, tests), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	program, s := promtool(t), load(t)
	// Who tests when an alert fires does not want to repeat what it says.
	for _, g := range s.Groups {
		for i := range g.Rules {
			g.Rules[i].Annotations = nil
		}
	}
	dir := rulesFile(t, s, "alerts.yaml")
	if out, err := run(t, dir, program, "test", "rules", "alerts.yaml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAlertsSayHowMuchAndWhere(t *testing.T) {
	program := promtool(t)
	dir := rulesFile(t, load(t), "messages.yaml")
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "messages.yaml"}} {
		if out, err := run(t, dir, program, args...); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// TestTheTestsOfAnAlertNoticeWhenItIsBroken has each alert never fire, and then
// always: its own unit tests must fail.
func TestTheTestsOfAnAlertNoticeWhenItIsBroken(t *testing.T) {
	program := promtool(t)
	var all map[string]any
	if err := yaml.Unmarshal(read(t, "alerts.yaml"), &all); err != nil {
		t.Fatal(err)
	}
	stories, ok := all["tests"].([]any)
	if !ok {
		t.Fatal("alerts.yaml has no tests")
	}
	for _, a := range load(t).alerts() {
		tests := maps.Clone(all)
		tests["tests"] = slices.DeleteFunc(slices.Clone(stories), func(story any) bool {
			return !strings.Contains(fmt.Sprint(story), "alertname:"+a.Alert+" ")
		})
		for what, expr := range map[string]string{"never": "(" + a.Expr + ") and on () vector(0) > 1", "always": "vector(1)"} {
			broken := a
			broken.Expr, broken.For, broken.Annotations = expr, "0m", nil
			dir := t.TempDir()
			write(t, dir, "rules.yaml", spec{Groups: []group{{Name: "broken", Rules: []alert{broken}}}})
			write(t, dir, "alerts.yaml", tests)
			if out, err := run(t, dir, program, "test", "rules", "alerts.yaml"); err == nil {
				t.Errorf("%s %s fires, and no test fails:\n%s", a.Alert, what, out)
			}
		}
	}
}

func write(t *testing.T, dir, name string, content any) {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
