package certs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nodewarden/nodewarden/test/deploy/certs/issuing"
)

const namespace = "nodewarden-system"

// manifests is what the chart renders for cert-manager.
func manifests(t *testing.T) []byte {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=tools/helm/go.mod", "helm", "template", "nodewarden", "deploy/chart",
		"--namespace", namespace, "--values", "deploy/chart/examples/cert-manager.yaml", "--show-only", "templates/certificates.yaml")
	cmd.Dir = root
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render the chart: %v\n%s", err, &complaint)
	}
	return out
}

// certManaged is a scene whose certificate comes from cert-manager.
type certManaged struct {
	*scene
	objects dynamic.Interface
}

func newCertManaged(t *testing.T) *certManaged {
	t.Helper()
	s := newScene(t)
	objects, err := dynamic.NewForConfig(shared.Admin())
	must(t, err)
	c := &certManaged{s, objects}
	p, err := issuing.Start(t.Context(), shared)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("cert-manager wrote last:\n%s", p.Tail(20))
		}
		p.Kill()
	})
	// The API server of the test goes by an address: it cannot reach a Service.
	text := bytes.ReplaceAll(manifests(t), []byte("  dnsNames:\n"), []byte("  ipAddresses: [127.0.0.1]\n  dnsNames:\n"))
	text = bytes.ReplaceAll(text, []byte("namespace: "+namespace), []byte("namespace: "+c.name))
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	must(t, os.WriteFile(file, text, 0o600))
	c.kubectl("apply", "--server-side", "-f", file)
	return c
}

func (c *certManaged) kubectl(args ...string) {
	c.Helper()
	if out, err := shared.Kubectl(c.Context(), shared.Admin(), args...); err != nil {
		c.Fatalf("%v\n%s", err, out)
	}
}

// annotate asks the CA injector for the bundle of our Certificate.
func (c *certManaged) annotate() {
	c.Helper()
	_, err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(c.Context(), c.name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"cert-manager.io/inject-ca-from":"%s/nodewarden-webhook"}}}`, c.name), metav1.PatchOptions{})
	must(c.T, err)
}

// injected waits until both entries hold the authority of the Secret. The
// injector leaves those of before beside it.
func (c *certManaged) injected() {
	c.Helper()
	c.eventually("both entries hold the authority of the Secret", func(ctx context.Context) error {
		live, err := c.configuration(ctx)
		if err != nil {
			return err
		}
		want := bytes.TrimSpace(c.secret().Data["ca.crt"])
		for i := range live.Webhooks {
			if len(want) == 0 || !bytes.Contains(live.Webhooks[i].ClientConfig.CABundle, want) {
				return fmt.Errorf("%s does not", live.Webhooks[i].Name)
			}
		}
		return nil
	})
}

// mount does for r what a kubelet does for a pod: it brings what the Secret
// holds to the files, all at once, and only at its next look.
func (c *certManaged) mount(r *replica, every time.Duration) {
	c.run(r, func(ctx context.Context) {
		var last *corev1.Secret
		for n := 0; ctx.Err() == nil; n++ {
			secret, err := c.admin.CoreV1().Secrets(c.name).Get(ctx, secretName, metav1.GetOptions{})
			if err == nil && len(secret.Data[corev1.TLSCertKey]) > 0 && (last == nil || last.ResourceVersion != secret.ResourceVersion) {
				if err := swap(r.dir, n, secret.Data); err != nil {
					c.Errorf("mount: %v", err)
				}
				last = secret
			}
			pause(ctx, every)
		}
	})
}

// swap replaces the folder that the files are links into.
func swap(dir string, n int, data map[string][]byte) error {
	generation := fmt.Sprintf("..%d", n)
	if err := os.Mkdir(filepath.Join(dir, generation), 0o700); err != nil {
		return err
	}
	for name, content := range data {
		if err := os.WriteFile(filepath.Join(dir, generation, name), content, 0o600); err != nil {
			return err
		}
	}
	next := filepath.Join(dir, "..next")
	if err := os.Symlink(generation, next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		return err
	}
	for name := range data {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

var certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}

// renew has a Certificate issued again before its time, as cmctl does, and
// waits until its Secret holds another one.
func (c *certManaged) renew(certificate, secret string) {
	c.Helper()
	before := c.held(secret)
	c.eventually(certificate+" is to be renewed", func(ctx context.Context) error {
		live, err := c.objects.Resource(certificates).Namespace(c.name).Get(ctx, certificate, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
		if err != nil {
			return err
		}
		conditions = append(conditions, map[string]any{
			"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
		if err := unstructured.SetNestedSlice(live.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		_, err = c.objects.Resource(certificates).Namespace(c.name).UpdateStatus(ctx, live, metav1.UpdateOptions{})
		return err
	})
	c.eventually(certificate+" is renewed", func(context.Context) error {
		if bytes.Equal(c.held(secret), before) {
			return fmt.Errorf("the Secret %s holds the same certificate", secret)
		}
		return nil
	})
}

func (c *certManaged) held(secret string) []byte {
	s, err := c.admin.CoreV1().Secrets(c.name).Get(c.Context(), secret, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s.Data[corev1.TLSCertKey]
}

// start puts two replicas in force, whose pods are mounted with a delay.
func (c *certManaged) start() *load {
	c.Helper()
	for range 2 {
		c.mount(c.serve(), time.Second)
	}
	c.ready(c.replicas...)
	c.configure()
	c.annotate()
	c.injected()
	c.believed()
	return c.underLoad()
}

func TestCertManagerRenewsWithoutALostHandshake(t *testing.T) {
	c := newCertManaged(t)
	l := c.start()
	for range 2 {
		c.renew("nodewarden-webhook", secretName)
		c.showsSecret()
	}
	c.renew("nodewarden-authority", "nodewarden-authority")
	c.renew("nodewarden-webhook", secretName)
	c.showsSecret()
	c.injected()
	if n := l.certificates(); n != 4 {
		t.Errorf("%d certificates were shown, want 4", n)
	}
	l.end(t)
}

func TestTheChartFitsCertManagersTypes(t *testing.T) {
	if shared == nil {
		t.Skip("builds cert-manager's controllers, which -short leaves out")
	}
	program, err := issuing.Build(shared)
	must(t, err)
	good := manifests(t)
	check := func(text []byte) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), program, "--check", "-")
		cmd.Stdin = io.NopCloser(bytes.NewReader(text))
		return cmd.CombinedOutput()
	}
	if out, err := check(good); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := check(bytes.ReplaceAll(good, []byte("renewBefore:"), []byte("renewalBefore:"))); err == nil || !bytes.Contains(out, []byte("renewalBefore")) {
		t.Errorf("a field that there is not is not found: %v: %s", err, out)
	}
}
