package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// The API server's own admission judges our pods by the strictest standard.
func TestOurPodsMeetTheRestrictedStandard(t *testing.T) {
	c := newCluster(t)
	for level, admits := range map[string]bool{"restricted": true, "privileged": true} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "standard-" + level, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level}}}
		if _, err := c.admin.CoreV1().Namespaces().Create(c.ctx, ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		each(t, func(t *testing.T, all objects) {
			for name, spec := range pods(t, all) {
				_, err := c.admin.CoreV1().Pods(ns.Name).Create(c.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if spec.HostNetwork && level == "restricted" {
					if err == nil || !strings.Contains(err.Error(), "host namespaces") {
						t.Errorf("%s on the host's network: %v", name, err)
					}
				} else if (err == nil) != admits {
					t.Errorf("%s under %s: %v", name, level, err)
				}
			}
		})
	}
}

// pods are all pods that a rendering leads to.
func pods(t *testing.T, all objects) map[string]corev1.PodSpec {
	t.Helper()
	found := map[string]corev1.PodSpec{}
	for name := range all.ofKind("Deployment") {
		found[name] = deployment(t, all, name).Spec.Template.Spec
	}
	for name := range all.ofKind("Pod") {
		found[name] = typed[corev1.Pod](t, all, "Pod", name).Spec
	}
	return found
}

// right is one thing that a role lets an account do.
type right struct{ namespace, group, resource, name, verb string }

func (r right) String() string {
	return fmt.Sprintf("%s %s %q %q in %q", r.verb, r.resource, r.group, r.name, r.namespace)
}

// covers says whether a request needs this right: a name or a namespace that the
// right does not give stands for all of them.
func (r right) covers(e auditv1.Event) bool {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return r.verb == e.Verb && r.group == e.ObjectRef.APIGroup && r.resource == resource &&
		(r.name == "" || r.name == e.ObjectRef.Name) && (r.namespace == "" || r.namespace == e.ObjectRef.Namespace)
}

// seldom are rights that are granted for what need not happen in a test: a cache
// lists where an API server does not stream its first state, as this one does; a
// write that met somebody else's is decided again on a fresh copy, which the tests
// of the controller provoke; and client-go's recorder of elections chooses its API
// group, and repeats itself by patches.
var seldom = []right{
	{"", "", "nodes", "", "list"},
	{"kube-node-lease", "coordination.k8s.io", "leases", "", "list"},
	{"", "", "nodes", "", "get"},
	{"", "", "pods", "", "get"},
	{namespace, "", "events", "", "create"},
	{namespace, "", "events", "", "patch"},
	{namespace, "events.k8s.io", "events", "", "create"},
	{namespace, "events.k8s.io", "events", "", "patch"},
}

// usesItsRights compares what an account was granted with what the audit log says
// that it did, both ways.
func (c *cluster) usesItsRights(all objects, account string, since time.Time) {
	c.Helper()
	rights := granted(c.T, all, account)
	var did []auditv1.Event
	c.eventually(account+" uses every right", func(context.Context) (err error) {
		did, err = c.Audit(controlplane.AuditFilter{
			User: "system:serviceaccount:" + namespace + ":" + account, Since: since, Where: func(e auditv1.Event) bool { return e.ObjectRef != nil },
		})
		for _, r := range rights {
			if !slices.Contains(seldom, r) && !slices.ContainsFunc(did, r.covers) {
				err = errors.Join(err, fmt.Errorf("granted and never used: %s", r))
			}
		}
		return err
	})
	for _, e := range did {
		if !slices.ContainsFunc(rights, func(r right) bool { return r.covers(e) }) || e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden {
			c.Errorf("%s used what it was not granted: %s %s", account, e.Verb, e.RequestURI)
		}
	}
}

// granted is what the roles bound to a server's account let it do.
func granted(t *testing.T, all objects, account string) []right {
	t.Helper()
	var list []right
	add := func(namespace string, rules []rbacv1.PolicyRule) { list = append(list, spread(namespace, rules)...) }
	for _, o := range all {
		switch {
		case o.GetName() != account:
		case o.GetKind() == "ClusterRole":
			add("", typed[rbacv1.ClusterRole](t, all, "ClusterRole", account).Rules)
		case o.GetKind() == "Role":
			one := objects{key("Role", o.GetNamespace(), o.GetName()): o}
			add(o.GetNamespace(), typed[rbacv1.Role](t, one, "Role", account).Rules)
		}
	}
	return list
}

// spread are the single rights that rules give.
func spread(namespace string, rules []rbacv1.PolicyRule) (list []right) {
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						list = append(list, right{namespace, group, resource, name, verb})
					}
				}
			}
		}
	}
	return list
}

// Every right of the controller, those included that are used seldom, was seen to
// be used in its own tests; here it is granted that.
func TestTheControllerIsGrantedWhatItsTestsSawItUse(t *testing.T) {
	want := map[right]bool{}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, r := range spread(namespace, rules) {
			if r.resource == "leases" && namespace != "kube-node-lease" && r.verb != "create" {
				r.name = "nodewarden-controller"
			}
			want[r] = true
		}
	}
	add("", rig.ClusterRules)
	for in, rules := range rig.NamespaceRules {
		if in == rig.Namespace {
			in = namespace
		}
		add(in, rules)
	}
	got := map[right]bool{}
	for _, r := range granted(t, render(t, values{}.at("controller.mode", "replace")), "nodewarden-controller") {
		got[r] = true
		if !want[r] {
			t.Errorf("granted, and seen to be used by nobody: %s", r)
		}
	}
	for r := range want {
		if !got[r] {
			t.Errorf("used, and not granted: %s", r)
		}
	}
}
