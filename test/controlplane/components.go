package controlplane

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
)

// CMOptions say what a controller manager runs.
type CMOptions struct {
	// Controllers to run, such as "node-lifecycle-controller", or "*" and
	// "-node-lifecycle-controller". Empty means all that are on by default.
	Controllers  []string
	FeatureGates map[string]bool
	// Args come after our own flags and so win over them. Leader election is
	// off unless they say otherwise.
	Args []string
}

// Component is a controller manager or a scheduler.
type Component struct {
	*Process
	// URL is where it serves health and metrics.
	URL string

	cp *ControlPlane
}

// Metrics is the component's metrics page.
func (c *Component) Metrics(ctx context.Context) (string, error) {
	return c.cp.get(ctx, c.URL+"/metrics")
}

// StartControllerManager starts a kube-controller-manager whose controllers
// act as their own service accounts, and returns when it is healthy.
func (cp *ControlPlane) StartControllerManager(ctx context.Context, o CMOptions) (*Component, error) {
	args := []string{
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + cp.file("tokens.key"),
		"--root-ca-file=" + cp.file("ca.crt"),
	}
	if len(o.Controllers) > 0 {
		args = append(args, "--controllers="+strings.Join(o.Controllers, ","))
	}
	args = append(args, gates(o.FeatureGates)...)
	return cp.startComponent(ctx, "kube-controller-manager", append(args, o.Args...))
}

// SchedulerOptions say how a scheduler differs from the plain one.
type SchedulerOptions struct {
	// Args come after our own flags and so win over them.
	Args []string
}

// StartScheduler starts a kube-scheduler and returns when it is healthy.
func (cp *ControlPlane) StartScheduler(ctx context.Context, o SchedulerOptions) (*Component, error) {
	return cp.startComponent(ctx, "kube-scheduler", append([]string{"--leader-elect=false"}, o.Args...))
}

// startComponent starts what controller manager and scheduler have in common:
// a kubeconfig for three purposes, and a page that tells their health.
func (cp *ControlPlane) startComponent(ctx context.Context, name string, args []string) (*Component, error) {
	config, err := cp.Kubeconfig(cp.User("system:" + name))
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cp.Admin())
	if err != nil {
		return nil, err
	}
	var c *Component
	err = retryTakenPort(true, func() error {
		port, err := FreePort()
		if err != nil {
			return err
		}
		c = &Component{URL: loopback("https", port), cp: cp}
		cmd := role(name, append([]string{
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + cp.file("serving.crt"), "--tls-private-key-file=" + cp.file("serving.key"),
			"--client-ca-file=" + cp.file("ca.crt"),
		}, args...))
		cmd.Ready = answers(client, c.URL+"/healthz")
		c.Process, err = cp.Run(ctx, cmd)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}
