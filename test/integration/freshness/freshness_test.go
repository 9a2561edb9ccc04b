// Package freshness shows stalled writers to a real API server and reads what
// nodewarden-webhook makes of them.
package freshness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/test/controlplane"
	run "github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/nodes"
)

const (
	// patience bounds every wait in this package.
	patience = 60 * time.Second

	usual = "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\n"
	// quick makes a node stalled after three seconds.
	quick      = usual + "stalled: {statusReportPeriod: 1s, afterPeriods: 3}\n"
	quickAfter = 3 * time.Second
)

var shared *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if controlplane.Short() {
		return m.Run()
	}
	var err error
	if shared, err = controlplane.Start(context.Background(), controlplane.Options{}); err == nil {
		defer func() { _ = shared.Stop() }()
		err = grant(shared)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// account is a service account.
type account struct{ namespace, name string }

var (
	// webhook may look at nodes and nothing else.
	webhook = account{"nodewarden-system", "nodewarden-webhook"}
	// detector may record failures.
	detector = account{"liveness", "detector"}
)

func (a account) config() *rest.Config { return shared.ServiceAccount(a.namespace, a.name) }

func grant(cp *controlplane.ControlPlane) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		return err
	}
	return errors.Join(
		webhook.may(ctx, admin, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}}),
		detector.may(ctx, admin, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}),
	)
}

func (a account) may(ctx context.Context, admin kubernetes.Interface, what rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.name}, Rules: []rbacv1.PolicyRule{what}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: a.name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.name},
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// cluster is the shared control plane as one test sees it, without nodes at first.
type cluster struct {
	*testing.T
	admin kubernetes.Interface
}

func begin(t *testing.T) *cluster {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	c := &cluster{T: t, admin: client(t, shared.Admin())}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Errorf("delete the nodes of this test: %v", err)
		}
	})
	return c
}

func client(t testing.TB, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	c.Cleanup(cancel)
	return ctx
}

// create stores a node with the status it has, as a restore would.
func (c *cluster) create(n *corev1.Node) *corev1.Node {
	c.Helper()
	stored, err := c.admin.CoreV1().Nodes().Create(c.context(), n, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return stored
}

func (c *cluster) delete(name string) {
	c.Helper()
	if err := c.admin.CoreV1().Nodes().Delete(c.context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// started starts a webhook that watches nodes, and returns when it is ready.
func (c *cluster) started(policy string, args ...string) *run.Webhook {
	c.Helper()
	kubeconfig, err := shared.Kubeconfig(webhook.config())
	if err != nil {
		c.Fatal(err)
	}
	hook, err := run.Start(c.context(), shared, run.Options{Policy: policy, Args: append([]string{"--kubeconfig=" + kubeconfig}, args...)})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("the webhook wrote last:\n%s", hook.Tail(20))
		}
		hook.Kill()
	})
	return hook
}

// page is what is exported at a moment.
type page string

func (c *cluster) scrape(hook *run.Webhook) page {
	c.Helper()
	text, err := hook.Metrics(c.context())
	if err != nil {
		c.Fatal(err)
	}
	return page(text)
}

// has is whether there is a series with these labels.
func (p page) has(metric string, labels ...string) bool {
lines:
	for line := range strings.Lines(string(p)) {
		if !strings.HasPrefix(line, metric+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		return true
	}
	return false
}

func (p page) value(metric string, labels ...string) float64 {
	return run.Sum(string(p), metric, labels...)
}

// stalled says how p differs from a page that shows these nodes as stalled,
// and as many as that long Unknown.
func (p page) stalled(longUnknown int, names ...string) error {
	var errs []error
	if got := p.value("nodewarden_node_watch_synced"); got != 1 {
		errs = append(errs, errors.New("nodes are not listed"))
	}
	if got := p.value("nodewarden_stalled_nodes"); got != float64(len(names)) {
		errs = append(errs, fmt.Errorf("%v nodes are stalled, want %d", got, len(names)))
	}
	if got := p.value("nodewarden_node_ready_stalled"); got != float64(len(names)) {
		errs = append(errs, fmt.Errorf("%v nodes are named, want %d", got, len(names)))
	}
	for _, name := range names {
		if !p.has("nodewarden_node_ready_stalled", `node="`+name+`"`) {
			errs = append(errs, fmt.Errorf("%s is not named", name))
		}
	}
	if got := p.value("nodewarden_long_unknown_nodes"); got != float64(longUnknown) {
		errs = append(errs, fmt.Errorf("%v nodes are long Unknown, want %d", got, longUnknown))
	}
	return errors.Join(errs...)
}

// about is the part of p that a failure should show.
func (p page) about() string {
	var b strings.Builder
	for line := range strings.Lines(string(p)) {
		if strings.HasPrefix(line, "nodewarden_") && !strings.HasPrefix(line, "nodewarden_webhook_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// eventually scrapes until a page is as wanted, and returns it.
func eventually(t *testing.T, scrape func() page, want func(page) error) page {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		p := scrape()
		err := want(p)
		if err == nil {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("never seen: %v\nlast scraped:\n%s", err, p.about())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// always scrapes for a while, and every page must be as wanted.
func always(t *testing.T, long time.Duration, scrape func() page, want func(page) error) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if p := scrape(); want(p) != nil {
			t.Fatalf("%v\nscraped:\n%s", want(p), p.about())
		}
	}
}

// trio are the nodes of case B31: n1 is stalled, n2 reports, n3 was recorded as
// failed three hours ago.
func trio(now time.Time) []*corev1.Node {
	since := now.Add(-24 * time.Hour)
	n3 := nodes.Reporting("n3", since, now.Add(-3*time.Hour-time.Minute)).Node()
	r := nodes.Ready(n3)
	r.Status, r.Reason, r.LastTransitionTime = corev1.ConditionUnknown, "OutOfBandProbeFailed", metav1.NewTime(now.Add(-3*time.Hour))
	return []*corev1.Node{
		nodes.Reporting("n1", since, now.Add(-20*time.Minute)).Node(),
		nodes.Reporting("n2", since, now).Node(),
		n3,
	}
}
