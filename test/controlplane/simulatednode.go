package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// leaseNamespace is where kubelets keep their Leases.
const leaseNamespace = "kube-node-lease"

// simulatedNode is one kubelet, as far as the API server can tell.
type simulatedNode struct {
	name   string
	index  int
	opts   SimOptions
	client *kubernetes.Clientset
	counts *simCounts
	paused atomic.Bool

	writing sync.Mutex // held over a status write, so that writes keep their order

	mu         sync.Mutex
	opinion    corev1.NodeCondition   // what the kubelet thinks of its Ready condition
	conditions []corev1.NodeCondition // as the API server was last seen to have them
	version    uint64                 // of that
	reported   time.Time

	lease *coordinationv1.Lease // only its own goroutine uses it
}

func newSimulatedNode(name string, index int, o SimOptions, client *kubernetes.Clientset, counts *simCounts) *simulatedNode {
	return &simulatedNode{
		name: name, index: index, opts: o, client: client, counts: counts,
		opinion: corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Reason: "KubeletReady", Message: "kubelet is posting ready status",
		},
	}
}

// register creates the Node not yet Ready, as kubelets do, reports it Ready and
// creates the Lease.
func (n *simulatedNode) register(ctx context.Context) error {
	ctx = actAs(ctx, n.name)
	node, err := n.client.CoreV1().Nodes().Create(ctx, n.object(time.Now()), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	n.see(node)
	if err := n.report(ctx); err != nil || n.opts.NoLease {
		return err
	}
	seconds := int32(n.opts.LeaseDuration / time.Second)
	now := metav1.NowMicro()
	n.lease, err = n.client.CoordinationV1().Leases(leaseNamespace).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: leaseNamespace, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: n.name, UID: node.UID,
		}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		n.lease, err = n.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, n.name, metav1.GetOptions{})
	}
	return err
}

// keepReporting looks at the node now and then and reports what changed, or
// that nothing did for long enough.
func (n *simulatedNode) keepReporting(ctx context.Context) {
	n.mu.Lock()
	n.reported = time.Now().Add(-rand.N(n.opts.ReportEvery)) // or all would report at once
	n.mu.Unlock()
	every(ctx, n.opts.StatusEvery, func(ctx context.Context) {
		if n.paused.Load() || !n.hasNews(time.Now()) {
			return
		}
		if err := n.report(ctx); err != nil {
			n.counts.failures.Add(1)
		}
	})
}

func (n *simulatedNode) keepRenewing(ctx context.Context) {
	every(ctx, n.opts.LeaseDuration/4, func(ctx context.Context) {
		if n.paused.Load() {
			return
		}
		if err := n.renew(actAs(ctx, n.name)); err != nil {
			n.counts.failures.Add(1)
		}
	})
}

// every does something at a steady rate that starts at a random moment. What
// is under way when ctx ends is finished, if it does not take too long.
func every(ctx context.Context, period time.Duration, do func(context.Context)) {
	timer := time.NewTimer(rand.N(period))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(period)
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			do(within)
			cancel()
		}
	}
}

// renew writes the Lease. One that somebody else changed is read again, for
// the next time.
func (n *simulatedNode) renew(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(leaseNamespace)
	now := metav1.NowMicro()
	n.lease.Spec.RenewTime = &now
	got, err := leases.Update(ctx, n.lease, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		if got, err = leases.Get(ctx, n.name, metav1.GetOptions{}); err == nil {
			n.lease = got
		}
		return err
	}
	if err != nil {
		return err
	}
	n.lease = got
	n.counts.leases.Add(1)
	return nil
}

// think changes the kubelet's opinion of its own Ready condition.
func (n *simulatedNode) think(opinion corev1.NodeCondition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opinion = opinion
}

// see notes what the API server has. Answers and watch events may come in any
// order; the newest wins.
func (n *simulatedNode) see(node *corev1.Node) {
	version, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	if err != nil {
		return // not of an etcd, and so not ours
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if version > n.version {
		n.version, n.conditions = version, node.Status.Conditions
	}
}

func (n *simulatedNode) hasNews(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.reported) >= n.opts.ReportEvery {
		return true
	}
	for _, want := range n.wanted() {
		if have := find(n.conditions, want.Type); have == nil || !saysTheSame(*have, want) {
			return true
		}
	}
	return false
}

func saysTheSame(a, b corev1.NodeCondition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// report patches the status exactly as a kubelet does: with the difference
// between what it saw last and what it thinks now.
func (n *simulatedNode) report(ctx context.Context) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	n.mu.Lock()
	patch, err := statusPatch(n.conditions, n.wanted(), now)
	n.mu.Unlock()
	if err != nil {
		return err
	}
	node, err := n.client.CoreV1().Nodes().Patch(actAs(ctx, n.name), n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	n.see(node)
	n.mu.Lock()
	n.reported = time.Now()
	n.mu.Unlock()
	n.counts.statuses.Add(1)
	return nil
}

// wanted are the conditions as the kubelet would have them. The caller holds mu.
func (n *simulatedNode) wanted() []corev1.NodeCondition {
	return append(pressures(), n.opinion)
}

func pressures() []corev1.NodeCondition {
	return []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
	}
}

// statusPatch stamps every heartbeat, and the transition time of a condition
// whose status is no longer what was seen. Conditions of others stay.
func statusPatch(seen, wanted []corev1.NodeCondition, now metav1.Time) ([]byte, error) {
	next := append([]corev1.NodeCondition(nil), seen...)
	for _, c := range wanted {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		old := find(next, c.Type)
		if old == nil {
			next = append(next, c)
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
	}
	before, err := json.Marshal(corev1.Node{Status: corev1.NodeStatus{Conditions: seen}})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Node{Status: corev1.NodeStatus{Conditions: next}})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
}

// find returns the first condition of a type, in place, or nil.
func find(conditions []corev1.NodeCondition, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}

// object is the Node that the kubelet creates. It is a second old, so that the
// first report changes every heartbeat, and the API server notes who spoke.
func (n *simulatedNode) object(now time.Time) *corev1.Node {
	then := metav1.NewTime(now.Add(-time.Second).Truncate(time.Second))
	conditions := append(pressures(), corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		Reason: "KubeletNotReady", Message: "kubelet is starting",
	})
	for i := range conditions {
		conditions[i].LastHeartbeatTime, conditions[i].LastTransitionTime = then, then
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels()},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: conditions, Images: images(n.opts.Ballast),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", 1+n.index>>16&0xff, n.index>>8&0xff, n.index&0xff)},
				{Type: corev1.NodeHostName, Address: n.name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: fmt.Sprintf("%032x", n.index), SystemUUID: fmt.Sprintf("%032x", n.index), BootID: fmt.Sprintf("%032x", n.index),
				KernelVersion: "6.12.0", OSImage: "Simulated Linux", ContainerRuntimeVersion: "containerd://2.1.4",
				KubeletVersion: kubernetesVersion, OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
}

func (n *simulatedNode) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: n.name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		corev1.LabelInstanceTypeStable: "simulated.2xlarge",
		corev1.LabelTopologyRegion:     "region-1",
		corev1.LabelTopologyZone:       n.opts.Zones[n.index%len(n.opts.Zones)],
	}
	for k, v := range n.opts.Labels {
		labels[k] = v
	}
	return labels
}

// images is a list of about size bytes, of at most as many images as a kubelet
// reports.
func images(size int) []corev1.ContainerImage {
	if size == 0 {
		return nil
	}
	count := min(50, 1+size/400)
	const digest = "@sha256:"
	filler := strings.Repeat("x", max(0, size/count-len(digest)-64-60))
	var list []corev1.ContainerImage
	for i := range count {
		list = append(list, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("images.example.com/%s/app-%02d%s%064x", filler, i, digest, i)},
			SizeBytes: int64(i+1) << 24,
		})
	}
	return list
}

// nodeKey is the context key of the node that a request acts as.
type nodeKey struct{}

func actAs(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// impersonator makes a request the node's that its context names. One client
// thereby serves thousands of nodes.
type impersonator struct{ next http.RoundTripper }

func (i impersonator) RoundTrip(r *http.Request) (*http.Response, error) {
	if node, ok := r.Context().Value(nodeKey{}).(string); ok {
		r = r.Clone(r.Context())
		r.Header.Set("Impersonate-User", "system:node:"+node)
		r.Header.Set("Impersonate-Group", "system:nodes")
	}
	return i.next.RoundTrip(r)
}
