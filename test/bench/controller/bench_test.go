// Package controller_test measures nodewarden-controller against the in-tree
// node-lifecycle-controller. Every figure is a ratio of two things done in the
// same run, so that a slow or busy machine slows both.
package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// writers is how many clients a bare baseline writes with.
const writers = 16

// lab is a control plane with a rig, and clients with a connection of their own.
type lab struct {
	*rig.Rig
	clients []kubernetes.Interface
}

// plane starts a lab that is gone after the benchmark.
func plane(b *testing.B) lab {
	b.Helper()
	cp := controlplane.ForTest(b, controlplane.Options{APIServerArgs: []string{"--audit-log-path=", "--audit-policy-file="}})
	r, err := rig.New(b.Context(), cp)
	if err != nil {
		b.Fatal(err)
	}
	l := lab{Rig: r}
	for i := range writers {
		c, err := kubernetes.NewForConfig(cp.User(fmt.Sprintf("writer-%d", i), "system:masters"))
		if err != nil {
			b.Fatal(err)
		}
		l.clients = append(l.clients, c)
	}
	return l
}

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Clean()
	os.Exit(code)
}

// sample is what one outage looked like from outside, since the write began.
type sample struct{ noSchedule, noExecute, pod time.Duration }

// measured are the durations of many outages.
type measured struct{ noSchedule, noExecute, pod []time.Duration }

func (m *measured) add(s sample) {
	m.noSchedule = append(m.noSchedule, s.noSchedule)
	m.noExecute = append(m.noExecute, s.noExecute)
	if s.pod > 0 {
		m.pod = append(m.pod, s.pod)
	}
}

func percentile(d []time.Duration, p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	return d[int(p*float64(len(d)-1))]
}

func show(b *testing.B, what string, d []time.Duration) {
	b.Logf("%-46s p50 %8s  p99 %8s  (%d)", what, percentile(d, .5).Round(100*time.Microsecond), percentile(d, .99).Round(100*time.Microsecond), len(d))
}

// atMost judges a ratio of medians.
func atMost(b *testing.B, what string, ours, theirs time.Duration, limit float64) {
	b.Helper()
	ratio := float64(ours) / float64(theirs)
	b.ReportMetric(ratio, "x-"+what)
	if !(ratio <= limit) {
		b.Errorf("%s: %v to %v is %.2f times, at most %.2f are allowed", what, ours, theirs, ratio, limit)
	}
}

var intree = controlplane.CMOptions{Controllers: []string{"node-lifecycle-controller"}, Args: []string{"--node-eviction-rate=1000", "--node-monitor-grace-period=24h", "--kube-api-qps=1000", "--kube-api-burst=2000"}}

// BenchmarkReaction: an outsider writes Ready=Unknown; how long until the taints
// are there and the pod is NotReady? The pod is compared with one bare write.
func BenchmarkReaction(b *testing.B) {
	r := plane(b)
	const nodes = 40
	sim, err := r.CP.SimulateNodes(b.Context(), controlplane.SimOptions{Prefix: "n", Count: nodes, Zones: []string{"a", "b", "c", "d"}, Silent: true, Ballast: 20_000})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range sim.Names() {
		r.Pod(b, n, "p-"+n)
	}
	cm, err := r.CP.StartControllerManager(b.Context(), intree)
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(5 * time.Second) // its start-up events
	theirs := outages(b, r, sim.Names()[:20], 5*time.Second, false)
	cm.Stop()
	c := r.Start(b, rig.Alone, rig.External, []string{"--node-eviction-rate=1000", "--v=0"})
	ours := outages(b, r, sim.Names()[20:], time.Second, true)
	c.Stop()
	bare := barePods(b, r, sim.Names())
	show(b, "in-tree: NoSchedule", theirs.noSchedule)
	show(b, "nodewarden: NoSchedule", ours.noSchedule)
	show(b, "in-tree: NoExecute", theirs.noExecute)
	show(b, "nodewarden: NoExecute", ours.noExecute)
	show(b, "one bare pod write", bare)
	show(b, "nodewarden: pod NotReady (in-tree: never)", ours.pod)
	atMost(b, "NoSchedule-vs-in-tree", percentile(ours.noSchedule, .5), percentile(theirs.noSchedule, .5), 1.2)
	atMost(b, "NoExecute-vs-in-tree", percentile(ours.noExecute, .5), percentile(theirs.noExecute, .5), 1./25)
	atMost(b, "pod-vs-bare-write", percentile(ours.pod, .5), percentile(bare, .5), 3)
}

func outages(b *testing.B, r lab, names []string, pause time.Duration, pods bool) measured {
	b.Helper()
	var m measured
	for _, name := range names {
		// Out of step with any pass, whose period is 5 s.
		time.Sleep(time.Duration(rand.Int64N(int64(pause))))
		m.add(outage(b, r, name, pods))
	}
	return m
}

// outage fails one node and mends it. Times count from when the write that fails
// it has returned, so the write itself is no part of them.
func outage(b *testing.B, r lab, name string, pods bool) sample {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	nodes, err := r.Admin.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		b.Fatal(err)
	}
	defer nodes.Stop()
	watched, err := r.Admin.CoreV1().Pods(rig.Pods).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		b.Fatal(err)
	}
	defer watched.Stop()
	var s sample
	var wg sync.WaitGroup
	var committed time.Time
	began := make(chan struct{})
	wg.Go(func() {
		for e := range nodes.ResultChan() {
			at := time.Now()
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			taints := rig.TaintsOf(n)
			if slices.Contains(taints, "unreachable:NoSchedule") && s.noSchedule == 0 {
				<-began
				s.noSchedule = max(at.Sub(committed), time.Microsecond)
			}
			if slices.Contains(taints, "unreachable:NoExecute") {
				s.noExecute = at.Sub(committed)
				return
			}
		}
	})
	wg.Go(func() {
		for e := range watched.ResultChan() {
			at := time.Now()
			if p, ok := e.Object.(*corev1.Pod); pods && ok && rig.PodReady(p).Status == corev1.ConditionFalse {
				<-began
				s.pod = max(at.Sub(committed), time.Microsecond)
				return
			}
			if !pods {
				return
			}
		}
	})
	r.Detect(b, name)
	committed = time.Now()
	close(began)
	wg.Wait()
	if err := mend(ctx, r, name); err != nil {
		b.Fatal(err)
	}
	return s
}

func mend(ctx context.Context, r lab, name string) error {
	now := metav1.Now()
	return rig.Write(ctx, r.Admin, name, rig.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady", LastHeartbeatTime: &now, LastTransitionTime: &now})
}

// barePods times single writes of one pod after the other, each until a watch
// shows it, as the outages are timed.
func barePods(b *testing.B, r lab, names []string) []time.Duration {
	b.Helper()
	w, err := r.Admin.CoreV1().Pods(rig.Pods).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	var out []time.Duration
	for i, name := range names {
		body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","lastTransitionTime":%q}]}}`, time.Now().Add(time.Duration(i+1)*time.Hour).UTC().Format(time.RFC3339))
		began := time.Now()
		written, err := r.Admin.CoreV1().Pods(rig.Pods).Patch(b.Context(), "p-"+name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		if err != nil {
			b.Fatal(err)
		}
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Name == written.Name && p.ResourceVersion == written.ResourceVersion {
				break
			}
		}
		out = append(out, time.Since(began))
		time.Sleep(50 * time.Millisecond)
	}
	return out
}

// BenchmarkNodeWith110Pods: all pods of a full node, against as many bare writes
// by 16 writers.
func BenchmarkNodeWith110Pods(b *testing.B) {
	r := plane(b)
	const pods = 110
	r.Ready(b, "z", "full", "other")
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprintf("full-%03d", i))
	}
	parallel(b, r, names, func(ctx context.Context, _ kubernetes.Interface, name string) error {
		_, err := r.CreatePod(ctx, "full", name)
		return err
	})
	c := r.Start(b, rig.Alone, rig.External, []string{"--v=0"})
	rig.Eventually(b, 20*time.Second, r.TaintsAre(b, "full"))
	var ours, bare []time.Duration
	for round := range 5 {
		began := time.Now()
		r.Detect(b, "full")
		rig.Eventually(b, 30*time.Second, marked(b, r, pods))
		ours = append(ours, time.Since(began))
		if err := mend(b.Context(), r, "full"); err != nil {
			b.Fatal(err)
		}
		rig.Eventually(b, 20*time.Second, r.TaintsAre(b, "full"))
		began = time.Now()
		parallel(b, r, names, func(ctx context.Context, c kubernetes.Interface, name string) error {
			body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}]}}`, time.Now().Add(time.Duration(round)*time.Minute).UTC().Format(time.RFC3339))
			_, err := c.CoreV1().Pods(rig.Pods).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
			return err
		})
		bare = append(bare, time.Since(began))
		time.Sleep(time.Second)
	}
	c.Stop()
	show(b, "110 bare writes by 16 writers", bare)
	show(b, "nodewarden: the last of 110 pods", ours)
	atMost(b, "110-pods-vs-bare-writes", percentile(ours, .5), percentile(bare, .5), 3)
}

// marked is an error unless so many pods are NotReady.
func marked(b *testing.B, r lab, want int) func() error {
	return func() error {
		list, err := r.Admin.CoreV1().Pods(rig.Pods).List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		got := 0
		for i := range list.Items {
			if rig.PodReady(&list.Items[i]).Status == corev1.ConditionFalse {
				got++
			}
		}
		if got != want {
			return fmt.Errorf("%d of %d pods are NotReady", got, want)
		}
		return nil
	}
}

// parallel does something to each name with 16 writers, each a client of its own.
func parallel(b *testing.B, r lab, names []string, do func(context.Context, kubernetes.Interface, string) error) {
	b.Helper()
	g, ctx := errgroup.WithContext(b.Context())
	work := make(chan string)
	g.Go(func() error {
		defer close(work)
		for _, n := range names {
			select {
			case work <- n:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for _, c := range r.clients {
		g.Go(func() error {
			for n := range work {
				if err := do(ctx, c, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkThousandNodes: 1,000 nodes fail at once; how long until the last of
// them carries NoSchedule, against 1,000 bare writes of nodes by 16 writers?
func BenchmarkThousandNodes(b *testing.B) {
	r := plane(b)
	const nodes = 1000
	sim, err := r.CP.SimulateNodes(b.Context(), controlplane.SimOptions{Prefix: "n", Count: nodes, Zones: []string{"a", "b", "c", "d"}, Silent: true, Ballast: 20_000})
	if err != nil {
		b.Fatal(err)
	}
	r.Ready(b, "e", "up")
	c := r.Start(b, rig.Alone, rig.External, []string{"--v=0"})
	rig.Eventually(b, time.Minute, tainted(b, r, 0))
	began := time.Now()
	parallel(b, r, sim.Names(), func(ctx context.Context, c kubernetes.Interface, name string) error {
		_, err := c.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"bench":"bare"}}}`), metav1.PatchOptions{})
		return err
	})
	bare := time.Since(began)
	time.Sleep(3 * time.Second)
	began = time.Now()
	parallel(b, r, sim.Names(), func(ctx context.Context, c kubernetes.Interface, name string) error {
		now := metav1.Now()
		return rig.Write(ctx, c, name, rig.Condition{Type: "Ready", Status: "Unknown", Reason: "OutOfBandProbeFailed", LastTransitionTime: &now})
	})
	written := time.Now()
	rig.Eventually(b, 2*time.Minute, tainted(b, r, nodes))
	done := time.Now()
	c.Stop()
	b.Logf("1,000 bare writes %v; 1,000 failures written in %v; the last tainted %v after the first write, %v after the last", bare, written.Sub(began), done.Sub(began), done.Sub(written))
	atMost(b, "1000-nodes-vs-bare-writes", done.Sub(written), bare, 2)
	b.ReportMetric(float64(done.Sub(began))/float64(bare), "x-from-the-first-write")
}

// tainted is an error unless so many nodes carry unreachable:NoSchedule, and no
// node but those carries any taint.
func tainted(b *testing.B, r lab, want int) func() error {
	return func() error {
		list, err := r.Admin.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		got, other := 0, 0
		for i := range list.Items {
			taints := rig.TaintsOf(&list.Items[i])
			switch {
			case slices.Contains(taints, "unreachable:NoSchedule"):
				got++
			case len(taints) > 0:
				other++
			}
		}
		if got != want || other > 0 {
			return fmt.Errorf("%d of %d nodes are tainted, %d otherwise", got, want, other)
		}
		return nil
	}
}

// nodesEnv takes fewer nodes than 5,000 on a machine that is busy or small.
const nodesEnv = "NODEWARDEN_BENCH_NODES"

func idleNodes(b *testing.B) int {
	b.Helper()
	set := os.Getenv(nodesEnv)
	if set == "" {
		return 5000
	}
	n, err := strconv.Atoi(set)
	if err != nil || n < 1 {
		b.Fatalf("%s is %q, want a number of nodes", nodesEnv, set)
	}
	return n
}

// BenchmarkIdle: CPU and memory with 5,000 nodes that report, in-tree, kubelet
// source and external source side by side over the same minute.
func BenchmarkIdle(b *testing.B) {
	r := plane(b)
	_, err := r.CP.SimulateNodes(b.Context(), controlplane.SimOptions{Prefix: "n", Count: idleNodes(b), Zones: []string{"a", "b", "c"}, Ballast: 15_000})
	if err != nil {
		b.Fatal(err)
	}
	cm, err := r.CP.StartControllerManager(b.Context(), intree)
	if err != nil {
		b.Fatal(err)
	}
	// Both of ours run beside the in-tree one, which does the same to the same
	// nodes, so that none has anything to do.
	kubelet := r.Start(b, rig.Alone, []string{"--v=0", "--node-monitor-grace-period=24h"})
	external := r.Start(b, rig.Alone, rig.External, []string{"--v=0"})
	time.Sleep(2 * time.Minute) // start-up events, the in-tree one's are throttled
	processes := map[string]*controlplane.Process{"in-tree": cm.Process, "kubelet": kubelet.Process, "external": external.Process}
	before := usage(b, processes)
	time.Sleep(time.Minute)
	after := usage(b, processes)
	cpu := map[string]time.Duration{}
	for name := range processes {
		cpu[name] = after[name].CPU - before[name].CPU
		b.Logf("%-10s %6.2f CPU-s a minute, %4d MiB", name, cpu[name].Seconds(), after[name].RSS>>20)
	}
	atMost(b, "idle-CPU-external-vs-in-tree", cpu["external"], cpu["in-tree"], .25)
	atMost(b, "idle-CPU-kubelet-vs-in-tree", cpu["kubelet"], cpu["in-tree"], 1)
	b.ReportMetric(float64(after["external"].RSS)/float64(after["in-tree"].RSS), "x-RSS-external-vs-in-tree")
	b.ReportMetric(float64(after["kubelet"].RSS)/float64(after["in-tree"].RSS), "x-RSS-kubelet-vs-in-tree")
}

func usage(b *testing.B, of map[string]*controlplane.Process) map[string]controlplane.Usage {
	b.Helper()
	out := map[string]controlplane.Usage{}
	for name, p := range of {
		u, err := p.Usage()
		if err != nil {
			b.Fatal(err)
		}
		out[name] = u
	}
	return out
}
