package deploy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Beside the in-tree controller ours needs less, and is granted less: that must
// still be enough to do what it is there for.
func TestBesideTheInTreeControllerTheSmallerRoleIsEnough(t *testing.T) {
	c := newCluster(t)
	since := time.Now()
	c.install(values{}, "--values", example(t, "managed"), "--set", "install=policy-alone")
	controller := c.start("nodewarden-controller")
	node := c.node(nil)
	pod := c.pod(node)
	c.eventually("the controller leads", func(ctx context.Context) error {
		l, err := c.admin.CoordinationV1().Leases(namespace).Get(ctx, "nodewarden-controller", metav1.GetOptions{})
		if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
			err = errors.New("nobody leads")
		}
		return err
	})

	if err := record(c.ctx, c.detector(), node, ownWord, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the pod of the node is marked", func(ctx context.Context) error {
		p, err := c.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
	c.eventually("the failure is told of", func(ctx context.Context) error {
		events, err := c.admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=NodeNotReady,involvedObject.name=" + node})
		if err == nil && len(events.Items) != 1 {
			err = fmt.Errorf("%d events", len(events.Items))
		}
		return err
	})
	controller.Stop()
	c.noneForbidden(since)
}

// pod is a ready pod on a node.
func (c *cluster) pod(node string) *corev1.Pod {
	c.Helper()
	pods := c.admin.CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	made, err := pods.Create(c.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		now := int64(0)
		_ = pods.Delete(context.WithoutCancel(c.ctx), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	made.Status.Phase = corev1.PodRunning
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if made, err = pods.UpdateStatus(c.ctx, made, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	return made
}
