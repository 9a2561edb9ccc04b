package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/controlplane"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func TestTheAuditLogTellsWhoWroteWhat(t *testing.T) {
	cp, ctx := shared(t)
	kubelet := clientOf(t, cp.Kubelet("audited")).CoreV1().Nodes()
	if _, err := kubelet.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "audited"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	if _, err := kubelet.Patch(ctx, "audited", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	events, err := cp.AwaitAudit(ctx, controlplane.AuditFilter{
		User: "system:node:audited", Verbs: []string{"patch"}, Resource: "nodes", Subresource: "status", Name: "audited",
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	e := events[0]
	if string(e.RequestObject.Raw) != body {
		t.Errorf("the request was %s", e.RequestObject.Raw)
	}
	if !strings.Contains(string(e.ResponseObject.Raw), `"type":"Ready"`) || e.ResponseStatus.Code != 200 {
		t.Errorf("the response was %d %s", e.ResponseStatus.Code, e.ResponseObject.Raw)
	}
}

func TestTheAuditLogKeepsReadsAndLeasesWithoutTheirBodies(t *testing.T) {
	cp, ctx := shared(t)
	if _, err := clientOf(t, cp.User("reader", "system:masters")).CoordinationV1().Leases("kube-node-lease").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	events, err := cp.AwaitAudit(ctx, controlplane.AuditFilter{User: "reader", Resource: "leases"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if e := events[0]; e.Level != auditv1.LevelMetadata || e.Verb != "list" || e.ResponseObject != nil {
		t.Errorf("%+v", e)
	}
}

func TestAnAuditFilterSelectsByEveryField(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	event := auditv1.Event{
		Verb:                     "patch",
		RequestReceivedTimestamp: metav1.NewMicroTime(at),
		ObjectRef:                &auditv1.ObjectReference{Resource: "pods", Subresource: "status", Namespace: "default", Name: "a"},
	}
	event.User.Username = "jane"
	for name, c := range map[string]struct {
		filter controlplane.AuditFilter
		want   bool
	}{
		"nothing asked":        {controlplane.AuditFilter{}, true},
		"its user":             {controlplane.AuditFilter{User: "jane"}, true},
		"another user":         {controlplane.AuditFilter{User: "joe"}, false},
		"one of two verbs":     {controlplane.AuditFilter{Verbs: []string{"update", "patch"}}, true},
		"another verb":         {controlplane.AuditFilter{Verbs: []string{"update"}}, false},
		"another resource":     {controlplane.AuditFilter{Resource: "nodes"}, false},
		"another subresource":  {controlplane.AuditFilter{Subresource: "binding"}, false},
		"another namespace":    {controlplane.AuditFilter{Namespace: "kube-system"}, false},
		"another name":         {controlplane.AuditFilter{Name: "b"}, false},
		"since just then":      {controlplane.AuditFilter{Since: at}, true},
		"since later":          {controlplane.AuditFilter{Since: at.Add(time.Second)}, false},
		"a question that fits": {controlplane.AuditFilter{Where: func(e auditv1.Event) bool { return e.Verb == "patch" }}, true},
		"one that does not":    {controlplane.AuditFilter{Where: func(auditv1.Event) bool { return false }}, false},
	} {
		if got := c.filter.Matches(event); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRulesOfOnesOwnComeBeforeTheUsualOnes(t *testing.T) {
	skipIfShort(t)
	cp := controlplane.ForTest(t, controlplane.Options{AuditRules: []auditv1.PolicyRule{{
		Level: auditv1.LevelRequest, Verbs: []string{"create"}, Resources: []auditv1.GroupResources{{Resources: []string{"configmaps"}}},
	}}})
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}
	if _, err := clientOf(t, cp.User("writer", "system:masters")).CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	events, err := cp.AwaitAudit(t.Context(), controlplane.AuditFilter{User: "writer", Resource: "configmaps"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if events[0].RequestObject == nil {
		t.Error("the request's body is missing")
	}
}
