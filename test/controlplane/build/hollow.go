package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-client/pkg"
	fakecri "k8s.io/cri-client/pkg/fake"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletoptions "k8s.io/kubernetes/cmd/kubelet/app/options"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

// hollowOptions are the flags of the hollow role.
type hollowOptions struct {
	reporting
	names       string
	namesFile   string
	kubeconfig  string
	kubeconfigs string
	cutDir      string
	maxPods     int
}

func (o *hollowOptions) flagSet() *flag.FlagSet {
	fs := o.reporting.flagSet("hollow")
	fs.StringVar(&o.names, "names", "", "the nodes: n1,n2,n3, or n:3 for the same")
	fs.StringVar(&o.namesFile, "names-file", "", "a file with the names of the nodes, one a line, instead of --names")
	fs.StringVar(&o.kubeconfigs, "kubeconfigs", "", "a folder with NODE.kubeconfig for each node")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "one kubeconfig for all nodes, instead of --kubeconfigs")
	fs.StringVar(&o.cutDir, "cut-dir", "", "for tests only: a file in this folder that is named like a node cuts that node off")
	fs.IntVar(&o.maxPods, "max-pods", 110, "how many pods a node takes")
	return fs
}

// nodes are the names that the flags ask for.
func (o hollowOptions) nodes() ([]string, error) {
	if (o.names == "") == (o.namesFile == "") {
		return nil, errors.New("want either --names or --names-file")
	}
	if o.namesFile != "" {
		data, err := os.ReadFile(o.namesFile)
		return strings.Fields(string(data)), err
	}
	prefix, count, many := strings.Cut(o.names, ":")
	if !many {
		return strings.Split(o.names, ","), nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("--names=%s: want a count after the colon, as in n:3", o.names)
	}
	var names []string
	for i := range n {
		names = append(names, prefix+strconv.Itoa(i+1))
	}
	return names, nil
}

func (o hollowOptions) configFile(node string) string {
	if o.kubeconfigs != "" {
		return filepath.Join(o.kubeconfigs, node+".kubeconfig")
	}
	return o.kubeconfig
}

func (o hollowOptions) validate() error {
	err := o.reporting.validate()
	if (o.kubeconfig == "") == (o.kubeconfigs == "") {
		err = errors.Join(err, errors.New("want either --kubeconfig or --kubeconfigs"))
	}
	return err
}

// hollow runs many kubelets in this process: the real loops over a container
// runtime, a machine and probes that only pretend.
func hollow(args []string) int {
	var o hollowOptions
	if err := o.flagSet().Parse(args); err != nil {
		return 2 // the flag set has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hollow:", err)
		return 1
	}
	return 0
}

func (o hollowOptions) run(ctx context.Context) error {
	nodes, err := o.nodes()
	if err := errors.Join(err, o.validate()); err != nil {
		return err
	}
	_, discard, err := scratch("hollow")
	if err != nil {
		return err
	}
	defer discard()
	wire, err := newNetwork(ctx, o.cutDir)
	if err != nil {
		return err
	}
	if err := allowMany(); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := o.start(ctx, n, wire); err != nil {
			return fmt.Errorf("node %s: %w", n, err)
		}
		if err := releaseCollectors(); err != nil {
			return fmt.Errorf("node %s: %w", n, err)
		}
	}
	fmt.Fprintf(os.Stderr, "started %d hollow kubelets\n", len(nodes))
	<-ctx.Done()
	return nil
}

// start returns when the kubelet runs; it goes on to the end of the process.
func (o hollowOptions) start(ctx context.Context, node string, wire *network) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.configFile(node))
	if err != nil {
		return err
	}
	config.Dial = wire.dial(node)
	c, err := o.clients(config, node)
	if err != nil {
		return err
	}
	flags, conf := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{NodeName: node, MaxPods: o.maxPods})
	o.apply(conf)
	conf.EnableServer, conf.ReadOnlyPort = false, 0
	conf.MaxOpenFiles = 1 << 20 // the default would lower the limit of this process
	conf.MakeIPTablesUtilChains = false
	flags.NodeIP = hostIP()

	pretence, socket, err := pretendRuntime(flags.RootDirectory)
	if err != nil {
		return err
	}
	runtime, err := cri.NewRemoteRuntimeServiceBuilder().WithEndpoint(socket).WithConnectionTimeout(15 * time.Second).Build(ctx)
	if err != nil {
		return err
	}
	k := kubemark.NewHollowKubelet(flags, conf, c.main, c.beats,
		&cadvisortest.Fake{NodeName: node}, pretence.ImageService, runtime, cm.NewStubContainerManager())
	k.KubeletDeps.HeartbeatClient = o.heartbeats(c)
	return kubeletapp.RunKubelet(ctx, &kubeletoptions.KubeletServer{
		KubeletFlags:         *k.KubeletFlags,
		KubeletConfiguration: *k.KubeletConfiguration,
	}, k.KubeletDeps)
}

// pretendRuntime serves a container runtime that runs nothing on a socket in dir.
func pretendRuntime(dir string) (*fakecri.RemoteRuntime, string, error) {
	socket := "unix://" + filepath.Join(dir, "cri.sock")
	runtime := fakecri.NewFakeRemoteRuntime()
	// An image without a size is refused on the way through the socket.
	runtime.ImageService.SetFakeImageSize(1 << 20)
	return runtime, socket, runtime.Start(socket)
}
