package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// Kubectl runs kubectl as a user and returns what it printed, on both streams,
// also when it failed.
func (cp *ControlPlane) Kubectl(ctx context.Context, user *rest.Config, args ...string) (string, error) {
	config, err := cp.Kubeconfig(user)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, cp.binary, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "KUBECACHEDIR="+filepath.Join(cp.dir, "tmp", "kubectl"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %q: %w: %s", args, err, out)
	}
	return string(out), nil
}
