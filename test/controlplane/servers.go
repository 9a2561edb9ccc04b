package controlplane

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func (cp *ControlPlane) startEtcd(ctx context.Context) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	client, peer := loopback("http", ports[0]), loopback("http", ports[1])
	cp.etcdURL = client
	cp.etcd, err = cp.launch(role("etcd", append([]string{
		"--data-dir=" + filepath.Join(cp.dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", "--log-level=warn",
	}, cp.opts.EtcdArgs...)))
	if err != nil {
		return err
	}
	return cp.etcd.await(ctx, answers(http.DefaultClient, client+"/health"))
}

func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	if cp.port == 0 {
		ports, err := freePorts(1)
		if err != nil {
			return err
		}
		cp.port = ports[0]
	}
	p, err := cp.launch(role("kube-apiserver", cp.apiServerArgs()))
	if err != nil {
		return err
	}
	cp.mu.Lock()
	cp.apiserver = p
	cp.mu.Unlock()
	client, err := rest.HTTPClientFor(cp.Admin())
	if err != nil {
		return err
	}
	return p.await(ctx, answers(client, cp.Admin().Host+"/readyz?verbose"))
}

func (cp *ControlPlane) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + cp.etcdURL,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", cp.port),
		"--tls-cert-file=" + cp.file("serving.crt"), "--tls-private-key-file=" + cp.file("serving.key"),
		"--client-ca-file=" + cp.file("ca.crt"),
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.file("tokens.key"), "--service-account-signing-key-file=" + cp.file("tokens.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--audit-policy-file=" + cp.file("audit-policy.yaml"), "--audit-log-path=" + cp.AuditLog(),
		"--audit-log-maxsize=4000",
	}
	if !cp.opts.ServiceAccountAdmission {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if cp.opts.AdmissionConfig != "" {
		args = append(args, "--admission-control-config-file="+cp.opts.AdmissionConfig)
	}
	args = append(args, gates(cp.opts.FeatureGates)...)
	return append(args, cp.opts.APIServerArgs...)
}

// awaitNamespaces waits for the namespaces that an API server makes for itself
// just after it says that it is ready.
func (cp *ControlPlane) awaitNamespaces(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		return err
	}
	return cp.APIServer().await(ctx, func(ctx context.Context) error {
		for _, ns := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, "kube-node-lease"} {
			if _, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// APIServer is the process of the API server, the present one after a restart.
func (cp *ControlPlane) APIServer() *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.apiserver
}

// Etcd is the process of etcd.
func (cp *ControlPlane) Etcd() *Process { return cp.etcd }

// KillAPIServer ends the API server with SIGKILL and returns when it is gone.
// RestartAPIServer brings it back.
func (cp *ControlPlane) KillAPIServer() { cp.APIServer().Kill() }

// RestartAPIServer stops the API server, if it still runs, and starts it again
// on the same port and data. Further arguments come after Options.APIServerArgs,
// until the next restart.
func (cp *ControlPlane) RestartAPIServer(ctx context.Context, args ...string) error {
	old := cp.APIServer()
	old.Stop()
	usual := cp.opts.APIServerArgs
	cp.opts.APIServerArgs = slices.Concat(usual, args)
	defer func() { cp.opts.APIServerArgs = usual }()
	cp.mu.Lock()
	cp.past = append(cp.past, old)
	cp.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, cp.opts.StartTimeout)
	defer cancel()
	if err := cp.startAPIServer(ctx); err != nil {
		return fmt.Errorf("restart the API server: %w", err)
	}
	return nil
}

// gates is the flag for a set of feature gates, in a stable order.
func gates(set map[string]bool) []string {
	if len(set) == 0 {
		return nil
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		list = append(list, fmt.Sprintf("%s=%t", name, set[name]))
	}
	return []string{"--feature-gates=" + strings.Join(list, ",")}
}
