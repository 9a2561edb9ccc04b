// Package issuing runs cert-manager's own controllers and its CA injector beside
// a test control plane. It compiles them from the module in ../certmanager, and
// never decides what they issue.
package issuing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// compiling keeps two tests of one process from compiling at the same time.
var compiling sync.Mutex

// Build compiles the program and returns its path, which goes with cp.
func Build(cp *controlplane.ControlPlane) (string, error) {
	compiling.Lock()
	defer compiling.Unlock()
	path := filepath.Join(cp.Dir(), "bin", "certmanager")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	_, err := inModule("build", "-o", path, ".")
	return path, err
}

// Start installs cert-manager's resource definitions and runs its controllers
// until the process that it returns is ended.
func Start(ctx context.Context, cp *controlplane.ControlPlane) (*controlplane.Process, error) {
	program, err := Build(cp)
	if err != nil {
		return nil, err
	}
	module, err := inModule("list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", filepath.Join(module, "deploy", "crds")},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io", "crd/certificaterequests.cert-manager.io"},
	} {
		if out, err := cp.Kubectl(ctx, cp.Admin(), args...); err != nil {
			return nil, fmt.Errorf("install cert-manager's definitions: %w\n%s", err, out)
		}
	}
	kubeconfig, err := cp.Kubeconfig(cp.Admin())
	if err != nil {
		return nil, err
	}
	return cp.Run(ctx, controlplane.Command{Path: program, Args: []string{"--kubeconfig=" + kubeconfig}})
}

// inModule runs the go command in the module of cert-manager's controllers, which
// are built with other versions of Kubernetes' libraries than ours.
func inModule(args ...string) (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("this program does not know where its source is")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "certmanager")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
