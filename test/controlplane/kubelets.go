package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
// returns when every one of them has reported its node Ready.
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
	cmd.Ready = cp.nodesReady(names)
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
// over a container runtime that only pretends. It returns when the node is
// Ready. It needs Linux and root.
func (cp *ControlPlane) StartKubelet(ctx context.Context, o KubeletOptions) (*Process, error) {
	config, err := cp.Kubeconfig(cp.Kubelet(o.Name))
	if err != nil {
		return nil, err
	}
	args := append([]string{"--name=" + o.Name, "--kubeconfig=" + config}, o.args()...)
	cmd := role("kubelet", append(args, o.Args...))
	cmd.Ready = cp.nodesReady([]string{o.Name})
	p, err := cp.Run(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("start a kubelet: %w", err)
	}
	return p, nil
}

// nodesReady is nil once all nodes exist and are Ready.
func (cp *ControlPlane) nodesReady(names []string) func(context.Context) error {
	return func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(cp.Admin())
		if err != nil {
			return err
		}
		// A stale answer is good enough here, and cheap with many nodes.
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := map[string]bool{}
		for _, n := range list.Items {
			ready[n.Name] = isReady(&n)
		}
		for _, n := range names {
			if !ready[n] {
				return fmt.Errorf("node %s is not Ready", n)
			}
		}
		return nil
	}
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
