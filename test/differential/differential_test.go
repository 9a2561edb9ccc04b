// Package differential_test plays the same random history of writes to the
// in-tree controller and to ours, each on a control plane of its own, and
// compares what is left: taints, conditions, labels, pods and events.
package differential_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

// flags are the same for both. A zone that is partly disrupted stops tainting in
// the middle of a pass, or not, so that state is left to the tests of the zone
// arithmetic: at a threshold of 1 there is none.
var flags = []string{
	"--node-monitor-period=500ms", "--node-monitor-grace-period=" + grace.String(), "--node-startup-grace-period=" + grace.String(),
	"--node-eviction-rate=1000", "--unhealthy-zone-threshold=1", "--kube-api-qps=1000", "--kube-api-burst=2000",
}

// together is how many histories are played side by side; each has zones of its
// own, and a node that is always up keeps full disruption away.
const together = 20

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Clean()
	os.Exit(code)
}

func TestBothControllersLeaveTheSameBehind(t *testing.T) { play(t, 1, 1) }

func TestSoakBothControllersLeaveTheSameBehind(t *testing.T) {
	batches := rig.Soak(t, 15)
	play(t, rig.Seed(t), batches)
}

// planes are the in-tree controller's and ours.
type planes [2]*rig.Rig

func (p planes) each(ctx context.Context, do write) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range p {
		g.Go(func() error { return do(ctx, r) })
	}
	return g.Wait()
}

func start(t *testing.T) planes {
	t.Helper()
	var p planes
	for i := range p {
		r, err := rig.New(t.Context(), controlplane.ForTest(t, controlplane.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		p[i] = r
	}
	if _, err := p[0].CP.StartControllerManager(t.Context(), controlplane.CMOptions{Controllers: []string{"node-lifecycle-controller"}, Args: flags}); err != nil {
		t.Fatal(err)
	}
	p[1].Start(t, rig.Alone, flags)
	return p
}

func play(t *testing.T, seed uint64, batches int) {
	p := start(t)
	anchor := anchored(t, p)
	for range batches {
		var all []*history
		for range together {
			all = append(all, newHistory(seed, time.Now()))
			seed++
		}
		run(t, p, append(slices.Clone(all), anchor), func() { playAll(t, p, all) })
	}
}

// anchored makes the node that is up when nothing else is.
func anchored(t *testing.T, p planes) *history {
	t.Helper()
	h := newHistory(0, time.Now())
	h.nodes = h.nodes[:1]
	run(t, p, []*history{h}, func() { h.do(t, p, h.begin(h.nodes)) })
	return h
}

// run does something while the histories' live kubelets renew their Leases.
func run(t *testing.T, p planes, all []*history, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var g errgroup.Group
	for _, h := range all {
		for _, r := range p {
			g.Go(func() error {
				for ctx.Err() == nil {
					if err := h.renew(ctx, r); err != nil {
						return err
					}
					select {
					case <-ctx.Done():
					case <-time.After(renewEvery):
					}
				}
				return nil
			})
		}
	}
	do()
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func playAll(t *testing.T, p planes, all []*history) {
	t.Helper()
	for _, h := range all {
		h.do(t, p, h.begin(h.nodes))
	}
	for range acts {
		time.Sleep(actEvery)
		var g errgroup.Group
		for _, h := range all {
			g.Go(func() error { return h.perform(t.Context(), p, h.next()) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	// What was silent at the end is given up, and then nothing moves any more.
	time.Sleep(grace + 3*actEvery)
	for _, h := range all {
		h.compare(t, p)
	}
	for _, h := range all {
		forget(t, p, h.nodes)
	}
}

func forget(t *testing.T, p planes, nodes []*subject) {
	t.Helper()
	for _, n := range nodes {
		n.set(false)
		for _, r := range p {
			r.Forget(t, n.name)
		}
	}
}

func (h *history) do(t *testing.T, p planes, writes []write) {
	t.Helper()
	if err := h.perform(t.Context(), p, writes); err != nil {
		t.Fatal(err)
	}
}

func (h *history) perform(ctx context.Context, p planes, writes []write) error {
	for _, w := range writes {
		if err := p.each(ctx, w); err != nil {
			return fmt.Errorf("seed %d: %w, after\n%s", h.seed, err, h)
		}
	}
	return nil
}

// compare waits until both control planes show the same.
func (h *history) compare(t *testing.T, p planes) {
	t.Helper()
	var last string
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		theirs, err := h.outcome(t.Context(), p[0])
		if err != nil {
			t.Fatal(err)
		}
		ours, err := h.outcome(t.Context(), p[1])
		if err != nil {
			t.Fatal(err)
		}
		if last = h.unforeseen(theirs, ours) + differences(theirs, ours); last == "" {
			return
		}
	}
	t.Errorf("seed %d ends differently:\n%safter\n%s", h.seed, last, h)
}

func differences(theirs, ours map[string]string) string {
	var b strings.Builder
	keys := slices.Sorted(maps.Keys(theirs))
	for k := range ours {
		if _, ok := theirs[k]; !ok {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		if theirs[k] != ours[k] {
			fmt.Fprintf(&b, "  %s: in-tree %q, ours %q\n", k, theirs[k], ours[k])
		}
	}
	return b.String()
}

// outcome is what a history left on a control plane, as far as it may not differ.
func (h *history) outcome(ctx context.Context, r *rig.Rig) (map[string]string, error) {
	out := map[string]string{}
	for _, n := range h.nodes {
		if n.gone {
			continue
		}
		node, err := r.Admin.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		describe(out, node)
		for _, reason := range []string{"NodeNotReady", "RegisteredNode", "RemovingNode"} {
			count, err := r.CountEvents(ctx, n.name, reason)
			if err != nil {
				return nil, err
			}
			out[n.name+" "+reason] = fmt.Sprint(count)
		}
	}
	for i := range h.pods {
		name := fmt.Sprintf("%s-p%d", h.prefix, i+1)
		pod, err := r.Admin.CoreV1().Pods(rig.Pods).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		ready := rig.PodReady(pod)
		out[name] = fmt.Sprintf("%s %s %s", ready.Status, ready.Reason, ready.Message)
		told, err := r.CountEvents(ctx, name, "NodeNotReady")
		if err != nil {
			return nil, err
		}
		out[name+" order"] = ""
		for _, c := range pod.Status.Conditions {
			out[name+" order"] += string(c.Type) + " "
		}
		out[name+" told"] = fmt.Sprint(told > 0)
	}
	return out, nil
}

func describe(out map[string]string, n *corev1.Node) {
	var evicting, others []string
	for _, taint := range rig.TaintsOf(n) {
		if taint == "unreachable:NoExecute" || taint == "not-ready:NoExecute" {
			evicting = append(evicting, taint)
		} else {
			others = append(others, taint)
		}
	}
	out[n.Name+" evicting"] = strings.Join(evicting, " ")
	out[n.Name+" taints"] = strings.Join(others, " ")
	out[n.Name+" labels"] = fmt.Sprint(n.Labels)
	for _, c := range n.Status.Conditions {
		heartbeat := c.LastHeartbeatTime.UTC().Format(time.RFC3339)
		if c.Reason == "NodeStatusNeverUpdated" && c.LastHeartbeatTime.Equal(&n.CreationTimestamp) {
			heartbeat = "creation" // which the two API servers may have put into different seconds
		}
		out[n.Name+" "+string(c.Type)] = fmt.Sprintf("%s %s %s, heartbeat %s", c.Status, c.Reason, c.Message, heartbeat)
	}
	order := ""
	for _, c := range n.Status.Conditions {
		order += string(c.Type) + " "
	}
	out[n.Name+" order"] = order
}
