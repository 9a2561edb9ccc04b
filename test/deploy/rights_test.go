package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// The webhook is led through all that it does, and its rights are compared with
// the audit log, both ways.
func TestTheWebhookUsesEveryRightItHasAndNoOther(t *testing.T) {
	c := newCluster(t)
	since := time.Now()
	all := c.install(values{})
	c.serve(all)
	c.settle(all)
	c.noneForbidden(since)

	account := "system:serviceaccount:" + namespace + ":nodewarden-webhook"
	used := map[string]bool{}
	c.eventually("every right is used", func(context.Context) error {
		events, err := c.Audit(controlplane.AuditFilter{User: account, Since: since})
		if err != nil {
			return err
		}
		for _, e := range events {
			if ref := e.ObjectRef; ref != nil {
				used[grant(ref.Namespace, ref.APIGroup, ref.Resource, ref.Subresource, ref.Name, e.Verb)] = true
			}
		}
		for _, g := range granted(t, all, "nodewarden-webhook") {
			if !used[g] && g != listing {
				return fmt.Errorf("granted and never used: %s", g)
			}
		}
		return nil
	})
	for u := range used {
		if !slices.Contains(granted(t, all, "nodewarden-webhook"), u) {
			t.Errorf("used beyond what was granted: %s", u)
		}
	}
}

// listing is how a watch begins where an API server does not stream its first
// state: this one does.
var listing = grant("", "", "nodes", "", "", "list")

func grant(namespace, group, resource, subresource, name, verb string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return fmt.Sprintf("%s %s %q %q in %q", verb, resource, group, name, namespace)
}

// granted is what the roles bound to a server's account let it do.
func granted(t *testing.T, all objects, account string) []string {
	t.Helper()
	var list []string
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			names := r.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						for _, name := range names {
							list = append(list, grant(namespace, group, resource, "", name, verb))
						}
					}
				}
			}
		}
	}
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

// What the controller uses is compared with the audit log where it is tested;
// here it is granted that and, since its Lease is there already, nothing to
// create one.
func TestTheControllerIsGrantedWhatItsTestsSawItUse(t *testing.T) {
	all := render(t, values{}.at("controller.mode", "replace"))
	want := map[string]bool{}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						name := ""
						if resource == "leases" && namespace != "kube-node-lease" {
							name = "nodewarden-controller"
						}
						want[grant(namespace, group, resource, "", name, verb)] = true
					}
				}
			}
		}
	}
	add("", rig.ClusterRules)
	for in, rules := range rig.NamespaceRules {
		if in == rig.Namespace {
			in = namespace
		}
		add(in, rules)
	}
	delete(want, grant(namespace, "coordination.k8s.io", "leases", "", "nodewarden-controller", "create"))
	got := map[string]bool{}
	for _, g := range granted(t, all, "nodewarden-controller") {
		got[g] = true
	}
	if !maps.Equal(got, want) {
		for g := range got {
			if !want[g] {
				t.Errorf("granted, and seen to be used by nobody: %s", g)
			}
		}
		for w := range want {
			if !got[w] {
				t.Errorf("used, and not granted: %s", w)
			}
		}
	}
}
