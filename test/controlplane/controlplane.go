// Package controlplane runs a real Kubernetes control plane for a test, a
// demonstration or a benchmark: etcd, kube-apiserver and, when asked,
// kube-controller-manager, kube-scheduler and kubelets, all from one binary
// that it builds from source once and keeps.
//
// Everything listens on the loopback address at free ports, everybody is a
// user with a certificate of its own, and everything that was started ends
// with the process that started it, however that process ends.
//
// It never talks to a cluster that it did not start, and it is no place to
// keep data: etcd does not wait for the disk.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
)

// startTimeout is how long a start may take before it is given up, unless
// Options say otherwise. A start takes about three seconds on an idle machine.
const startTimeout = 30 * time.Second

// Options say how a control plane differs from the plain one. The zero Options
// start an API server with the Node and RBAC authorizers, NodeRestriction and
// an audit log.
type Options struct {
	// Binary is the multi-call binary to run. Empty means the one that Binary
	// returns, which is built if it is missing.
	Binary string
	// Progress receives the progress of such a build. Nil means standard error.
	Progress io.Writer

	// Dir keeps data, logs and certificates. Empty means a temporary folder
	// that is removed at the end; a folder that was named is left behind.
	Dir string
	// Port is the API server's. Zero means a free one.
	Port int

	// APIServerArgs come after our own flags and so win over them.
	APIServerArgs []string
	// EtcdArgs come after our own flags and so win over them.
	EtcdArgs []string
	// FeatureGates of the API server, by name.
	FeatureGates map[string]bool
	// AdmissionConfig is a file for --admission-control-config-file, or empty.
	AdmissionConfig string
	// ServiceAccountAdmission keeps the ServiceAccount admission plugin on.
	// With it a pod needs its service account to exist, and so needs a
	// controller manager.
	ServiceAccountAdmission bool

	// AuditRules are put before the rules of DefaultAuditPolicy.
	AuditRules []auditv1.PolicyRule
	// AuditPolicy replaces DefaultAuditPolicy and AuditRules.
	AuditPolicy *auditv1.Policy

	// StartTimeout bounds each start of a component. Zero means 30 s.
	StartTimeout time.Duration
}

// ControlPlane is a running control plane. Stop ends it.
type ControlPlane struct {
	opts    Options
	binary  string
	dir     string
	ownDir  bool
	ca      *authority
	etcd    *Process
	etcdURL string
	port    int

	mu        sync.Mutex
	apiserver *Process
	clients   []*Process // whatever talks to the API server, oldest first
	past      []*Process // API servers that were stopped or replaced
	stops     []func()
	names     map[string]int
	janitor   *Process
	stopOnce  sync.Once
	stopErr   error
}

// Start starts etcd and an API server and returns when the API server is
// ready. A start that fails leaves nothing running, and its error ends with the
// last lines that the failing component wrote. ctx bounds the start, not the
// life of what was started.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	binary := o.Binary
	if binary == "" {
		progress := o.Progress
		if progress == nil {
			progress = os.Stderr
		}
		var err error
		if binary, err = Binary(ctx, progress); err != nil {
			return nil, err
		}
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = startTimeout
	}
	var cp *ControlPlane
	err := retryTakenPort(o.Port == 0, func() error {
		var err error
		cp, err = startOnce(ctx, binary, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	return cp, nil
}

func startOnce(ctx context.Context, binary string, o Options) (*ControlPlane, error) {
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	cp := &ControlPlane{opts: o, binary: binary, port: o.Port, names: map[string]int{}}
	steps := []func(context.Context) error{cp.makeDir, cp.writeFiles, cp.startEtcd, cp.startAPIServer, cp.awaitNamespaces}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, cp.Stop())
		}
	}
	return cp, nil
}

func (cp *ControlPlane) makeDir(context.Context) (err error) {
	if cp.opts.Dir != "" {
		if cp.dir, err = filepath.Abs(cp.opts.Dir); err != nil {
			return err
		}
	} else {
		if cp.dir, err = os.MkdirTemp("", "nodewarden-"); err != nil {
			return err
		}
		cp.ownDir = true
		if cp.janitor, err = startJanitor(cp.dir); err != nil {
			return err
		}
	}
	for _, d := range []string{"logs", "tmp", "kubeconfigs", "files"} {
		if err := os.MkdirAll(filepath.Join(cp.dir, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (cp *ControlPlane) writeFiles(context.Context) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	cp.ca = ca
	serving, err := ca.serving()
	if err != nil {
		return err
	}
	tokens, err := newSigningKey()
	if err != nil {
		return err
	}
	policy, err := auditPolicy(cp.opts)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": ca.pem, "serving.crt": serving.cert, "serving.key": serving.key,
		"tokens.key": tokens, "audit-policy.yaml": policy,
	} {
		if err := os.WriteFile(cp.file(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends everything that was started, clients first, and removes the
// temporary folder. It may be called more than once.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() { cp.stopErr = cp.stop() })
	return cp.stopErr
}

func (cp *ControlPlane) stop() error {
	cp.mu.Lock()
	stops, clients, apiserver := cp.stops, cp.clients, cp.apiserver
	cp.mu.Unlock()
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	stopTogether(clients)
	// These two hold nothing that outlives them, and an orderly end of the API
	// server would wait for every watch that a caller has left open.
	for _, p := range []*Process{apiserver, cp.etcd} {
		if p == nil {
			continue
		}
		if cp.ownDir {
			p.Kill()
		} else {
			p.Stop()
		}
	}
	return cp.removeDir()
}

func (cp *ControlPlane) removeDir() error {
	if !cp.ownDir {
		return nil
	}
	var err error
	if err = unmountBelow(cp.dir); err == nil {
		err = os.RemoveAll(cp.dir)
	}
	if cp.janitor != nil {
		cp.janitor.Kill()
	}
	return err
}

// Dir is the folder that holds data, logs and certificates.
func (cp *ControlPlane) Dir() string { return cp.dir }

// URL is the API server's address.
func (cp *ControlPlane) URL() string { return loopback("https", cp.port) }

// CA is the certificate that signed the API server's, as PEM. Clients that
// hold a certificate by the same authority are who it says they are.
func (cp *ControlPlane) CA() []byte { return cp.ca.pem }

// Metrics is the API server's own metrics page.
func (cp *ControlPlane) Metrics(ctx context.Context) (string, error) {
	return cp.get(ctx, cp.URL()+"/metrics")
}

func (cp *ControlPlane) get(ctx context.Context, url string) (string, error) {
	client, err := rest.HTTPClientFor(cp.Admin())
	if err != nil {
		return "", err
	}
	return fetch(ctx, client, url)
}

// Tails is what every component wrote last, at most lines lines of each, ready
// to print when something went wrong.
func (cp *ControlPlane) Tails(lines int) string {
	cp.mu.Lock()
	all := append(append([]*Process{cp.etcd}, cp.past...), cp.apiserver)
	all = append(all, cp.clients...)
	cp.mu.Unlock()
	var b strings.Builder
	for _, p := range all {
		if p != nil {
			fmt.Fprintf(&b, "--- %s (%s)\n%s\n", p.Name, p.State(), p.Tail(lines))
		}
	}
	return b.String()
}

// file is where a certificate, key or policy of this control plane lies.
func (cp *ControlPlane) file(name string) string { return filepath.Join(cp.dir, "files", name) }
