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
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

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
	return planeWith(b, controlplane.Options{})
}

func planeWith(b *testing.B, o controlplane.Options) lab {
	b.Helper()
	o.APIServerArgs = append(o.APIServerArgs, "--audit-log-path=", "--audit-policy-file=")
	cp := controlplane.ForTest(b, o)
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
	const startUp = 5 * time.Second // with its events, and all that is slow at first
	var theirs, ours measured
	// In turn, for the API server is slow at first as well.
	for block := range slices.Chunk(sim.Names(), nodes/4) {
		cm, err := r.CP.StartControllerManager(b.Context(), intree)
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(startUp)
		outages(b, r, &theirs, block[:len(block)/2], 5*time.Second, false)
		cm.Stop()
		c := r.Start(b, rig.Alone, rig.External, []string{"--node-eviction-rate=1000", "--v=0"})
		time.Sleep(startUp)
		outages(b, r, &ours, block[len(block)/2:], time.Second, true)
		c.Stop()
	}
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

func outages(b *testing.B, r lab, m *measured, names []string, pause time.Duration, pods bool) {
	b.Helper()
	for _, name := range names {
		// Out of step with any pass, whose period is 5 s.
		time.Sleep(time.Duration(rand.Int64N(int64(pause))))
		m.add(outage(b, r, name, pods))
	}
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

// barePods times single writes of one pod after the other, from when the write
// begins to when a watch shows it. Those of an outage are timed by a watch too,
// from when the node's write is committed, which is when the controller could
// begin.
func barePods(b *testing.B, r lab, names []string) []time.Duration {
	b.Helper()
	w, err := r.Admin.CoreV1().Pods(rig.Pods).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	shown := make(chan time.Time)
	go func() {
		for e := range w.ResultChan() {
			if at := time.Now(); e.Type == watch.Modified {
				shown <- at
			}
		}
	}()
	var out []time.Duration
	for i, name := range names {
		body := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","lastTransitionTime":%q}]}}`, time.Now().Add(time.Duration(i+1)*time.Hour).UTC().Format(time.RFC3339))
		began := time.Now()
		go func() {
			if _, err := r.Admin.CoreV1().Pods(rig.Pods).Patch(b.Context(), "p-"+name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
				b.Error(err)
			}
		}()
		select {
		case at := <-shown:
			out = append(out, at.Sub(began))
		case <-time.After(10 * time.Second):
			b.Fatal("a write was not shown by the watch")
		}
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
//
// To let 1,000 nodes fail takes 1,000 writes itself, by the same 16 writers, for
// which the controller has no choice but to wait. Nodes have failed at once when
// the last of these is committed, and that is when the clock starts. The time
// from the first is printed, and judged with the writes added to the limit: the
// controller must not be slow while nodes are failing either.
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
	before := bareNodes(b, r, sim.Names(), "before")
	time.Sleep(3 * time.Second)
	last := lastTainted(b, r, nodes)
	began := time.Now()
	parallel(b, r, sim.Names(), func(ctx context.Context, c kubernetes.Interface, name string) error {
		now := metav1.Now()
		return rig.Write(ctx, c, name, rig.Condition{Type: "Ready", Status: "Unknown", Reason: "OutOfBandProbeFailed", LastTransitionTime: &now})
	})
	written := time.Now()
	var done time.Time
	select {
	case done = <-last:
	case <-time.After(2 * time.Minute):
		b.Fatal("not all nodes were tainted")
	}
	rig.Eventually(b, time.Minute, tainted(b, r, nodes))
	time.Sleep(3 * time.Second)
	after := bareNodes(b, r, sim.Names(), "after")
	c.Stop()
	bare := (before + after) / 2
	b.Logf("1,000 bare writes %v before, %v after; 1,000 failures written in %v; the last tainted %v after the first write, %v after the last", before, after, written.Sub(began), done.Sub(began), done.Sub(written))
	atMost(b, "1000-nodes-vs-bare-writes", done.Sub(written), bare, 2)
	atMost(b, "1000-nodes-from-the-first-write", done.Sub(began), bare, 3)
}

// bareNodes times one write to each node, with the controller looking on.
func bareNodes(b *testing.B, r lab, names []string, value string) time.Duration {
	b.Helper()
	began := time.Now()
	parallel(b, r, names, func(ctx context.Context, c kubernetes.Interface, name string) error {
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench":%q}}}`, value)
		_, err := c.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	return time.Since(began)
}

// lastTainted delivers when an informer saw the last of so many nodes tainted. A
// poll would cost more than what is measured.
func lastTainted(b *testing.B, r lab, nodes int) <-chan time.Time {
	b.Helper()
	binary := r.CP.Admin()
	binary.ContentType = runtime.ContentTypeProtobuf
	c, err := kubernetes.NewForConfig(binary)
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan time.Time, 1)
	seen := map[string]bool{}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
			if n, ok := obj.(*corev1.Node); ok && slices.Contains(rig.TaintsOf(n), "unreachable:NoSchedule") {
				if seen[n.Name] = true; len(seen) == nodes {
					select {
					case out <- time.Now():
					default:
					}
				}
			}
		}},
	})
	go informer.RunWithContext(b.Context())
	if !cache.WaitForCacheSync(b.Context().Done(), informer.HasSynced) {
		b.Fatal("the informer has not synced")
	}
	return out
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
// podsEnv adds pods, which the in-tree controller keeps and ours does not.
const (
	nodesEnv = "NODEWARDEN_BENCH_NODES"
	podsEnv  = "NODEWARDEN_BENCH_PODS"
)

func knob(b *testing.B, env string, otherwise int) int {
	b.Helper()
	set := os.Getenv(env)
	if set == "" {
		return otherwise
	}
	n, err := strconv.Atoi(set)
	if err != nil || n < 1 {
		b.Fatalf("%s is %q, want a number above 0", env, set)
	}
	return n
}

// BenchmarkIdle: CPU and memory with 5,000 nodes that report, in-tree, kubelet
// source and external source side by side over the same minute.
//
// With NODEWARDEN_BENCH_PODS=150000 there are pods too, and the memory is judged:
//
//	NODEWARDEN_BENCH_PODS=150000 go test ./test/bench/controller -run '^$' -bench Idle -benchtime=1x -timeout 60m
//
// That takes 10 GB of memory and 10 minutes, most of them to create the pods.
// NODEWARDEN_BENCH_NODES makes all of it smaller; memory is then judged only
// with 30 pods a node or more.
func BenchmarkIdle(b *testing.B) {
	nodes, pods := knob(b, nodesEnv, 5000), knob(b, podsEnv, 0)
	r := planeWith(b, controlplane.Options{
		APIServerArgs: []string{"--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0"},
		EtcdArgs:      []string{"--quota-backend-bytes=8000000000"},
	})
	load(b, r, nodes, pods)
	_, err := r.CP.SimulateNodes(b.Context(), controlplane.SimOptions{Prefix: "n", Count: nodes, Zones: []string{"a", "b", "c"}, Ballast: 15_000})
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
	b.Logf("%d nodes, %d pods", nodes, pods)
	cpu := map[string]time.Duration{}
	for name := range processes {
		cpu[name] = after[name].CPU - before[name].CPU
		b.Logf("%-10s %6.2f CPU-s a minute, %4d MiB", name, cpu[name].Seconds(), after[name].RSS>>20)
	}
	atMost(b, "idle-CPU-external-vs-in-tree", cpu["external"], cpu["in-tree"], .25)
	atMost(b, "idle-CPU-kubelet-vs-in-tree", cpu["kubelet"], cpu["in-tree"], 1)
	for _, name := range []string{"external", "kubelet"} {
		ratio := float64(after[name].RSS) / float64(after["in-tree"].RSS)
		b.ReportMetric(ratio, "x-RSS-"+name+"-vs-in-tree")
		if pods >= 30*nodes && ratio > .1 {
			b.Errorf("RSS of %s is %.3f of the in-tree controller's, at most a tenth is allowed", name, ratio)
		}
	}
}

// load creates pods before their nodes exist, which nobody here minds, evenly
// spread. They have the specification of an ordinary pod and no status, which
// the in-tree controller would keep as well.
func load(b *testing.B, r lab, nodes, pods int) {
	b.Helper()
	began := time.Now()
	names := make([]string, pods)
	for i := range names {
		names[i] = fmt.Sprintf("n%d-%d", 1+i%nodes, i/nodes)
	}
	parallel(b, r, names, func(ctx context.Context, c kubernetes.Interface, name string) error {
		node, _, _ := strings.Cut(name, "-")
		_, err := c.CoreV1().Pods(rig.Pods).Create(ctx, ordinaryPod(name, node), metav1.CreateOptions{})
		return err
	})
	if pods > 0 {
		b.Logf("%d pods created in %v", pods, time.Since(began).Round(time.Second))
	}
}

func ordinaryPod(name, node string) *corev1.Pod {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	container := func(name string, port int32) corev1.Container {
		return corev1.Container{
			Name: name, Image: "images.example.com/team-3/service-07:v1.7.21", ReadinessProbe: probe, LivenessProbe: probe,
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: port}},
			Env: []corev1.EnvVar{
				{Name: "LOG_LEVEL", Value: "info"}, {Name: "DB_HOST", Value: "db.prod.svc.cluster.local"},
				{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"}, {Name: "tmp", MountPath: "/tmp"}},
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rig.Pods, Name: name,
			Labels:      map[string]string{"app": "service-07", "app.kubernetes.io/name": "service-07", "app.kubernetes.io/instance": "prod", "pod-template-hash": "6d4b75cb6d"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{container("app", 8080), container("sidecar", 8081)},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "service-07"}}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
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
