// Package guard plays the contract's cases, and the public failures that it is
// made for, through a real API server in front of a real webhook.
package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/conformance"
	"github.com/nodewarden/nodewarden/test/controlplane"
	run "github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/witness"
	"github.com/nodewarden/nodewarden/webhook/config"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

const enforce = "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\nprofile: enforce\n"

// patience bounds every wait in this package.
const patience = 60 * time.Second

// cluster is a control plane with a webhook in force.
type cluster struct {
	*testing.T
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
	hook  *run.Webhook
}

var (
	shared     *controlplane.ControlPlane
	nodeNumber int
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &shared)) }

// guarded starts a webhook with a policy file and puts it in force, alone and
// failing closed.
func guarded(t *testing.T, file string) *cluster {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	return guardedOn(t, shared, file)
}

// guardedOn is guarded, on a control plane of the test's own.
func guardedOn(t *testing.T, cp *controlplane.ControlPlane, file string) *cluster {
	t.Helper()
	c := &cluster{T: t, cp: cp, admin: client(t, cp.Admin())}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if c.hook, err = run.Start(ctx, c.cp, run.Options{Policy: file}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the webhook wrote last:\n%s", c.hook.Tail(20))
		}
		c.hook.Kill()
	})
	c.configure(file, c.hook.URL, c.hook.CA)
	c.grant("detector", conformance.Detector.User)
	return c
}

func (c *cluster) configure(file, url string, ca []byte) {
	c.Helper()
	parsed, err := config.Parse([]byte(file))
	if err != nil {
		c.Fatal(err)
	}
	hooks, err := policy.Webhooks(parsed.Policy(), policy.WebhookOptions{Install: policy.WebhookAlone, URL: url, CABundle: ca})
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), patience)
	defer cancel()
	if err := run.Configure(ctx, c.admin, hooks); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.WithoutCancel(ctx), hooks.Name, metav1.DeleteOptions{})
	})
	c.awaitForce(url)
}

// awaitForce returns once the API server asks the webhook at url.
func (c *cluster) awaitForce(url string) {
	c.Helper()
	n := c.reporting()
	c.eventually("the webhook at "+url+" is in force", func(ctx context.Context) error {
		before, err := c.hook.Metrics(ctx)
		if err != nil {
			return err
		}
		body := []byte(`{"status":{"conditions":[{"type":"Ready","message":"probe"}]}}`)
		_, _ = c.admin.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		after, err := c.hook.Metrics(ctx)
		if err != nil {
			return err
		}
		if run.Sum(after, "nodewarden_webhook_reviews_total") == run.Sum(before, "nodewarden_webhook_reviews_total") {
			return fmt.Errorf("not asked yet")
		}
		return nil
	})
}

func (c *cluster) eventually(what string, try func(context.Context) error) {
	c.Helper()
	witness.Eventually(c.T, patience, what, try)
}

func client(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// as is a client of an identity, with the warnings it was given.
func (c *cluster) as(cfg *rest.Config) (kubernetes.Interface, *witness.Warnings) {
	c.Helper()
	w := &witness.Warnings{}
	cfg.WarningHandlerWithContext = w
	return client(c.T, cfg), w
}

// grant lets a user write nodes/status, and nodes where a case needs it.
func (c *cluster) grant(name, user string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "create", "update", "patch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	if _, err := c.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
	if _, err := c.admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
}

// stage creates the case's node and lets its kubelet report what the case
// begins with. It returns the case moved to the instant at which the API server
// took that report, and the node as it is stored.
func (c *cluster) stage(k conformance.Case) (conformance.Case, *corev1.Node) {
	c.Helper()
	nodeNumber++
	k = k.On(fmt.Sprintf("n%d", nodeNumber))
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	bare := k.Before.DeepCopy()
	bare.Status = corev1.NodeStatus{}
	if _, err := c.admin.CoreV1().Nodes().Create(ctx, bare, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	kubelet := client(c.T, c.cp.Kubelet(k.Before.Name))
	for ctx.Err() == nil {
		now := time.Now().Truncate(time.Second)
		moved := k.At(now)
		stored, err := report(ctx, kubelet, moved.Before)
		if err != nil {
			c.Fatal(err)
		}
		if spoke, _ := contract.ReadyTimes(stored.ManagedFields); spoke.Equal(now) {
			c.awaitCache(stored)
			return moved, stored
		}
	}
	c.Fatal("no report was taken in the second in which it was sent")
	return k, nil
}

// awaitCache waits until the API server's watch cache has caught up with n. A
// patch is first tried, and reviewed, on the cached Node; when that was stale it
// is tried and reviewed again, and its author gets the warnings of both.
func (c *cluster) awaitCache(n *corev1.Node) {
	c.Helper()
	c.eventually("the watch cache catches up", func(ctx context.Context) error {
		cached, err := c.admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{ResourceVersion: "0"})
		if err == nil && cached.ResourceVersion != n.ResourceVersion {
			err = fmt.Errorf("it has %s of %s", cached.ResourceVersion, n.ResourceVersion)
		}
		return err
	})
}

// report is a status write by the node's kubelet.
func report(ctx context.Context, kubelet kubernetes.Interface, n *corev1.Node) (*corev1.Node, error) {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": n.Status.Conditions}})
	if err != nil {
		return nil, err
	}
	return kubelet.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
}

// reporting is a fresh node whose kubelet has reported.
func (c *cluster) reporting() *corev1.Node {
	c.Helper()
	_, n := c.stage(conformance.Cases()[1])
	return n
}

// after is the stored node with what the case's writer makes of it.
func after(stored *corev1.Node, k conformance.Case) *corev1.Node {
	n := stored.DeepCopy()
	n.Status.Conditions = k.After.Status.Conditions
	for key, value := range k.After.Annotations {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
	}
	return n
}

var bracket = regexp.MustCompile(`\[([A-Za-z]+(?:,[A-Za-z]+)*)\]`)

// told returns the rules that an error or warnings name in their brackets.
func told(texts ...string) []contract.Rule {
	var rules []contract.Rule
	for _, text := range texts {
		for _, found := range bracket.FindAllStringSubmatch(text, -1) {
			for _, name := range strings.Split(found[1], ",") {
				if r := contract.Rule(name); r.Known() && !slices.Contains(rules, r) {
					rules = append(rules, r)
				}
			}
		}
	}
	return rules
}

// policyFile is conformance.Policy as a file.
func policyFile(rule contract.Rule) string {
	switch rule {
	case contract.SignalTooYoung:
		return enforce + fmt.Sprintf("rules: {SignalTooYoung: deny}\nsignalPersistence: %s\n", conformance.Persistence)
	case contract.UnauthorizedDetector:
		return enforce + fmt.Sprintf("rules: {UnauthorizedDetector: deny}\ndetectors: [{serviceAccount: {namespace: liveness, name: detector}, nodeSelector: {matchLabels: {%s: a}}}]\n", conformance.PoolLabel)
	default:
		return enforce
	}
}

func TestEveryRuleThroughTheAPIServer(t *testing.T) {
	byFile := map[string][]conformance.Case{}
	for _, k := range conformance.Cases() {
		byFile[policyFile(k.Rule)] = append(byFile[policyFile(k.Rule)], k)
	}
	played := map[string]int{}
	for file, cases := range byFile {
		c := guarded(t, file)
		detector, given := c.as(c.cp.ServiceAccount("liveness", "detector"))
		for _, k := range cases {
			for _, f := range flavours() {
				if !f.can(k.Before, k.After) {
					continue
				}
				played[f.name]++
				t.Run(fmt.Sprintf("%s/%s by %s", k.Rule, k.Name, f.name), func(t *testing.T) {
					c := &cluster{T: t, cp: c.cp, admin: c.admin, hook: c.hook}
					c.play(k, f, detector, given)
				})
			}
		}
		c.hook.Kill()
	}
	for _, f := range flavours() {
		if played[f.name] < 30 {
			t.Errorf("only %d cases were played by %s", played[f.name], f.name)
		}
	}
}

// play sends the case's write and compares what came of it.
func (c *cluster) play(k conformance.Case, f flavour, detector kubernetes.Interface, given *witness.Warnings) {
	c.Helper()
	k, stored := c.stage(k)
	if k.Silence > 0 {
		time.Sleep(k.Silence + time.Second) // the API server's clock is the one that counts here
	}
	given.Take()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	err := f.send(ctx, detector, stored, after(stored, k))
	refuses := k.Broken && ruleDenies(k.Rule)
	switch {
	case refuses && !apierrors.IsInvalid(err):
		c.Fatalf("want a refusal with code 422, got %v", err)
	case !refuses && err != nil:
		c.Fatalf("want it admitted, got %v", err)
	}
	texts := given.Take()
	var want []contract.Rule
	if k.Broken {
		want = []contract.Rule{k.Rule}
	}
	if err != nil {
		texts = append(texts, err.Error())
		if !slices.Equal(causes(err), want) {
			c.Errorf("causes %v, want %v in %v", causes(err), want, err)
		}
	}
	if got := told(texts...); !slices.Equal(got, want) {
		c.Errorf("told %v, want %v: %q", got, want, texts)
	}
}

func ruleDenies(r contract.Rule) bool {
	p := conformance.Policy(r)
	return p.Action(r) == contract.Deny
}

func causes(err error) []contract.Rule {
	var rules []contract.Rule
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			rules = append(rules, contract.Rule(cause.Type))
		}
	}
	return rules
}
