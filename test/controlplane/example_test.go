package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// A program that is no test starts a control plane, has the real node lifecycle
// controller watch three nodes, and lets one of them die.
func ExampleStart() {
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Options{Progress: os.Stderr})
	if err != nil {
		fmt.Println(err) // it ends with what the failing component wrote last
		return
	}
	defer func() { _ = cp.Stop() }()

	_, err = cp.StartControllerManager(ctx, controlplane.CMOptions{
		Controllers: []string{"node-lifecycle-controller"},
		Args:        []string{"--node-monitor-period=1s", "--node-monitor-grace-period=10s"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	nodes, err := cp.SimulateNodes(ctx, controlplane.SimOptions{
		Prefix: "n", Count: 3, Reporting: controlplane.Reporting{LeaseDuration: 4 * time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := nodes.Pause("n2"); err != nil {
		fmt.Println(err)
	}
}

// A test takes one that ends with it.
func ExampleForTest() {
	_ = func(t *testing.T) {
		cp := controlplane.ForTest(t, controlplane.Options{})
		if _, err := cp.Kubectl(t.Context(), cp.Kubelet("n1"), "get", "node", "n2"); err == nil {
			t.Error("a kubelet may read a node that is not its own")
		}
	}
}
