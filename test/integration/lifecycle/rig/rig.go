// Package rig runs nodewarden-controller beside a test control plane and writes
// to the API server as kubelets and outside detectors do.
package rig

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

// Who acts in a rig.
const (
	Namespace  = "nodewarden-system"
	Account    = "nodewarden-controller"
	Username   = "system:serviceaccount:" + Namespace + ":" + Account
	Pods       = "workloads"
	detectorNS = "liveness"
	detector   = "detector"
)

// Rig is a control plane with the accounts that the tests need.
type Rig struct {
	CP       *controlplane.ControlPlane
	Admin    kubernetes.Interface
	Detector kubernetes.Interface
}

// New prepares a control plane: namespaces, the controller's own role and a
// detector that may write node statuses.
func New(ctx context.Context, cp *controlplane.ControlPlane) (*Rig, error) {
	admin, err := client(cp.Admin())
	if err != nil {
		return nil, fmt.Errorf("connect as admin: %w", err)
	}
	det, err := client(cp.ServiceAccount(detectorNS, detector))
	if err != nil {
		return nil, fmt.Errorf("connect as detector: %w", err)
	}
	r := &Rig{CP: cp, Admin: admin, Detector: det}
	for _, ns := range []string{Namespace, Pods} {
		_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create namespace %s: %w", ns, err)
		}
	}
	if err := r.grant(ctx, Account, Namespace, ClusterRules, NamespaceRules); err != nil {
		return nil, err
	}
	return r, r.grant(ctx, detector, detectorNS, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}, nil)
}

// patience is how long a request may go unanswered, so that none holds a test past
// its own deadline for long.
const patience = 30 * time.Second

// client is how a rig speaks to the API server.
func client(c *rest.Config) (kubernetes.Interface, error) {
	c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return impatient{rt} })
	return kubernetes.NewForConfig(c)
}

// impatient gives up a request that is not answered. The timeout of a client would
// end watches too, which may last once they have begun.
type impatient struct{ http.RoundTripper }

func (i impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	late := time.AfterFunc(patience, cancel)
	resp, err := i.RoundTripper.RoundTrip(req.WithContext(ctx))
	if !late.Stop() && err != nil {
		err = fmt.Errorf("no answer within %v: %w", patience, err)
	}
	return resp, err
}

// ClusterRules and NamespaceRules are all that the controller may do. Tests
// compare them with what it did.
var (
	ClusterRules = []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
	}
	NamespaceRules = map[string][]rbacv1.PolicyRule{
		corev1.NamespaceNodeLease: {{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch"}}},
		Namespace: {
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		},
	}
)

func (r *Rig) grant(ctx context.Context, account, ns string, cluster []rbacv1.PolicyRule, namespaced map[string][]rbacv1.PolicyRule) error {
	to := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: ns}}
	name := metav1.ObjectMeta{Name: "test-" + account}
	rbac := r.Admin.RbacV1()
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name.Name}
	}
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name, Rules: cluster}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref("ClusterRole"), Subjects: to}, metav1.CreateOptions{})
	}
	for in, rules := range namespaced {
		if err == nil {
			_, err = rbac.Roles(in).Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: rules}, metav1.CreateOptions{})
		}
		if err == nil {
			_, err = rbac.RoleBindings(in).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref("Role"), Subjects: to}, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("grant %s its role: %w", account, err)
	}
	return nil
}

// clean removes the folder of the binary, once there is one.
var clean = func() {}

var build = sync.OnceValues(func() (string, error) {
	dir, remove, err := controlplane.TempDir("nodewarden-controller-")
	if err != nil {
		return "", err
	}
	clean = remove
	path := filepath.Join(dir, "nodewarden-controller")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nodewarden/nodewarden/cmd/nodewarden-controller").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build nodewarden-controller: %w\n%s", err, out)
	}
	return path, nil
})

// Binary is the controller, built once a process. It goes with the process, and
// sooner with Clean.
func Binary() (string, error) { return build() }

// Clean removes what Binary built, at the end of a test binary.
func Clean() { clean() }

// Controller is a running nodewarden-controller.
type Controller struct {
	*controlplane.Process
	// URL is where it serves health and metrics.
	URL string
}

// Fast are flags that make grace periods short enough to wait for.
var Fast = []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=4s", "--node-startup-grace-period=4s"}

// External are the flags of external mode.
var External = []string{"--feature-gates=ExternalNodeLivenessDetection=true", "--node-liveness-source=external"}

// Alone turns leader election off, for a test that runs one controller.
var Alone = []string{"--leader-elect=false"}

// Start runs a controller that ends with the test, as its own service account.
func (r *Rig) Start(t testing.TB, args ...[]string) *Controller {
	t.Helper()
	return r.StartAs(t, r.CP.ServiceAccount(Namespace, Account), args...)
}

// Launch runs a controller as somebody, until it is stopped or the control plane
// ends.
func (r *Rig) Launch(ctx context.Context, as *rest.Config, args ...[]string) (*Controller, error) {
	path, err := Binary()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := r.CP.Kubeconfig(as)
	if err != nil {
		return nil, err
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	all := []string{"--kubeconfig=" + kubeconfig, "--metrics-bind-address=" + address, "--v=1"}
	for _, a := range args {
		all = append(all, a...)
	}
	url := "http://" + address
	p, err := r.CP.Run(ctx, controlplane.Command{Name: "nodewarden-controller", Path: path, Args: all, Ready: func(ctx context.Context) error {
		_, err := fetch(ctx, url+"/readyz")
		return err
	}})
	if err != nil {
		return nil, err
	}
	return &Controller{Process: p, URL: url}, nil
}

// Metrics is the controller's metrics page.
func (c *Controller) Metrics(ctx context.Context) (string, error) {
	return fetch(ctx, c.URL+"/metrics")
}

// Eventually asks until there is no error, and fails with the last one.
func Eventually(t testing.TB, within time.Duration, ask func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = ask(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %v", within, err)
}

// Never asks for a while and fails with the first error.
func Never(t testing.TB, during time.Duration, ask func() error) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
}

// StartAs is Start as somebody else, such as through a Proxy.
func (r *Rig) StartAs(t testing.TB, as *rest.Config, args ...[]string) *Controller {
	t.Helper()
	c, err := r.Launch(t.Context(), as, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || os.Getenv("NODEWARDEN_LOGS") != "" {
			t.Logf("what %s wrote last:\n%s", c.Name, c.Tail(40))
		}
		c.Stop()
	})
	return c
}
