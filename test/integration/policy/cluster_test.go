package policy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/witness"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// patience bounds every wait in this package.
const patience = 60 * time.Second

var shared *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &shared)) }

// cluster is a control plane on which one test installs enforcers.
type cluster struct {
	*testing.T
	cp    *controlplane.ControlPlane
	admin kubernetes.Interface
}

// fresh is the shared control plane without any enforcer.
func fresh(t *testing.T) *cluster {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	c := on(t, shared)
	c.uninstall()
	return c
}

func on(t *testing.T, cp *controlplane.ControlPlane) *cluster {
	t.Helper()
	cfg := cp.Admin()
	cfg.WarningHandler = rest.NoWarnings{}
	admin, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t, cp, admin}
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), patience)
	c.Cleanup(cancel)
	return ctx
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// uninstall deletes every admission object, as an admin in a hurry would.
func (c *cluster) uninstall() {
	c.Helper()
	ctx, api := c.ctx(), c.admin.AdmissionregistrationV1()
	all := metav1.ListOptions{}
	c.must(api.ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	c.must(api.ValidatingAdmissionPolicies().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	c.must(api.ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
}

// apply server-side applies a rendered file with kubectl.
func (c *cluster) apply(file policy.File) {
	c.Helper()
	name := filepath.Join(c.TempDir(), file.Name)
	c.must(os.WriteFile(name, file.Text, 0o600))
	if out, err := c.cp.Kubectl(c.ctx(), c.cp.Admin(), "apply", "--server-side", "-f", name); err != nil {
		c.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

func (c *cluster) installPolicies(p contract.Policy) {
	c.Helper()
	file, err := policy.RenderPolicies(p, policy.Version{Major: 1, Minor: 37})
	c.must(err)
	c.apply(file)
}

func (c *cluster) installWebhook(p contract.Policy, install policy.Install, url string, ca []byte) {
	c.Helper()
	file, err := policy.RenderWebhooks(p, policy.WebhookOptions{Install: install, URL: url, CABundle: ca})
	c.must(err)
	c.apply(file)
}

// webhook starts a webhook that enforces.
func (c *cluster) webhook() *guard.Webhook {
	c.Helper()
	w, err := guard.Start(c.ctx(), c.cp, guard.Options{Policy: "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\nprofile: enforce\n"})
	c.must(err)
	c.Cleanup(w.Kill)
	return w
}

var nodes struct {
	sync.Mutex
	count int
}

// reporting is a new node that its kubelet reported True a minute ago, by the
// kubelet's clock.
func (c *cluster) reporting() string {
	c.Helper()
	nodes.Lock()
	nodes.count++
	name := fmt.Sprint("node-", nodes.count)
	nodes.Unlock()
	_, err := c.admin.CoreV1().Nodes().Create(c.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}, metav1.CreateOptions{})
	c.must(err)
	c.must(c.report(name, "True"))
	return name
}

// report is a kubelet's patch of its own node's status.
func (c *cluster) report(node string, status corev1.ConditionStatus) error {
	now := time.Now().UTC()
	return c.patch(c.cp.Kubelet(node), node, fmt.Sprintf(
		`{"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":%q,"reason":"KubeletReady","message":"kubelet is posting ready status","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		status, now.Format(time.RFC3339), now.Add(-time.Minute).Format(time.RFC3339)))
}

func (c *cluster) patch(as *rest.Config, node, body string, dryRun ...string) error {
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), patience)
	defer cancel()
	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{DryRun: dryRun}, "status")
	return err
}

// The writes of a detector: an administrator, so that RBAC plays no part.

func (c *cluster) detector() *rest.Config { return c.cp.User("detector", "system:masters") }

// failure is a write of Unknown with a reason, stamped a second ahead, so that
// it is later than the kubelet's last word.
func failure(reason string) string {
	return fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":%q,"message":"no answer for a minute","lastTransitionTime":%q}]}}`,
		reason, time.Now().UTC().Add(2*time.Second).Format(time.RFC3339))
}

func (c *cluster) writeBad(node string) error {
	return c.patch(c.detector(), node, failure("NodeStatusUnknown"))
}

// rehearseBad is the bad write as a dry run: should it be admitted, it leaves
// the node as it was.
func (c *cluster) rehearseBad(node string) error {
	return c.patch(c.detector(), node, failure("NodeStatusUnknown"), metav1.DryRunAll)
}

func (c *cluster) writeGood(node string) error {
	return c.patch(c.detector(), node, failure("OutOfBandProbeFailed"))
}

// refusedBy says why err is not the contract's refusal of the bad write.
func refusedBy(err error, enforcer string) error {
	switch {
	case err == nil:
		return errors.New("the bad write was admitted")
	case !apierrors.IsInvalid(err):
		return fmt.Errorf("not refused by the contract: %w", err)
	case !strings.Contains(err.Error(), "["+string(contract.ReservedReason)+"]") || !strings.Contains(err.Error(), enforcer):
		return fmt.Errorf("refused with another message: %w", err)
	}
	return nil
}

// eventually polls until try succeeds.
func (c *cluster) eventually(what string, try func() error) {
	c.Helper()
	witness.Eventually(c.T, patience, what, func(context.Context) error { return try() })
}

// inForce waits until a bad write is refused by an enforcer. Policies are loaded
// one by one, so it asks for the very refusal that the tests expect.
func (c *cluster) inForce(enforcer string) {
	c.Helper()
	node := c.reporting()
	c.eventually("a bad write refused by "+enforcer, func() error { return refusedBy(c.rehearseBad(node), enforcer) })
}

// within fails when something takes longer than it should or errs.
func (c *cluster) within(limit time.Duration, what string, do func() error) {
	c.Helper()
	start := time.Now()
	if err := do(); err != nil {
		c.Errorf("%s: %v", what, err)
	}
	if took := time.Since(start); took > limit {
		c.Errorf("%s took %v, want at most %v", what, took, limit)
	}
}

// lifecycleWrites is what the in-tree node lifecycle controller does to a node
// whose kubelet is silent.
func (c *cluster) lifecycleWrites(node string) error {
	as := c.cp.User("system:serviceaccount:kube-system:node-controller", "system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters")
	return c.patch(as, node, failure("NodeStatusUnknown"))
}
