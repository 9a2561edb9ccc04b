package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/nodes"
)

// patience bounds every wait.
const patience = 60 * time.Second

// services is where Services get their addresses: loopback, so that what
// stands in for kube-proxy can listen on them.
const services = "127.64.0.0/16"

var started struct {
	once sync.Once
	cp   *controlplane.ControlPlane
	err  error
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	defer func() {
		if started.cp != nil {
			_ = started.cp.Stop()
		}
	}()
	return m.Run()
}

// cluster is the control plane that the tests of this package take turns on.
type cluster struct {
	*testing.T
	*controlplane.ControlPlane
	ctx        context.Context
	admin      kubernetes.Interface
	kubeconfig string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	started.once.Do(func() {
		started.cp, started.err = controlplane.Start(context.Background(), controlplane.Options{APIServerArgs: []string{"--service-cluster-ip-range=" + services}})
	})
	if started.err != nil {
		t.Fatal(started.err)
	}
	return clusterOn(t, started.cp)
}

// clusterOn is a control plane that has just started, with what tests need of it.
func clusterOn(t *testing.T, cp *controlplane.ControlPlane) *cluster {
	t.Helper()
	c := &cluster{T: t, ControlPlane: cp, ctx: t.Context(), admin: client(t, cp.Admin())}
	var err error
	if c.kubeconfig, err = c.Kubeconfig(c.Admin()); err != nil {
		t.Fatal(err)
	}
	c.eventually("the API server has made a Service of its own", func(ctx context.Context) error {
		_, err := c.admin.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
	return c
}

func client(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // told on purpose, and often
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// helm runs helm against the cluster and wants it to work.
func (c *cluster) helm(args ...string) string {
	c.Helper()
	out, err := helm(c.T, c.kubeconfig, append(args, "--namespace", namespace)...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// install installs the chart until the test ends.
func (c *cluster) install(v values, args ...string) objects {
	c.Helper()
	c.helm(append([]string{"install", release, chart, "--create-namespace", "--values", v.file(c.T)}, args...)...)
	c.Cleanup(func() {
		if _, err := helm(c.T, c.kubeconfig, "uninstall", release, "--namespace", namespace, "--ignore-not-found"); err != nil {
			c.Error(err)
		}
		_ = c.admin.RbacV1().ClusterRoles().Delete(context.WithoutCancel(c.ctx), "nodewarden-detector", metav1.DeleteOptions{})
	})
	return c.installed()
}

// installed is what the release is made of.
func (c *cluster) installed() objects {
	c.Helper()
	all, err := parse(c.helm("get", "manifest", release))
	if err != nil {
		c.Fatal(err)
	}
	return all
}

// eventually tries until it works.
func (c *cluster) eventually(what string, try func(context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("never seen: %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// everything names every object in the cluster, apart from what it makes by itself.
func (c *cluster) everything() map[string]bool {
	c.Helper()
	lists, err := c.admin.Discovery().ServerPreferredResources()
	if err != nil {
		c.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "create"}}, lists)
	cfg := c.Admin()
	cfg.WarningHandlerWithContext = rest.NoWarnings{} // it lists what is deprecated, too
	all, err := metadata.NewForConfig(cfg)
	if err != nil {
		c.Fatal(err)
	}
	names := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			c.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains([]string{"events", "nodes", "namespaces", "flowschemas", "prioritylevelconfigurations"}, r.Name) {
				continue
			}
			found, err := all.Resource(gv.WithResource(r.Name)).List(c.ctx, metav1.ListOptions{})
			if err != nil {
				c.Fatalf("list %s: %v", r.Name, err)
			}
			for _, o := range found.Items {
				names[fmt.Sprintf("%s %s/%s", r.Name, o.Namespace, o.Name)] = true
			}
		}
	}
	return names
}

var nodeNumber int

// node is a fresh node whose kubelet has just reported, after an hour of doing so.
func (c *cluster) node(labels map[string]string) string {
	c.Helper()
	name := c.create(labels)
	if err := c.report(name); err != nil {
		c.Fatal(err)
	}
	return name
}

// silentNode is a node whose kubelet never reports.
func (c *cluster) silentNode() string {
	c.Helper()
	return c.create(nil)
}

func (c *cluster) create(labels map[string]string) string {
	c.Helper()
	nodeNumber++
	name := fmt.Sprintf("n%d", nodeNumber)
	b := nodes.Named(name)
	for key, value := range labels {
		b.Label(key, value)
	}
	if _, err := c.admin.CoreV1().Nodes().Create(c.ctx, b.Node(), metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = c.admin.CoreV1().Nodes().Delete(context.WithoutCancel(c.ctx), name, metav1.DeleteOptions{})
	})
	return name
}

// report is the node's own kubelet saying that all is well.
func (c *cluster) report(node string) error {
	n := nodes.Reporting(node, time.Now().Add(-time.Hour), time.Now()).Node()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": n.Status.Conditions}})
	if err != nil {
		return err
	}
	kubelet, err := kubernetes.NewForConfig(c.Kubelet(node))
	if err != nil {
		return err
	}
	_, err = kubelet.CoreV1().Nodes().Patch(c.ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	return err
}

// detector is the account that the documented value sets name, with the rights
// of the chart's ClusterRole.
func (c *cluster) detector() kubernetes.Interface {
	c.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-detector"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nodewarden-detector"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "liveness", Name: "detector"}},
	}
	if _, err := c.admin.RbacV1().ClusterRoleBindings().Create(c.ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = c.admin.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(c.ctx), binding.Name, metav1.DeleteOptions{})
	})
	return client(c.T, c.ServiceAccount("liveness", "detector"))
}

// record reports a failure of the node with that reason.
func record(ctx context.Context, detector kubernetes.Interface, node, reason string, o metav1.PatchOptions) error {
	body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":%q,"message":"no answer from 3 of 3 observers","lastTransitionTime":%q}]}}`,
		reason, time.Now().Add(time.Second).UTC().Format(time.RFC3339))
	_, err := detector.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(body), o, "status")
	return err
}

const (
	reserved = "NodeStatusUnknown"
	ownWord  = "OutOfBandProbeFailed"
)

var dryRun = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}

// refusedBy is who refused a write, or why none did.
func refusedBy(err error) (string, error) {
	switch {
	case err == nil:
		return "", errors.New("was admitted")
	case !apierrors.IsInvalid(err):
		return "", err
	case strings.Contains(err.Error(), "admission webhook"):
		return "webhook", nil
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return "policy", nil
	}
	return "", err
}

// example reads a documented value set.
func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(chart, "examples", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// examples are the names of all documented value sets.
func examples(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(chart, "examples", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no documented value sets: %v", err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(p), ".yaml"))
	}
	return names
}

// createSecret makes what certificates.mode provided asks for.
func (c *cluster) createSecret(name string, data map[string][]byte) {
	c.Helper()
	if _, err := c.admin.CoreV1().Namespaces().Create(c.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: corev1.SecretTypeTLS, Data: data}
	if _, err := c.admin.CoreV1().Secrets(namespace).Create(c.ctx, s, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = c.admin.CoreV1().Secrets(namespace).Delete(context.WithoutCancel(c.ctx), name, metav1.DeleteOptions{})
	})
}
