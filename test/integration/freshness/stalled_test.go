package freshness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/nodes"
)

// TestB31AStalledWriterIsSeen is the public report: a node whose writer died
// 20 minutes ago and still reads Ready, a fresh one, and one that is correctly
// Unknown for three hours; with the usual periods, of a webhook that has just
// started and that nobody has sent a review.
func TestB31AStalledWriterIsSeen(t *testing.T) {
	for name, prepare := range map[string]func(*cluster, *corev1.Node){
		"by its own times, where managedFields do not tell": func(*cluster, *corev1.Node) {},
		"by the API server's stamps":                        (*cluster).stamp,
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			for _, n := range trio(time.Now()) {
				prepare(c, c.create(n))
			}
			p := c.scrape(c.started(usual))
			if err := p.stalled(1, "n1"); err != nil {
				t.Fatalf("%v\nscraped:\n%s", err, p.about())
			}
			if age := p.value("nodewarden_node_ready_age_seconds", `node="n1"`); age < 1198 || age > 1260 {
				t.Errorf("n1 is said to be silent for %v s, want about 1200", age)
			}
			if got := p.value("nodewarden_webhook_reviews_total"); got != 0 {
				t.Errorf("%v reviews: the figures are to come without any", got)
			}
		})
	}
}

// stamp makes managedFields say that Ready was written when its own times say
// so, by whom one would expect. The status is written as its author would; the
// stamps are then moved back, as a restore may do.
func (c *cluster) stamp(n *corev1.Node) {
	c.Helper()
	want, manager := nodes.Ready(n).LastHeartbeatTime, "kubelet"
	if nodes.Ready(n).Status == corev1.ConditionUnknown {
		want, manager = nodes.Ready(n).LastTransitionTime, "detector"
	}
	body := `{"status":{"conditions":[{"type":"Ready","message":"written by ` + manager + `"}]}}`
	n, err := c.admin.CoreV1().Nodes().Patch(c.context(), n.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{FieldManager: manager}, "status")
	if err != nil {
		c.Fatal(err)
	}
	for i := range n.ManagedFields {
		n.ManagedFields[i].Time = &want
	}
	n.Annotations = map[string]string{"example.org/restored": "true"}
	if n, err = c.admin.CoreV1().Nodes().Update(c.context(), n, metav1.UpdateOptions{FieldManager: "restore"}); err != nil {
		c.Fatal(err)
	}
	for _, m := range n.ManagedFields {
		if m.Manager == manager && !m.Time.Equal(&want) {
			c.Fatalf("the API server did not keep the stamp of %s: %s, want %s", manager, m.Time, want)
		}
	}
}

func TestTheFigureIsRightStraightAfterARestart(t *testing.T) {
	c := begin(t)
	for _, n := range trio(time.Now()) {
		c.create(n)
	}
	hook := c.started(usual)
	if err := c.scrape(hook).stalled(1, "n1"); err != nil {
		t.Fatal(err)
	}
	hook.Kill()
	// Ready means that nodes are listed, so the first scrape is complete.
	if p := c.scrape(c.started(usual)); p.stalled(1, "n1") != nil {
		t.Fatalf("%v\nscraped:\n%s", p.stalled(1, "n1"), p.about())
	}
}

func TestADeletedNodeTakesItsNameAlong(t *testing.T) {
	c := begin(t)
	for _, n := range trio(time.Now()) {
		c.create(n)
	}
	hook := c.started(usual)
	if err := c.scrape(hook).stalled(1, "n1"); err != nil {
		t.Fatal(err)
	}
	c.delete("n1")
	c.delete("n3")
	p := eventually(t, func() page { return c.scrape(hook) }, func(p page) error { return p.stalled(0) })
	if p.has("nodewarden_node_ready_age_seconds", `node="n1"`) {
		t.Errorf("its age is still there:\n%s", p.about())
	}
	// A node of the same name owes nothing to the old one.
	c.create(nodes.Reporting("n1", time.Now(), time.Now()).Node())
	eventually(t, func() page { return c.scrape(hook) }, func(p page) error {
		if got := p.value("nodewarden_watched_nodes"); got != 2 {
			return fmt.Errorf("%v nodes watched, want 2", got)
		}
		return p.stalled(0)
	})
}

func TestAboveTheLimitNodesAreCountedAndNotNamed(t *testing.T) {
	c := begin(t)
	for i := range 3 {
		c.create(nodes.Reporting(fmt.Sprintf("s%d", i), time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)).Node())
	}
	p := c.scrape(c.started(usual + "stalled: {maxNamedNodes: 2}\n"))
	if p.value("nodewarden_stalled_nodes") != 3 || p.value("nodewarden_stalled_names_suppressed") != 1 || p.has("nodewarden_node_ready_stalled") {
		t.Errorf("scraped:\n%s", p.about())
	}
}

// TestAKubeletDiesAndADetectorRecordsIt is the life of one node among others,
// with kubelets that write as kubelets do.
func TestAKubeletDiesAndADetectorRecordsIt(t *testing.T) {
	c := begin(t)
	kubelets, err := shared.SimulateNodes(c.context(), controlplane.SimOptions{
		Names:     []string{"n1", "n2"},
		Reporting: controlplane.Reporting{StatusEvery: 200 * time.Millisecond, ReportEvery: 500 * time.Millisecond, NoLease: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer kubelets.Close()
	hook := c.started(quick)
	scrape := func() page { return c.scrape(hook) }
	always(t, quickAfter+2*time.Second, scrape, func(p page) error { return p.stalled(0) })

	if err := kubelets.Pause("n1"); err != nil {
		t.Fatal(err)
	}
	p := eventually(t, scrape, func(p page) error { return p.stalled(0, "n1") })
	if !p.has("nodewarden_node_ready_stalled", `node="n1"`, `last_writer="kubelet"`) {
		t.Errorf("who wrote last?\n%s", p.about())
	}

	record(t, c, "n1", "bmc-detector")
	p = eventually(t, scrape, func(p page) error { return p.stalled(0) })
	if at := p.value("nodewarden_external_writer_last_write_timestamp_seconds", `writer="bmc-detector"`); time.Since(time.Unix(int64(at), 0)).Abs() > time.Minute {
		t.Errorf("the detector is said to have written at %v\n%s", at, p.about())
	}
	eventually(t, scrape, func(p page) error { return p.stalled(1) })

	if err := kubelets.Resume("n1"); err != nil {
		t.Fatal(err)
	}
	p = eventually(t, scrape, func(p page) error { return p.stalled(0) })
	// The kubelet has taken the detector's name off the node; it is remembered.
	if !p.has("nodewarden_external_writer_last_write_timestamp_seconds", `writer="bmc-detector"`) {
		t.Errorf("the detector is forgotten:\n%s", p.about())
	}
}

// record is a detector's write.
func record(t *testing.T, c *cluster, node, manager string) {
	t.Helper()
	body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"OutOfBandProbeFailed","message":"no answer","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, err := client(t, detector.config()).CoreV1().Nodes().Patch(c.context(), node, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{FieldManager: manager}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

func TestAKubeletsClockDoesNotMatter(t *testing.T) {
	for name, off := range map[string]time.Duration{"20 min ahead": 20 * time.Minute, "20 min behind": -20 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			c.create(nodes.Reporting("n1", time.Now().Add(off-time.Hour), time.Now().Add(off-time.Hour)).Node())
			ctx, die := context.WithCancel(c.context())
			defer die()
			kubelet, other := client(t, shared.Kubelet("n1")), client(t, shared.Kubelet("n2"))
			heartbeat(ctx, t, kubelet, "n1", off)
			c.create(nodes.Reporting("n2", time.Now(), time.Now()).Node())
			living, end := context.WithCancel(c.context())
			failed := make(chan error, 2)
			go func() { failed <- beat(ctx, kubelet, "n1", off) }()
			go func() { failed <- beat(living, other, "n2", 0) }()
			defer func() {
				end()
				die()
				if err := errors.Join(<-failed, <-failed); err != nil {
					t.Error(err)
				}
			}()

			hook := c.started(quick)
			scrape := func() page { return c.scrape(hook) }
			always(t, quickAfter+2*time.Second, scrape, func(p page) error { return p.stalled(0) })
			die()
			p := eventually(t, scrape, func(p page) error { return p.stalled(0, "n1") })
			if age := p.value("nodewarden_node_ready_age_seconds", `node="n1"`); age < quickAfter.Seconds() || age > 60 {
				t.Errorf("n1 is said to be silent for %v s\n%s", age, p.about())
			}
		})
	}
}

// beat sends heartbeats of a clock that is off, until ctx ends.
func beat(ctx context.Context, kubelet kubernetes.Interface, node string, off time.Duration) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := sendHeartbeat(ctx, kubelet, node, off); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func heartbeat(ctx context.Context, t *testing.T, kubelet kubernetes.Interface, node string, off time.Duration) {
	t.Helper()
	if err := sendHeartbeat(ctx, kubelet, node, off); err != nil {
		t.Fatal(err)
	}
}

func sendHeartbeat(ctx context.Context, kubelet kubernetes.Interface, node string, off time.Duration) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": corev1.NodeReady, "lastHeartbeatTime": time.Now().Add(off).UTC().Format(time.RFC3339),
	}}}})
	if err != nil {
		return err
	}
	_, err = kubelet.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	return err
}
