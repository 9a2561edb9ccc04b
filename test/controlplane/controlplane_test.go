package controlplane_test

import (
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestAPlainOneIsReadyInTenSeconds(t *testing.T) {
	start := time.Now()
	cp := controlplane.ForTest(t, controlplane.Options{})
	t.Logf("%s", time.Since(start))
	c := kubernetes.NewForConfigOrDie(cp.Kubelet("n1"))
	_, err := c.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	t.Logf("%v", err)
	_, err = c.CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{})
	t.Logf("%v", err)
	cm, err := cp.StartControllerManager(t.Context(), controlplane.CMOptions{Controllers: []string{"node-lifecycle-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := cm.Usage()
	t.Logf("%+v %v", u, err)
	m, err := cm.Metrics(t.Context())
	t.Logf("%d %v", len(m), err)
	t.Log(cm.Tail(30))
	start = time.Now()
	t.Cleanup(func() { cp.Stop(); t.Logf("stop %s", time.Since(start)) })
}
