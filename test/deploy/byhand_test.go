package deploy

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// The page's own lines, in a shell, after a stricter file had been applied.
func TestPoliciesAppliedByHandAsThePageSaysLeaveNothingOfAStricterFile(t *testing.T) {
	c := newCluster(t)
	script := regexp.MustCompile("(?s)## Policies applied by hand\n.*?```console\n(.*?)```").FindStringSubmatch(page(t, "upgrade.md"))
	if script == nil {
		t.Fatal("docs/upgrade.md has no such commands")
	}
	sh := c.shell()
	sh("nodewarden policy render --form policy --profile enforce | kubectl apply --server-side -f -")
	if strict, want := c.guards(), rendered(t, contract.Enforce); !slices.Equal(strict, want) {
		t.Fatalf("applied:\n%q\nrendered:\n%q", strict, want)
	}
	t.Cleanup(func() {
		sh("kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings -l app.kubernetes.io/name=nodewarden")
	})
	for line := range strings.Lines(script[1]) {
		command, isOne := strings.CutPrefix(line, "$ ")
		if !isOne {
			t.Fatalf("no command: %s", line)
		}
		sh(command)
	}
	if left, want := c.guards(), rendered(t, contract.WarnOnly); !slices.Equal(left, want) {
		t.Errorf("on the cluster:\n%q\nrendered:\n%q", left, want)
	}
	sh("nodewarden policy render --form policy --profile warn | kubectl diff --server-side -f -")
}

// shell runs commands of our pages.
func (c *cluster) shell() func(command string) {
	c.Helper()
	run, err := guard.Shell(context.WithoutCancel(c.ctx), c.ControlPlane, c.TempDir()) // for cleanups, too
	if err != nil {
		c.Fatal(err)
	}
	return func(command string) {
		c.Helper()
		if out, err := run(command, ""); err != nil {
			c.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// guards are the names of the policies and the bindings on the cluster.
func (c *cluster) guards() []string {
	c.Helper()
	policies, err := c.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(c.ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	bindings, err := c.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(c.ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var names []string
	for _, p := range policies.Items {
		names = append(names, "policy "+p.Name)
	}
	for _, b := range bindings.Items {
		names = append(names, "binding "+b.Name)
	}
	return slices.Sorted(slices.Values(names))
}

// rendered are the names that a profile's file has.
func rendered(t *testing.T, profile contract.Profile) []string {
	t.Helper()
	set, err := policy.Policies(contract.Default(profile), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range set.Guards {
		names = append(names, "policy "+g.Policy.Name)
		for _, b := range g.Bindings {
			names = append(names, "binding "+b.Name)
		}
	}
	return slices.Sorted(slices.Values(names))
}
