package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// HollowOptions say which hollow kubelets to run: the real kubelet's loops
// over a runtime that only pretends, many in one process.
type HollowOptions struct {
	// Names of the nodes, or else Prefix and Count: n1, n2, n3.
	Names  []string
	Prefix string
	Count  int

	Reporting
	// Args come after our own flags and so win over them.
	Args []string
}

// Reporting is how a kubelet tells the API server that its node is alive. Zero
// durations mean the kubelet's own defaults.
type Reporting struct {
	// StatusEvery is nodeStatusUpdateFrequency: how often the kubelet looks at
	// its node and reports what changed. 10 s by default.
	StatusEvery time.Duration
	// ReportEvery is nodeStatusReportFrequency: how often it reports although
	// nothing changed. 5 min by default.
	ReportEvery time.Duration
	// LeaseDuration is nodeLeaseDurationSeconds, in whole seconds; the Lease is
	// renewed four times as often. 40 s by default.
	LeaseDuration time.Duration
	// NoLease makes a kubelet that never writes a Lease.
	NoLease bool
}

func (r Reporting) args() []string {
	var args []string
	if r.StatusEvery > 0 {
		args = append(args, "--status-every="+r.StatusEvery.String())
	}
	if r.ReportEvery > 0 {
		args = append(args, "--report-every="+r.ReportEvery.String())
	}
	if r.LeaseDuration > 0 {
		args = append(args, "--lease-seconds="+strconv.Itoa(int(r.LeaseDuration/time.Second)))
	}
	if r.NoLease {
		args = append(args, "--no-lease")
	}
	return args
}

func (o HollowOptions) names() []string {
	return nodeNames(o.Names, o.Prefix, o.Count)
}

func nodeNames(names []string, prefix string, count int) []string {
	if len(names) > 0 {
		return names
	}
	for i := range count {
		names = append(names, fmt.Sprintf("%s%d", prefix, i+1))
	}
	return names
}

// Hollow is a process full of hollow kubelets. They stop together; to lose a
// single one, cut it off.
type Hollow struct {
	*Process
	Names []string

	cutDir string
}

// StartHollow starts hollow kubelets, each with an identity of its own, and
// returns when every one of them has reported its node Ready: itself, where there
// was a kubelet before it.
func (cp *ControlPlane) StartHollow(ctx context.Context, o HollowOptions) (*Hollow, error) {
	names := o.names()
	if len(names) == 0 {
		return nil, errors.New("start hollow kubelets: no nodes named: set Names, or Prefix and Count")
	}
	dir, err := os.MkdirTemp(cp.dir, "hollow-")
	if err != nil {
		return nil, err
	}
	h := &Hollow{Names: names, cutDir: filepath.Join(dir, "cut")}
	configs, list := filepath.Join(dir, "kubeconfigs"), filepath.Join(dir, "names")
	if err := errors.Join(os.Mkdir(h.cutDir, 0o755), os.Mkdir(configs, 0o755)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(list, []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	for _, n := range names {
		data, err := kubeconfig(cp.Kubelet(n))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(configs, n+".kubeconfig"), data, 0o600); err != nil {
			return nil, err
		}
	}
	args := append([]string{"--names-file=" + list, "--kubeconfigs=" + configs, "--cut-dir=" + h.cutDir}, o.args()...)
	cmd := role("hollow", append(args, o.Args...))
	if cmd.Ready, err = cp.nodesReport(ctx, names); err != nil {
		return nil, err
	}
	if h.Process, err = cp.Run(ctx, cmd); err != nil {
		return nil, fmt.Errorf("start hollow kubelets: %w", err)
	}
	return h, nil
}

// Cut takes the network from one node: open connections break and new ones
// fail until Mend.
func (h *Hollow) Cut(node string) error {
	return os.WriteFile(filepath.Join(h.cutDir, node), nil, 0o644)
}

// Mend gives a node its network back.
func (h *Hollow) Mend(node string) error { return os.Remove(filepath.Join(h.cutDir, node)) }

// KubeletOptions say how a real kubelet runs.
type KubeletOptions struct {
	// Name of the node.
	Name string

	Reporting
	// Args come after our own flags and so win over them.
	Args []string
}

// StartKubelet starts the real kubelet, with real mounts, volumes and probes,
// over a container runtime that only pretends. It returns when it has reported
// its node Ready. It needs Linux and root.
func (cp *ControlPlane) StartKubelet(ctx context.Context, o KubeletOptions) (*Process, error) {
	config, err := cp.Kubeconfig(cp.Kubelet(o.Name))
	if err != nil {
		return nil, err
	}
	args := append([]string{"--name=" + o.Name, "--kubeconfig=" + config}, o.args()...)
	cmd := role("kubelet", append(args, o.Args...))
	if cmd.Ready, err = cp.nodesReport(ctx, []string{o.Name}); err != nil {
		return nil, err
	}
	p, err := cp.Run(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("start a kubelet: %w", err)
	}
	return p, nil
}

// nodesReport says how to know that kubelets about to be launched have reported
// their nodes Ready. What a kubelet before them reported does not count: where
// there is a node already, it returns at the start of a second, because
// heartbeats have whole ones.
func (cp *ControlPlane) nodesReport(ctx context.Context, names []string) (func(context.Context) error, error) {
	client, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		return nil, err
	}
	nodes, err := byName(ctx, client)
	if err != nil {
		return nil, err
	}
	launch := time.Now().Truncate(time.Second)
	if slices.ContainsFunc(names, func(n string) bool { return nodes[n] != nil }) {
		launch = launch.Add(time.Second)
		time.Sleep(time.Until(launch))
	}
	return func(ctx context.Context) error {
		nodes, err := byName(ctx, client)
		if err != nil {
			return err
		}
		for _, n := range names {
			if readyAt(nodes[n]).Before(launch) {
				return fmt.Errorf("node %s has not been reported Ready since its kubelet was launched", n)
			}
		}
		return nil
	}, nil
}

// byName lists the nodes. A stale answer is good enough here, and cheap with many.
func byName(ctx context.Context, client kubernetes.Interface) (map[string]*corev1.Node, error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	nodes := map[string]*corev1.Node{}
	for i := range list.Items {
		nodes[list.Items[i].Name] = &list.Items[i]
	}
	return nodes, nil
}

// readyAt is the heartbeat of a node that is Ready, and zero for all others.
func readyAt(n *corev1.Node) time.Time {
	if n == nil {
		return time.Time{}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}
