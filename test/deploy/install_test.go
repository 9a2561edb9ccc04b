package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

// Every documented value set is installed by helm, its servers run with the
// arguments that it renders, and `helm test`'s own program finds the guard as
// the profile says. Then it is uninstalled, while a detector writes, and nothing
// is left but the role of that detector.
func TestEveryDocumentedInstallGuardsAndLeavesNothingBehind(t *testing.T) {
	newCluster(t) // or skip
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			if name == "cert-manager" {
				t.Skip("is played with cert-manager's own controllers, in the tests of certificates")
			}
			c := newCluster(t)
			before := c.everything()
			since := time.Now()
			all := c.install(values{}, "--values", example(t, name))
			servers := c.serve(all)
			if len(all.ofKind("Deployment")) > 0 {
				c.settle(all)
			}
			node := c.node(map[string]string{"node-restriction.kubernetes.io/liveness": "external"})

			c.verify()
			detector := c.detector()
			c.eventually("a correct report is admitted", func(ctx context.Context) error { return record(ctx, detector, node, ownWord, dryRun) })
			if err := c.report(node); err != nil {
				t.Errorf("the kubelet's own report: %v", err)
			}
			for _, s := range servers {
				if s.ports["webhook"] != "" {
					c.asked(s)
				}
			}
			c.noneForbidden(since)

			writes := c.writing(detector, node)
			c.helm("uninstall", release)
			if err := writes(); err != nil {
				t.Errorf("a correct report during the uninstall: %v", err)
			}
			c.nothingNew(before, "nodewarden-detector", "test-detector")
		})
	}
}

// With a certificate that somebody else made, the webhook has no right but the
// one to watch nodes, and is trusted by what the values say.
func TestAProvidedCertificateIsServed(t *testing.T) {
	c := newCluster(t)
	chain, key, err := cert.GenerateSelfSignedCertKey("nodewarden-webhook."+namespace+".svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.createSecret("mine", map[string][]byte{"tls.crt": chain, "tls.key": key})
	since := time.Now()
	v := values{"install": "webhook-alone"}.at("policy.profile", "enforce").at("certificates.mode", "provided").
		at("certificates.secretName", "mine").at("certificates.caBundle", string(chain))
	all := c.install(v)
	c.serve(all)
	c.settle(all)
	c.node(nil)
	c.verify()
	c.noneForbidden(since)
	for _, g := range granted(t, all, "nodewarden-webhook") {
		if !strings.Contains(g, " nodes ") {
			t.Errorf("granted without need: %s", g)
		}
	}
}

// serve starts one replica of everything that was installed, and exposes it.
func (c *cluster) serve(all objects) []*process {
	c.Helper()
	var servers []*process
	for _, name := range []string{"nodewarden-webhook", "nodewarden-controller"} {
		if all[key("Deployment", namespace, name)] != nil {
			servers = append(servers, c.start(name))
		}
	}
	if len(servers) > 0 && servers[0].ports["webhook"] != "" {
		c.expose(servers[0])
	}
	return servers
}

// settle does what is left to do once the servers are ready: a configuration
// that fails closed comes with the next upgrade, and the server then gives it
// its authority.
func (c *cluster) settle(all objects) {
	c.Helper()
	server := all[key("Deployment", namespace, "nodewarden-webhook")]
	if server == nil {
		return
	}
	if len(all.ofKind("ValidatingWebhookConfiguration")) == 0 {
		status := []byte(`{"status":{"replicas":2,"readyReplicas":2,"availableReplicas":2}}`)
		if _, err := c.admin.AppsV1().Deployments(namespace).Patch(c.ctx, server.GetName(), types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
			c.Fatal(err)
		}
		c.helm("upgrade", release, chart, "--reuse-values")
	}
	if all[key("Secret", namespace, "nodewarden-webhook-tls")] != nil {
		c.eventually("the authority is announced", c.announced)
	}
}

// announced says why API servers do not trust the webhook yet.
func (c *cluster) announced(ctx context.Context) error {
	w, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "nodewarden-contract", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, entry := range w.Webhooks {
		if len(entry.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("%s has no caBundle", entry.Name)
		}
	}
	return nil
}

// verify does what `helm test` does: it makes the test's account, runs the
// Pod's program with the Pod's arguments, and takes all of it away.
func (c *cluster) verify() {
	c.Helper()
	hooks, err := parse(c.helm("get", "hooks", release))
	if err != nil {
		c.Fatal(err)
	}
	pod := &corev1.Pod{}
	for k, o := range hooks {
		if o.GetKind() == "Pod" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, pod, true); err != nil {
				c.Fatal(err)
			}
			delete(hooks, k)
		}
	}
	defer c.apply(hooks)()
	program, err := guard.Build(c.ctx, c.ControlPlane, "nodewarden")
	if err != nil {
		c.Fatal(err)
	}
	account := c.kubeconfigOf(c.ServiceAccount(namespace, pod.Spec.ServiceAccountName))
	out, err := exec.Command(program, append(pod.Spec.Containers[0].Args, "--kubeconfig="+account)...).CombinedOutput()
	if err != nil {
		c.Errorf("helm test would fail: %v\n%s", err, out)
	}
	c.Logf("%s", out)
}

// apply applies objects server-side, and returns what deletes them again.
func (c *cluster) apply(all objects) func() {
	c.Helper()
	file := filepath.Join(c.TempDir(), "objects.json")
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, o := range all {
		list.Items = append(list.Items, *o)
	}
	text, err := list.MarshalJSON()
	if err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		c.Fatal(err)
	}
	if _, err := c.Kubectl(c.ctx, c.Admin(), "apply", "--server-side", "-f", file); err != nil {
		c.Fatal(err)
	}
	return func() {
		if _, err := c.Kubectl(context.WithoutCancel(c.ctx), c.Admin(), "delete", "-f", file, "--ignore-not-found"); err != nil {
			c.Error(err)
		}
	}
}

// asked wants the webhook to have judged something.
func (c *cluster) asked(server *process) {
	c.Helper()
	page, err := get(c.ctx, "http://"+server.ports["metrics"]+"/metrics")
	if err != nil {
		c.Fatal(err)
	}
	if guard.Sum(page, "nodewarden_webhook_reviews_total") == 0 {
		c.Error("the webhook was never asked")
	}
}

// noneForbidden wants our servers to have had every right that they used.
func (c *cluster) noneForbidden(since time.Time) {
	c.Helper()
	events, err := c.Audit(controlplane.AuditFilter{Since: since, Where: func(e auditv1.Event) bool {
		return strings.HasPrefix(e.User.Username, "system:serviceaccount:"+namespace) && e.ResponseStatus != nil && e.ResponseStatus.Code == 403
	}})
	if err != nil {
		c.Fatal(err)
	}
	for _, e := range events {
		c.Errorf("%s may not %s %s", e.User.Username, e.Verb, e.RequestURI)
	}
}

// writing reports a failure again and again, correctly, until the returned
// function is called, which tells of the first report that was not admitted.
func (c *cluster) writing(detector kubernetes.Interface, node string) func() error {
	ctx, stop := context.WithCancel(c.ctx)
	failed := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := record(ctx, detector, node, ownWord, dryRun); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	return func() error { stop(); return <-failed }
}

// nothingNew wants the cluster to be as it was, apart from the names given.
func (c *cluster) nothingNew(before map[string]bool, but ...string) {
	c.Helper()
	c.eventually("nothing is left behind", func(context.Context) error {
		var left []string
		for name := range c.everything() {
			if !before[name] && !slices.ContainsFunc(but, func(b string) bool { return strings.HasSuffix(name, "/"+b) }) {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			slices.Sort(left)
			return fmt.Errorf("left behind: %s", strings.Join(left, ", "))
		}
		return nil
	})
}
