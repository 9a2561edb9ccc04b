package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

// program is nodewarden-webhook as a process, with the documented rights.
type program struct {
	*controlplane.Process
	address, aside string
}

// start starts the program with its certificates in dir.
func (s *scene) start(dir string) *program {
	s.Helper()
	binary, err := guard.Build(s.Context(), shared, "nodewarden-webhook")
	must(s.T, err)
	kubeconfig, err := shared.Kubeconfig(shared.ServiceAccount(s.name, "nodewarden-webhook"))
	must(s.T, err)
	p := &program{address: free(s.T), aside: free(s.T)}
	p.Process, err = shared.Run(s.Context(), controlplane.Command{Path: binary, Args: []string{
		"--bind-address=" + p.address, "--metrics-bind-address=" + p.aside, "--kubeconfig=" + kubeconfig, "--watch-nodes=false", "--drain=0s",
		"--tls-cert-file=" + filepath.Join(dir, "tls.crt"), "--tls-private-key-file=" + filepath.Join(dir, "tls.key"),
		"--self-managed-cert-secret=" + s.name + "/" + secretName, "--self-managed-cert-names=" + serviceName + ",127.0.0.1",
		"--webhook-configuration=" + s.name,
	}})
	must(s.T, err)
	s.Cleanup(p.Kill)
	return p
}

func free(t *testing.T) string {
	t.Helper()
	port, err := controlplane.FreePort()
	must(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// ready says why p is not ready.
func (p *program) ready(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

func (p *program) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.aside+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

// TestTheProgramRestartsWhileTheAPIServerIsAway is a container that is restarted
// in its pod when nothing can be asked: its files are still there.
func TestTheProgramRestartsWhileTheAPIServerIsAway(t *testing.T) {
	s := newScene(t)
	s.bind(s.granted())
	s.configure()
	dir := t.TempDir()
	p := s.start(dir)
	s.eventually("the program is ready", p.ready)
	s.announced()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.secret().Data["ca.crt"])
	believed := func(p *program) error {
		_, err := handshake(t.Context(), p.address, &tls.Config{RootCAs: pool, ServerName: serviceName, MinVersion: tls.VersionTLS12})
		return err
	}
	must(t, believed(p))
	page, err := p.get(t.Context(), "/metrics")
	must(t, err)
	if guard.Sum(page, "nodewarden_webhook_certs_ca_expiry_timestamp_seconds") <= guard.Sum(page, "nodewarden_webhook_certificate_expiry_timestamp_seconds") {
		t.Errorf("the authority should outlive the certificate:\n%s", page)
	}

	shared.KillAPIServer()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		must(t, shared.RestartAPIServer(ctx))
	}()
	p.Kill()
	p = s.start(dir)
	s.eventually("it is ready again", p.ready)
	must(t, believed(p))
}
