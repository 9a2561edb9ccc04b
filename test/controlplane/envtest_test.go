package controlplane_test

import (
	"os"
	"testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func TestAnybodysEnvtestRunsOnOurBinary(t *testing.T) {
	skipIfShort(t)
	assets, err := controlplane.Assets(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := clientOf(t, config).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
