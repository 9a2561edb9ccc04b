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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/deploy/certs/issuing"
)

// Every documented value set is installed by helm, its servers run with the
// arguments that it renders, and `helm test`'s own program finds the guard as
// the profile says. Each server uses every right that it has and no other. An
// upgrade and a rollback take nothing away; then it is uninstalled, while a
// detector writes, and nothing is left but what docs/upgrade.md says.
func TestEveryDocumentedInstallGuardsAndLeavesNothingBehind(t *testing.T) {
	newCluster(t) // or skip
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			left := []string{"nodewarden-detector", "test-detector"}
			if name == "cert-manager" {
				left = append(left, c.certManager()...)
			}
			before := c.everything()
			since := time.Now()
			all := c.install(hurried(), "--values", example(t, name))
			servers := c.serve(all)
			c.settle(all)
			node := c.node(externalPool)

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
			if all[key("Deployment", namespace, "nodewarden-controller")] != nil {
				c.takesCare(detector, controllerMode(t, all))
			}
			for _, o := range all.ofKind("Deployment") {
				c.usesItsRights(all, o.GetName(), since)
			}

			c.helm("upgrade", release, chart, "--reuse-values", "--set", "webhook.logLevel=1")
			c.helm("rollback", release)
			if all[key("Deployment", namespace, "nodewarden-webhook")] != nil {
				if err := c.announced(c.ctx); err != nil {
					t.Errorf("upgrade or rollback took the authority away: %v", err)
				}
			}
			writes := c.writing(detector, node)
			c.helm("uninstall", release)
			if err := writes(); err != nil {
				t.Errorf("a correct report during the uninstall: %v", err)
			}
			c.nothingNew(before, left...)
		})
	}
}

// externalPool are the labels of a node that every documented value set leaves
// to the detector.
var externalPool = map[string]string{"node-restriction.kubernetes.io/liveness": "external"}

// hurried are values that let the controller's grace periods end within a test.
func hurried() values {
	return values{}.at("controller.nodeMonitorGracePeriod", "4s").
		at("controller.extraArgs", []string{"--node-monitor-period=500ms", "--node-startup-grace-period=4s"})
}

// certManager runs cert-manager's own controllers, and what collects the objects
// whose owners are gone, until the test ends. It returns what cert-manager keeps
// when a release is uninstalled.
func (c *cluster) certManager() []string {
	c.Helper()
	issuer, err := issuing.Start(c.ctx, c.ControlPlane)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(issuer.Kill)
	collector, err := c.StartControllerManager(c.ctx, controlplane.CMOptions{Controllers: []string{"garbage-collector-controller"}})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(collector.Kill)
	c.eventually("the garbage collector has its account", func(ctx context.Context) error {
		_, err := c.admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Get(ctx, "generic-garbage-collector", metav1.GetOptions{})
		return err
	})
	kept := []string{"nodewarden-webhook-tls", "nodewarden-authority"}
	c.Cleanup(func() {
		for _, name := range kept {
			if err := c.admin.CoreV1().Secrets(namespace).Delete(context.WithoutCancel(c.ctx), name, metav1.DeleteOptions{}); err != nil {
				c.Errorf("a Secret that docs/upgrade.md says is left: %v", err)
			}
		}
	})
	return kept
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
	c.usesItsRights(all, "nodewarden-webhook", since)
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
	c.eventually("the authority is announced", c.announced)
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
	since := time.Now()
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
	c.usesItsRights(hooks, pod.Spec.ServiceAccountName, since)
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
