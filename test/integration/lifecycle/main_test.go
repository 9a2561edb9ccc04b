package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// r is the control plane that these tests share. Each test starts the controller
// it is about and takes its nodes away again, so that none meets another's.
var r *rig.Rig

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if controlplane.Short() {
		return m.Run()
	}
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = cp.Stop() }()
	defer rig.Clean()
	if r, err = rig.New(ctx, cp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// needsControlPlane skips a test that has none.
func needsControlPlane(t *testing.T) {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
}
