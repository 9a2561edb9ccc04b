// Package guard runs nodewarden's own servers beside a control plane of
// package controlplane: it compiles them from the clone it is used in, gives
// them certificates and a policy, and tells the API server where they are.
//
// It judges nothing and waits for nothing but readiness.
package guard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/nodewarden/nodewarden/test/controlplane"
)

const module = "github.com/nodewarden/nodewarden"

var compiling sync.Mutex // one compiler at a time is enough for the machine

// Build compiles one of our binaries and returns its path, which goes with cp.
func Build(ctx context.Context, cp *controlplane.ControlPlane, name string) (string, error) {
	compiling.Lock()
	defer compiling.Unlock()
	path := filepath.Join(cp.Dir(), "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, module+"/cmd/"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s (run this in a clone of the repository): %w\n%s", name, err, out)
	}
	return path, nil
}

// Webhook is a running nodewarden-webhook.
type Webhook struct {
	*controlplane.Process
	// URL is where reviews go, as the API server should call it.
	URL string
	// CA is the bundle that verifies the server, as PEM.
	CA []byte
	// Aside is the address of /healthz, /readyz and /metrics.
	Aside string
}

// Options say how a webhook differs from one in the warn profile.
type Options struct {
	// Policy is the text of the policy file; empty means none.
	Policy string
	// Args come after our own flags.
	Args []string
}

// Start starts a webhook and returns when it is ready.
func Start(ctx context.Context, cp *controlplane.ControlPlane, o Options) (*Webhook, error) {
	binary, err := Build(ctx, cp, "nodewarden-webhook")
	if err != nil {
		return nil, err
	}
	serving, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	aside, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cp.Dir(), "webhook-")
	if err != nil {
		return nil, err
	}
	ca, err := writeFiles(dir, o.Policy)
	if err != nil {
		return nil, err
	}
	w := &Webhook{URL: "https://" + address(serving) + "/validate", Aside: "http://" + address(aside), CA: ca}
	args := []string{
		"--bind-address=" + address(serving), "--metrics-bind-address=" + address(aside),
		"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key"),
	}
	if o.Policy != "" {
		args = append(args, "--config="+filepath.Join(dir, "policy.yaml"))
	}
	w.Process, err = cp.Run(ctx, controlplane.Command{Path: binary, Args: append(args, o.Args...), Ready: func(ctx context.Context) error {
		_, err := w.get(ctx, "/readyz")
		return err
	}})
	return w, err
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// writeFiles writes the policy and a certificate for the loopback address, and
// returns the bundle that verifies it.
func writeFiles(dir, policy string) ([]byte, error) {
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"tls.crt": chain, "tls.key": key, "policy.yaml": []byte(policy)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// Metrics is the webhook's metrics page.
func (w *Webhook) Metrics(ctx context.Context) (string, error) { return w.get(ctx, "/metrics") }

func (w *Webhook) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Aside+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// Sum adds up the samples of a metric, read from a metrics page, whose label
// sets contain all of the given fragments, such as `verdict="refused"`.
func Sum(page, metric string, fragments ...string) float64 {
	var sum float64
	for line := range strings.Lines(page) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		base, labels, _ := strings.Cut(name, "{")
		if base != metric {
			continue
		}
		// A label value may hold spaces: the value is what stands last.
		labels += " " + rest
		value := labels[strings.LastIndexByte(labels, ' ')+1:]
		if v, err := strconv.ParseFloat(value, 64); err == nil && containsAll(labels, fragments) {
			sum += v
		}
	}
	return sum
}

func containsAll(s string, fragments []string) bool {
	for _, f := range fragments {
		if !strings.Contains(s, f) {
			return false
		}
	}
	return true
}

// Configure puts a webhook configuration in force, replacing one of the same name.
func Configure(ctx context.Context, client kubernetes.Interface, c *admissionv1.ValidatingWebhookConfiguration) error {
	hooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(ctx, c, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	old, err := hooks.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	c = c.DeepCopy()
	c.ResourceVersion = old.ResourceVersion
	_, err = hooks.Update(ctx, c, metav1.UpdateOptions{})
	return err
}
