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
	sh := c.byHand(contract.Enforce)
	for _, command := range commands(t, "upgrade.md", "Policies applied by hand") {
		sh(command)
	}
	if left, want := c.guards(), rendered(t, contract.WarnOnly); !slices.Equal(left, want) {
		t.Errorf("on the cluster:\n%q\nrendered:\n%q", left, want)
	}
	sh("nodewarden policy render --form policy --profile warn | kubectl diff --server-side -f -")
}

// A slip in the first line renders nothing, and what is not rendered is deleted.
func TestPoliciesAppliedByHandWithASlipStayAsTheyAre(t *testing.T) {
	c := newCluster(t)
	c.byHand(contract.Enforce)
	try := c.attempts()
	for _, command := range commands(t, "upgrade.md", "Policies applied by hand") {
		slip := strings.Replace(command, "--profile warn", "--profile wran", 1)
		if out, err := try(slip, ""); slip != command && err == nil {
			t.Errorf("%s: no error\n%s", slip, out)
		}
	}
	if left, want := c.guards(), rendered(t, contract.Enforce); !slices.Equal(left, want) {
		t.Errorf("on the cluster:\n%q\napplied:\n%q", left, want)
	}
}

// Applying again neither shows nor takes away what somebody added to a policy;
// the runbook's check shows each kind of it, and its remedy takes it away.
func TestTheRunbookFindsAndMendsWhatWasAddedToAPolicy(t *testing.T) {
	c := newCluster(t)
	c.byHand(contract.Enforce)
	try, check := c.attempts(), commands(t, "runbook.md", "NodewardenGuardMissing")[0]
	for name, added := range map[string]struct{ to, patch, verdict string }{
		"a condition that never holds": {
			"validatingadmissionpolicy/reserved-reason.contract.nodewarden.dev",
			`{"op": "add", "path": "/spec/matchConditions/-", "value": {"name": "off", "expression": "false"}}`, "silence",
		},
		"a selector that no node has": { // of a rule that verify does not try
			"validatingadmissionpolicybinding/condition-dropped.contract.nodewarden.dev",
			`{"op": "add", "path": "/spec/matchResources", "value": {"objectSelector": {"matchLabels": {"no": "node"}}}}`, "refusal",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOn(t, c.ControlPlane)
			sh, again := c.shell(), "nodewarden policy render --form policy --profile enforce | kubectl apply --server-side -f -"
			if said := sh(check); said != "" {
				t.Fatalf("$ %s\nbefore anything was added:\n%s", check, said)
			}
			c.node(nil) // for verify
			sh("kubectl patch " + added.to + " --type=json -p '[" + added.patch + "]'")
			sh(again)
			sh("nodewarden verify --wait=30s --expect=" + added.verdict)
			said, err := try(check, "")
			if named := strings.Replace(added.to, "/", " ", 1); err == nil || !strings.Contains(strings.ToLower(said), named) {
				t.Errorf("$ %s\n%v\ndoes not name %s:\n%s", check, err, named, said)
			}
			sh("kubectl delete " + added.to)
			sh(again)
			sh("nodewarden verify --wait=30s")
			if said := sh(check); said != "" {
				t.Errorf("$ %s\nafter the remedy:\n%s", check, said)
			}
		})
	}
}

// A webhook's entry is silenced like a policy, and nothing else shows it.
func TestTheRunbookShowsWhatWasAddedToAnEntryOfTheWebhook(t *testing.T) {
	c := newCluster(t)
	sh := c.shell()
	apply := "nodewarden policy render --form webhook | kubectl apply --server-side -f -"
	sh(apply)
	t.Cleanup(func() { sh("kubectl delete validatingwebhookconfiguration nodewarden-contract") })
	check := commands(t, "runbook.md", "NodewardenWebhookUnconfigured")[0]
	before := sh(check)
	for _, added := range []string{
		`{"op": "add", "path": "/webhooks/0/matchConditions/-", "value": {"name": "off", "expression": "false"}}`,
		`{"op": "add", "path": "/webhooks/0/objectSelector/matchLabels", "value": {"no": "node"}}`,
	} {
		sh("kubectl patch validatingwebhookconfiguration nodewarden-contract --type=json -p '[" + added + "]'")
		if said := sh(check); said == before {
			t.Errorf("%s: does not show in\n%s", added, said)
		}
		sh("kubectl delete validatingwebhookconfiguration nodewarden-contract")
		sh(apply)
		if said := sh(check); said != before {
			t.Errorf("after the remedy:\n%s", said)
		}
	}
}

// byHand applies a profile's policies until the test ends, and returns the shell
// that it was done in.
func (c *cluster) byHand(profile contract.Profile) func(string) string {
	c.Helper()
	sh := c.shell()
	sh("nodewarden policy render --form policy --profile " + string(profile) + " | kubectl apply --server-side -f -")
	c.Cleanup(func() {
		sh("kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings -l app.kubernetes.io/name=nodewarden")
	})
	if all, want := c.guards(), rendered(c.T, profile); !slices.Equal(all, want) {
		c.Fatalf("applied:\n%q\nrendered:\n%q", all, want)
	}
	return sh
}

// commands are those that a section of a page shows, without what they print.
// One that goes on in the next line is one.
func commands(t *testing.T, name, section string) []string {
	t.Helper()
	script := regexp.MustCompile("(?s)\n##+ " + section + "\n.*?```console\n(.*?)```").FindStringSubmatch(page(t, name))
	if script == nil {
		t.Fatalf("docs/%s has no commands under %q", name, section)
	}
	var all []string
	for line := range strings.Lines(script[1]) {
		if command, begins := strings.CutPrefix(line, "$ "); begins {
			all = append(all, command)
		} else if continued, is := strings.CutPrefix(line, "  "); is && len(all) > 0 {
			all[len(all)-1] += continued
		}
	}
	return all
}

// shell runs commands of our pages, wants them to work, and returns what they print.
func (c *cluster) shell() func(command string) string {
	c.Helper()
	run := c.attempts()
	return func(command string) string {
		c.Helper()
		out, err := run(command, "")
		if err != nil {
			c.Fatalf("%s: %v\n%s", command, err, out)
		}
		return out
	}
}

// attempts runs commands of our pages that may fail.
func (c *cluster) attempts() func(command, stdin string) (string, error) {
	c.Helper()
	run, err := guard.Shell(context.WithoutCancel(c.ctx), c.ControlPlane, c.TempDir()) // for cleanups, too
	if err != nil {
		c.Fatal(err)
	}
	return run
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
