package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodewarden/nodewarden/cmd/internal/boot"
	"github.com/nodewarden/nodewarden/controller"
)

// fallbackNamespace holds the electing Lease of a controller that runs outside of
// any cluster and was told no namespace.
const fallbackNamespace = "nodewarden-system"

const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func newManager(s settings, server *controller.ServerClock) (manager.Manager, error) {
	cfg, err := restConfig(s.config.ClientConnection)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	cfg.Wrap(server.Wrap)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the API types: %w", err)
	}
	election := s.config.LeaderElection
	m, err := manager.New(cfg, manager.Options{
		Scheme:                        scheme,
		Cache:                         s.options.Cache(),
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
		LeaderElection:                election.LeaderElect,
		LeaderElectionID:              election.ResourceName,
		LeaderElectionNamespace:       namespaceOr(election.ResourceNamespace),
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &election.LeaseDuration.Duration,
		RenewDeadline:                 &election.RenewDeadline.Duration,
		RetryPeriod:                   &election.RetryPeriod.Duration,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	return m, nil
}

// restConfig follows kubectl's rules: the file that was named, $KUBECONFIG, the
// pod's service account.
func restConfig(c clientConnection) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = c.QPS, c.Burst
	return rest.AddUserAgent(cfg, name), nil
}

func namespaceOr(named string) string {
	if named != "" {
		return named
	}
	if own, err := os.ReadFile(namespaceFile); err == nil {
		return string(own)
	}
	return fallbackNamespace
}

// endpoints serves health, readiness and metrics.
func endpoints(p controller.Probes) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", boot.Endpoints(func(context.Context) error { return p.Ready() }, metrics.Registry))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.Healthy(); err != nil {
			http.Error(w, "unhealthy: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
