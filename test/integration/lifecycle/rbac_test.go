package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// TestTheRoleGrantsWhatIsUsedAndNoMore leads the controller through all that it
// does and then compares its role with the audit log, both ways.
func TestTheRoleGrantsWhatIsUsedAndNoMore(t *testing.T) {
	needsControlPlane(t)
	since := time.Now()
	doEverything(t)
	events, err := r.CP.Audit(controlplane.AuditFilter{User: rig.Username, Since: since, Where: func(e auditv1.Event) bool { return e.ObjectRef != nil }})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, e := range events {
		if e.ResponseStatus != nil && e.ResponseStatus.Code == 403 {
			t.Errorf("%s of %s was forbidden", e.Verb, e.RequestURI)
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		used[grantName(scopeOf(e), e.ObjectRef.APIGroup, resource, e.Verb)] = true
	}
	granted := grants("", rig.ClusterRules)
	for ns, rules := range rig.NamespaceRules {
		granted = append(granted, grants(ns, rules)...)
	}
	for _, g := range granted {
		if !used[g] && !slices.Contains(courtesies, g) {
			t.Errorf("granted and never used: %s", g)
		}
	}
}

// courtesies are granted for what client-go may do elsewhere: its recorder of
// leader election chooses the API group and repeats itself by patches, and a cache
// lists where an API server does not stream its first state.
var courtesies = []string{
	grantName(rig.Namespace, "", "events", "create"), grantName(rig.Namespace, "", "events", "patch"),
	grantName(rig.Namespace, "events.k8s.io", "events", "create"), grantName(rig.Namespace, "events.k8s.io", "events", "patch"),
	grantName("", "", "nodes", "list"),
	grantName(corev1.NamespaceNodeLease, "coordination.k8s.io", "leases", "list"),
}

// scopeOf is the namespace whose role allows a request, empty for the cluster's.
func scopeOf(e auditv1.Event) string {
	if e.ObjectRef.Resource == "leases" {
		return e.ObjectRef.Namespace
	}
	return ""
}

func grantName(scope, group, resource, verb string) string {
	return fmt.Sprintf("%s %s %q in %q", verb, resource, group, scope)
}

func grants(scope string, rules []rbacv1.PolicyRule) (out []string) {
	for _, rule := range rules {
		for _, g := range rule.APIGroups {
			for _, res := range rule.Resources {
				for _, v := range rule.Verbs {
					out = append(out, grantName(scope, g, res, v))
				}
			}
		}
	}
	return out
}

func doEverything(t *testing.T) {
	t.Helper()
	r.Ready(t, "z", "rbac-dead", "rbac-out", "rbac-up")
	label(t, "rbac-out", "pool", `"external"`)
	label(t, "rbac-up", "pool", `"external"`)
	r.Pod(t, "rbac-out", "rbac-p")
	r.Renew(t, "rbac-dead", time.Now())
	proxy := r.Proxy(t, r.CP.ServiceAccount(rig.Namespace, rig.Account))
	c := r.StartAs(t, proxy.Config(), rig.Fast, twoReplicas, []string{"--feature-gates=ExternalNodeLivenessDetection=true", "--external-nodes=pool"})
	rig.Eventually(t, soon, r.TaintsAre(t, "rbac-out"))
	proxy.Conflict(t, "/pods/rbac-p/status", 1)
	r.Detect(t, "rbac-out")
	rig.Eventually(t, soon, r.PodIs(t, "rbac-p", corev1.ConditionFalse))
	proxy.Conflict(t, "/nodes/rbac-dead", 1)
	rig.Eventually(t, soon, readyIs(t, "rbac-dead", corev1.ConditionUnknown))
	rig.Eventually(t, soon, r.TaintsAre(t, "rbac-dead", "unreachable:NoSchedule", "unreachable:NoExecute"))
	r.Forget(t, "rbac-dead")
	rig.Eventually(t, soon, r.EventsAre(t, "rbac-dead", "RemovingNode", 1))
	if _, err := r.Admin.CoordinationV1().Leases(rig.Namespace).Get(t.Context(), "nodewarden-controller", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	c.Stop()
}
