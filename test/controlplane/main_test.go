package controlplane_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// plane is shared by all tests that do not start one of their own. Each test
// uses its own node names on it.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse()
	if how := os.Getenv(fateEnv); how != "" {
		meet(how)
		return
	}
	os.Exit(controlplane.Main(m, &plane))
}

// shared is the control plane of this package, and a context for one test.
func shared(t *testing.T) (*controlplane.ControlPlane, context.Context) {
	t.Helper()
	if plane == nil {
		t.Skip("needs a control plane, which -short leaves out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return plane, ctx
}

func clientOf(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually asks until check returns nil, and fails with its last error.
func eventually(ctx context.Context, t *testing.T, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%v, and no longer waited: %v", err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
