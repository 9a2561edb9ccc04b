package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestTheAPIServerKnowsUsersThatNobodyAnnounced(t *testing.T) {
	cp, ctx := shared(t)
	for name, c := range map[string]struct {
		config *rest.Config
		user   string
		groups []string
	}{
		"an administrator":   {cp.Admin(), "admin", []string{"system:masters"}},
		"a node's kubelet":   {cp.Kubelet("any"), "system:node:any", []string{"system:nodes"}},
		"a service account":  {cp.ServiceAccount("infra", "detector"), "system:serviceaccount:infra:detector", []string{"system:serviceaccounts", "system:serviceaccounts:infra"}},
		"somebody":           {cp.User("jane@example.com", "sre", "on-call"), "jane@example.com", []string{"sre", "on-call"}},
		"somebody groupless": {cp.User("system:kube-controller-manager"), "system:kube-controller-manager", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := clientOf(t, c.config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := append(slices.Clone(c.groups), "system:authenticated")
			groups := slices.Sorted(slices.Values(got.Status.UserInfo.Groups))
			if got.Status.UserInfo.Username != c.user || !slices.Equal(groups, slices.Sorted(slices.Values(want))) {
				t.Errorf("it is %s in %v, want %s in %v", got.Status.UserInfo.Username, groups, c.user, want)
			}
		})
	}
}

func TestANodeMayReadItselfAndNoOther(t *testing.T) {
	cp, ctx := shared(t)
	for _, name := range []string{"authorized-1", "authorized-2"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := clientOf(t, cp.Kubelet(name)).CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			t.Fatalf("a node registers itself: %v", err)
		}
	}
	nodes := clientOf(t, cp.Kubelet("authorized-1")).CoreV1().Nodes()
	if _, err := nodes.Get(ctx, "authorized-1", metav1.GetOptions{}); err != nil {
		t.Errorf("its own: %v", err)
	}
	if _, err := nodes.Get(ctx, "authorized-2", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another: %v", err)
	}
}

func TestAServiceAccountMayDoNothingUntilItIsAllowedTo(t *testing.T) {
	cp, ctx := shared(t)
	_, err := clientOf(t, cp.ServiceAccount("default", "detector")).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("it may list nodes: %v", err)
	}
}

func TestAKubeconfigWorksWithKubectl(t *testing.T) {
	cp, ctx := shared(t)
	out, err := cp.Kubectl(ctx, cp.User("jane", "system:masters"), "auth", "whoami")
	if err != nil || !strings.Contains(out, "jane") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = cp.Kubectl(ctx, cp.ServiceAccount("default", "nobody"), "get", "nodes")
	if err == nil || !strings.Contains(out, "forbidden") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = cp.Kubectl(ctx, cp.Admin(), "version")
	if err != nil || !strings.Contains(out, "Server Version: v1.37.2") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnImpossibleUserIsAnErrorOfTheFirstRequest(t *testing.T) {
	cp, ctx := shared(t)
	_, err := clientOf(t, cp.User("no\xffname")).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "sign a certificate") {
		t.Errorf("%v", err)
	}
}

func TestOurControllerManagerKnowsOurUsers(t *testing.T) {
	cp, ctx := shared(t)
	manager, err := cp.StartControllerManager(ctx, controlplane.CMOptions{Controllers: []string{"serviceaccount-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Stop()
	page, err := manager.Metrics(ctx)
	if err != nil || !strings.Contains(page, "workqueue_depth") {
		t.Errorf("%v, %d bytes", err, len(page))
	}
	eventually(ctx, t, func() error {
		_, err := clientOf(t, cp.Admin()).CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	made, err := cp.AwaitAudit(ctx, controlplane.AuditFilter{Verbs: []string{"create"}, Resource: "serviceaccounts", Namespace: "default"}, 1)
	if err != nil || made[0].User.Username != "system:serviceaccount:kube-system:service-account-controller" {
		t.Errorf("not the controller's own account: %v %v", err, made)
	}
}
