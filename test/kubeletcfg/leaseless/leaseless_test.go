// Package leaseless tells the stories of KEP-6371 about kubelets without
// Leases: real kubelet loops that never write one, beside the in-tree
// controller and beside ours. No released kubelet can do without its Lease, so
// these are made for tests and for nothing else.
//
// Time is compressed ten to one: a status every second, a report every half
// minute, a grace period of five seconds.
package leaseless

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/integration/lifecycle/rig"
)

const (
	// minute is a compressed minute.
	minute = 6 * time.Second
	grace  = 50 * minute / 60
	// patient is the grace period where live nodes must not be taken for dead,
	// however busy the machine is that runs the test.
	patient = 15 * time.Second
	// longer than patient: by then a Lease that nobody renews has been noticed.
	longer = patient + 6*time.Second

	// soon bounds every wait for something that happens within moments.
	soon = 40 * time.Second
)

// r is the control plane that the stories share.
var r *rig.Rig

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if controlplane.Short() {
		return m.Run()
	}
	ctx := context.Background()
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err == nil {
		defer func() { _ = cp.Stop() }()
		defer rig.Clean()
		r, err = rig.New(ctx, cp)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// story is one node, and what controls it at the moment.
type story struct {
	*testing.T
	node   string
	hollow *controlplane.Hollow
	stop   func()
	seen   *ready
}

func begin(t *testing.T, node string) *story {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	s := &story{T: t, node: node, stop: func() {}}
	t.Cleanup(func() {
		s.stop()
		if s.hollow != nil {
			s.hollow.Stop()
		}
		r.Forget(t, node)
	})
	return s
}

// kubelet restarts the node's kubelet, with its Lease or without.
func (s *story) kubelet(lease bool) {
	s.Helper()
	if s.hollow != nil {
		s.hollow.Stop()
	}
	var err error
	s.hollow, err = r.CP.StartHollow(s.Context(), controlplane.HollowOptions{
		Names: []string{s.node},
		Reporting: controlplane.Reporting{
			StatusEvery: time.Second, ReportEvery: 30 * time.Second, LeaseDuration: 4 * time.Second, NoLease: !lease,
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	if s.seen == nil {
		s.seen = follow(s.T, s.node)
	}
}

// inTree hands the cluster to the in-tree controller, which knows no other
// source than the kubelet.
func (s *story) inTree(grace time.Duration) {
	s.Helper()
	s.stop()
	cm, err := r.CP.StartControllerManager(s.Context(), controlplane.CMOptions{
		Controllers: []string{"node-lifecycle-controller"},
		Args:        []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=" + grace.String()},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.stop = cm.Stop
}

// external hands the cluster to nodewarden-controller in external mode. Its
// grace period is as short as the in-tree one, and must not matter.
func (s *story) external() {
	s.Helper()
	s.stop()
	s.stop = r.Start(s.T, rig.Alone, rig.Fast, rig.External).Stop
}

// ready is what a watcher of the node's Ready condition has seen.
type ready struct {
	mu       sync.Mutex
	statuses []corev1.ConditionStatus // each one that differs from the one before
	beats    int                      // heartbeats that moved
	last     metav1.Time
}

// follow watches a node until the test ends.
func follow(t *testing.T, node string) *ready {
	t.Helper()
	w, err := r.Admin.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", node).String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	seen := &ready{}
	go func() {
		for e := range w.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				seen.add(n)
			}
		}
	}()
	return seen
}

func (s *ready) add(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if len(s.statuses) == 0 || s.statuses[len(s.statuses)-1] != c.Status {
			s.statuses = append(s.statuses, c.Status)
		}
		if s.last.Before(&c.LastHeartbeatTime) {
			s.last, s.beats = c.LastHeartbeatTime, s.beats+1
		}
	}
}

// unknowns counts how often the node became Unknown.
func (s *ready) unknowns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, status := range s.statuses {
		if status == corev1.ConditionUnknown {
			n++
		}
	}
	return n
}

func (s *ready) heartbeats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beats
}

// neverUnknown fails if the node becomes Unknown meanwhile.
func (s *story) neverUnknown(during time.Duration) {
	s.Helper()
	before := s.seen.unknowns()
	rig.Never(s.T, during, func() error {
		if n := s.seen.unknowns(); n != before {
			return fmt.Errorf("node %s became Unknown", s.node)
		}
		return nil
	})
}

// renewed is when the node's Lease was renewed last; zero without a Lease.
func (s *story) renewed() time.Time {
	s.Helper()
	l, err := r.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(s.Context(), s.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return time.Time{}
	}
	if err != nil {
		s.Fatal(err)
	}
	return l.Spec.RenewTime.Time
}

// renewing waits until the Lease moves.
func (s *story) renewing() {
	s.Helper()
	first := s.renewed()
	rig.Eventually(s.T, soon, func() error {
		if now := s.renewed(); !now.After(first) {
			return fmt.Errorf("the Lease was renewed at %v and not since", now)
		}
		return nil
	})
}

// reporting waits until the kubelet reports its status again.
func (s *story) reporting() {
	s.Helper()
	first := s.seen.heartbeats()
	rig.Eventually(s.T, soon, func() error {
		if s.seen.heartbeats() == first {
			return fmt.Errorf("no report after the first %d", first)
		}
		return nil
	})
}

func TestTenMinutesWithoutALeaseUnderExternalMode(t *testing.T) {
	s := begin(t, "quiet")
	since := time.Now()
	s.external()
	s.kubelet(false)
	s.neverUnknown(10 * minute)
	if got := s.seen.heartbeats(); got < 2 {
		t.Errorf("the kubelet reported its status %d times; without a Lease it must go on", got)
	}
	if at := s.renewed(); !at.IsZero() {
		t.Errorf("there is a Lease, renewed at %v", at)
	}
	asked, err := r.CP.Audit(controlplane.AuditFilter{User: "system:node:" + s.node, Resource: "leases", Since: since})
	if err != nil || len(asked) > 0 {
		t.Errorf("the kubelet spoke of Leases %d times (%v)", len(asked), err)
	}
	// A failure that a detector records is still acted on, and the kubelet takes it back.
	r.Detect(t, s.node)
	rig.Eventually(t, soon, r.EventsAre(t, s.node, "NodeNotReady", 1))
	rig.Eventually(t, soon, r.TaintsAre(t, s.node))
}

// B50, the wrong order: Leases off while a controller in kubelet mode leads.
func TestTheWrongOrderFlapsAboutOnceAMinute(t *testing.T) {
	s := begin(t, "flapping")
	s.inTree(grace)
	s.kubelet(false)
	const cycles = 3
	began := time.Now()
	rig.Eventually(t, 6*cycles*minute, func() error {
		if n := s.seen.unknowns(); n < cycles {
			return fmt.Errorf("%d of %d times Unknown", n, cycles)
		}
		return nil
	})
	if each := time.Since(began) / cycles; each < grace/2 {
		t.Errorf("a cycle took %v, less than the grace period allows", each)
	}
	rig.Eventually(t, soon, func() error {
		if n := r.Events(t, s.node, "NodeNotReady"); n < cycles {
			return fmt.Errorf("%d events for %d outages that were none", n, cycles)
		}
		return nil
	})
}

func TestUpgradeTheControlPlaneFirstThenTheKubelets(t *testing.T) {
	s := begin(t, "upgrade")
	s.inTree(patient)
	s.kubelet(true)
	s.renewing()
	s.external()
	s.neverUnknown(grace)
	s.kubelet(false)
	left := s.renewed()
	s.neverUnknown(longer)
	if now := s.renewed(); !now.Equal(left) || left.IsZero() {
		t.Errorf("the Lease was renewed at %v, then at %v: it must stay behind and go stale", left, now)
	}
	s.reporting()
}

func TestRollbackTheKubeletsFirstThenTheControlPlane(t *testing.T) {
	s := begin(t, "rollback")
	s.external()
	s.kubelet(false)
	s.neverUnknown(grace)
	s.kubelet(true)
	s.renewing()
	s.inTree(patient)
	s.neverUnknown(longer)
	s.renewing()
	s.reporting()
}

func TestReenableAfterARollbackNeedsNothingElse(t *testing.T) {
	s := begin(t, "again")
	s.external()
	s.kubelet(false)
	s.kubelet(true)
	s.renewing()
	s.inTree(patient)
	s.neverUnknown(longer)

	s.external()
	s.kubelet(false)
	stale := s.renewed()
	s.neverUnknown(longer)
	if now := s.renewed(); !now.Equal(stale) {
		t.Errorf("a kubelet without a Lease renewed one at %v", now)
	}
	r.Detect(t, s.node)
	rig.Eventually(t, soon, r.EventsAre(t, s.node, "NodeNotReady", 1))
	// Only a kubelet that lives takes it back.
	rig.Eventually(t, soon, r.TaintsAre(t, s.node))
}
