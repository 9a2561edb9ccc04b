package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// controllerMode is the mode that a rendered controller runs in.
func controllerMode(t *testing.T, all objects) string {
	t.Helper()
	mode, _ := argument(deployment(t, all, "nodewarden-controller"), "mode")
	return mode
}

// takesCare wants the installed controller to do what its mode is for when a
// detector records a failure and, where it replaces the in-tree one, when a node
// never reports at all.
func (c *cluster) takesCare(detector kubernetes.Interface, mode string) {
	c.Helper()
	c.eventually("the controller leads", c.isLed)
	if err := c.admin.CoordinationV1().Leases(namespace).Delete(c.ctx, "nodewarden-controller", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	c.eventually("the controller leads after its Lease was deleted", c.isLed)
	node := c.node(externalPool)
	pod := c.pod(node)
	defer c.deletePod(pod)
	if err := record(c.ctx, detector, node, ownWord, metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
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
	if mode != "replace" {
		return
	}
	c.eventually("the node is tainted", c.isTainted(node))
	silent := c.silentNode()
	c.eventually("a node that never reports is marked", func(ctx context.Context) error {
		n, err := c.admin.CoreV1().Nodes().Get(ctx, silent, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(n.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionUnknown
		}) {
			err = fmt.Errorf("conditions %+v", n.Status.Conditions)
		}
		return err
	})
}

func (c *cluster) isLed(ctx context.Context) error {
	l, err := c.admin.CoordinationV1().Leases(namespace).Get(ctx, "nodewarden-controller", metav1.GetOptions{})
	if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
		err = errors.New("nobody leads")
	}
	return err
}

func (c *cluster) isTainted(node string) func(context.Context) error {
	return func(ctx context.Context) error {
		n, err := c.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeUnreachable && taint.Effect == corev1.TaintEffectNoExecute
		}) {
			err = fmt.Errorf("taints %+v", n.Spec.Taints)
		}
		return err
	}
}

// pod is a ready pod on a node, until the test ends or it is deleted.
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
	c.Cleanup(func() { c.deletePod(made) })
	made.Status.Phase = corev1.PodRunning
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if made, err = pods.UpdateStatus(c.ctx, made, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	return made
}

func (c *cluster) deletePod(pod *corev1.Pod) {
	now := int64(0)
	_ = c.admin.CoreV1().Pods(pod.Namespace).Delete(context.WithoutCancel(c.ctx), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}
