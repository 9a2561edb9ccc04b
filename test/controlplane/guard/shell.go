package guard

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// Shell returns what runs a command as a reader of our pages would: in a folder
// that is its home, as cluster admin, with kubectl and nodewarden at hand. The
// output is that on both streams, also of a command that failed.
func Shell(ctx context.Context, cp *controlplane.ControlPlane, folder string) (func(command, stdin string) (string, error), error) {
	nodewarden, err := Build(ctx, cp, "nodewarden")
	if err != nil {
		return nil, err
	}
	kube, err := controlplane.Binary(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(folder, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return nil, err
	}
	for name, program := range map[string]string{"kubectl": kube, "nodewarden": nodewarden} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			return nil, err
		}
	}
	kubeconfig, err := cp.Kubeconfig(cp.Admin())
	if err != nil {
		return nil, err
	}
	return func(command, stdin string) (string, error) {
		cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+folder, "PATH="+bin+":"+os.Getenv("PATH"))
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}, nil
}
