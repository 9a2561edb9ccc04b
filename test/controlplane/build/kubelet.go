package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/clientcmd"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletoptions "k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/util/oom"
)

// kubeletOptions are the flags of the kubelet role.
type kubeletOptions struct {
	reporting
	name       string
	kubeconfig string
}

func (o *kubeletOptions) flagSet() *flag.FlagSet {
	fs := o.reporting.flagSet("kubelet")
	fs.StringVar(&o.name, "name", "", "the node")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server, as the node")
	return fs
}

func (o kubeletOptions) validate() error {
	err := o.reporting.validate()
	if o.name == "" {
		err = errors.Join(err, errors.New("--name: must name the node"))
	}
	if o.kubeconfig == "" {
		err = errors.Join(err, errors.New("--kubeconfig: must name a file"))
	}
	return err
}

// kubelet runs the real kubelet, with this machine's mounts, volumes, probes
// and figures. Only the container runtime pretends, and nothing touches cgroups
// or the machine's settings.
func kubelet(args []string) int {
	var o kubeletOptions
	if err := o.flagSet().Parse(args); err != nil {
		return 2 // the flag set has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		return 1
	}
	return 0
}

func (o kubeletOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	root, discard, err := scratch("kubelet")
	if err != nil {
		return err
	}
	defer discard()
	server, err := o.server(root)
	if err != nil {
		return err
	}
	deps, err := kubeletapp.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	c, err := o.clients(config, o.name)
	if err != nil {
		return err
	}
	// All three, or the kubelet makes all three anew.
	deps.KubeClient, deps.EventClient, deps.HeartbeatClient = c.main, c.main.CoreV1(), o.heartbeats(c)
	deps.OOMAdjuster = oom.NewFakeOOMAdjuster()
	deps.ContainerManager = cm.NewStubContainerManager() // the real one rewrites sysctls
	return kubeletapp.Run(ctx, server, deps, utilfeature.DefaultFeatureGate)
}

// server is a configuration that keeps everything below root.
func (o kubeletOptions) server(root string) (*kubeletoptions.KubeletServer, error) {
	_, socket, err := pretendRuntime(root)
	if err != nil {
		return nil, err
	}
	s, err := kubeletoptions.NewKubeletServer()
	if err != nil {
		return nil, err
	}
	s.HostnameOverride, s.NodeIP = o.name, hostIP()
	s.RootDirectory, s.CertDirectory = root, filepath.Join(root, "pki")
	s.KubeConfig = o.kubeconfig // without one it would run alone
	c := &s.KubeletConfiguration
	o.apply(c)
	c.ContainerRuntimeEndpoint = socket
	c.PodLogsDir, c.VolumePluginDir = filepath.Join(root, "pod-logs"), filepath.Join(root, "volume-plugins")
	c.EnableServer, c.ReadOnlyPort, c.HealthzPort = false, 0, 0
	c.Authentication.Webhook.Enabled = false
	c.Authentication.Anonymous.Enabled = true
	c.Authorization.Mode = "AlwaysAllow"
	c.CgroupsPerQOS, c.EnforceNodeAllocatable, c.FailCgroupV1 = false, nil, false
	c.FailSwapOn, c.LocalStorageCapacityIsolation = false, false
	c.MakeIPTablesUtilChains = false
	c.ProtectKernelDefaults = true // refuse rather than change the machine's settings
	c.ResolverConfig = ""
	return s, nil
}
