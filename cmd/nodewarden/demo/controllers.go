package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
)

// Where the controllers and the pods of the demo are.
const (
	systemNamespace = "nodewarden-system"
	account         = "nodewarden-controller"
	podNamespace    = "demo"
	podsOnN3        = 5
)

// startControllers starts two replicas in external mode and waits for a leader.
func (s *story) startControllers(ctx context.Context) error {
	begun := time.Now()
	if err := s.grantController(ctx); err != nil {
		return err
	}
	binary, err := guard.Build(ctx, s.cp, "nodewarden-controller")
	if err != nil {
		return err
	}
	kubeconfig, err := s.cp.Kubeconfig(s.cp.ServiceAccount(systemNamespace, account))
	if err != nil {
		return err
	}
	for range 2 {
		r, err := s.startController(ctx, binary, kubeconfig)
		if err != nil {
			return err
		}
		s.controllers = append(s.controllers, r)
		if _, err := s.newLeader(ctx, ""); err != nil {
			return err
		}
	}
	s.say("two nodewarden-controllers run in external mode, one of them leads (%s)", since(begun))
	return nil
}

// replica is one of the controllers.
type replica struct {
	*controlplane.Process
	url string // of its health and its metrics
}

func (s *story) startController(ctx context.Context, binary, kubeconfig string) (*replica, error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	r := &replica{url: "http://" + address}
	r.Process, err = s.cp.Run(ctx, controlplane.Command{Path: binary, Args: []string{
		"--kubeconfig=" + kubeconfig, "--metrics-bind-address=" + address,
		"--feature-gates=ExternalNodeLivenessDetection=true", "--node-liveness-source=external",
		"--leader-elect-resource-namespace=" + systemNamespace,
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
	}, Ready: func(ctx context.Context) error {
		_, err := fetch(ctx, r.url+"/readyz")
		return err
	}})
	return r, err
}

// fetch reads a page; any answer but 200 is an error.
func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(page), err
}

// grantController gives the controller's account what docs/lifecycle.md lists.
func (s *story) grantController(ctx context.Context) error {
	may := func(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	for _, ns := range []string{systemNamespace, podNamespace} {
		if _, err := s.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return s.grant(ctx, systemNamespace, account,
		may("", []string{"nodes", "pods"}, "get", "list", "watch"),
		may("", []string{"nodes", "nodes/status", "pods/status"}, "patch"),
		may("", []string{"events"}, "create", "patch"),
		may("coordination.k8s.io", []string{"leases"}, "get", "list", "watch", "create", "update"),
	)
}

// grant gives a service account a cluster role of its own name.
func (s *story) grant(ctx context.Context, namespace, name string, rules ...rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := s.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := s.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	return err
}

// newLeader waits until somebody other than old leads.
func (s *story) newLeader(ctx context.Context, old string) (leader string, err error) {
	err = s.until(ctx, func() error {
		lease, err := s.admin.CoordinationV1().Leases(systemNamespace).Get(ctx, "nodewarden-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if leader = holder(lease); leader == "" || leader == old {
			return errors.New("no new leader yet")
		}
		return nil
	})
	return leader, err
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// runPods runs pods on n3 and waits until its kubelet reports them Ready.
func (s *story) runPods(ctx context.Context) error {
	begun := time.Now()
	for i := range podsOnN3 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i+1), Namespace: podNamespace}, Spec: corev1.PodSpec{
			NodeName: "n3", Containers: []corev1.Container{{Name: "web", Image: "web"}},
		}}
		if _, err := s.admin.CoreV1().Pods(podNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	err := s.until(ctx, func() error {
		if n, err := s.readyPods(ctx); err != nil || n < podsOnN3 {
			return errors.Join(err, fmt.Errorf("%d of %d pods on n3 are Ready", n, podsOnN3))
		}
		return nil
	})
	if err == nil {
		s.say("%d pods run on n3, all Ready (%s)", podsOnN3, since(begun))
	}
	return err
}

func (s *story) readyPods(ctx context.Context) (int, error) {
	pods, err := s.admin.CoreV1().Pods(podNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range pods.Items {
		if podReady(&pods.Items[i]) {
			n++
		}
	}
	return n, nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// sighting is something that a watch saw happen.
type sighting struct {
	what string
	at   time.Time
}

var errWatchEnded = errors.New("n3: the API server ended a watch before everything had happened")

// outage is what happened to n3 and its pods, each once.
type outage struct {
	began time.Time // when n3 was first seen Unknown
	seen  []sighting
	down  map[string]bool // pods
}

// reaction watches n3 and its pods while fail writes that n3 is down, and returns
// when everything expected of an outage has happened.
func reaction(ctx context.Context, c kubernetes.Interface, fail func() error) (*outage, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := &outage{began: time.Now(), down: map[string]bool{}}
	nodes, err := c.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "n3").String()})
	if err != nil {
		return nil, err
	}
	pods, err := c.CoreV1().Pods(podNamespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	// Not after the write: much happens while kubectl still runs.
	ended := make(chan error, 1)
	go func() { ended <- o.follow(ctx, nodes.ResultChan(), pods.ResultChan()) }()
	if err := fail(); err != nil {
		return nil, err
	}
	return o, <-ended
}

func (o *outage) follow(ctx context.Context, nodes, pods <-chan watch.Event) error {
	for !o.had("taint unreachable:NoSchedule") || !o.had("taint unreachable:NoExecute") || len(o.down) < podsOnN3 {
		var e watch.Event
		open := true
		select {
		case <-ctx.Done():
		case e, open = <-nodes:
		case e, open = <-pods:
		}
		at := time.Now()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("n3: only %d sightings, %d pods not Ready", len(o.seen), len(o.down))
		case !open:
			return errWatchEnded
		case e.Type == watch.Error:
			return fmt.Errorf("n3: a watch failed: %w", apierrors.FromObject(e.Object))
		}
		switch is := e.Object.(type) {
		case *corev1.Node:
			o.sawNode(is, at)
		case *corev1.Pod:
			o.sawPod(is, at)
		}
	}
	return nil
}

func (o *outage) sawNode(n *corev1.Node, at time.Time) {
	const itself = "the write itself"
	if ready(n).Status != corev1.ConditionUnknown {
		return
	}
	if !o.had(itself) {
		o.began = at
	}
	o.saw(itself, at)
	for _, t := range n.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable {
			o.saw("taint unreachable:"+string(t.Effect), at)
		}
	}
}

func (o *outage) sawPod(p *corev1.Pod, at time.Time) {
	if podReady(p) || o.down[p.Name] {
		return
	}
	o.down[p.Name] = true
	o.saw(fmt.Sprintf("%d of %d pods NotReady", len(o.down), podsOnN3), at)
}

func (o *outage) had(what string) bool {
	return slices.ContainsFunc(o.seen, func(s sighting) bool { return s.what == what })
}

func (o *outage) saw(what string, at time.Time) {
	if !o.had(what) {
		o.seen = append(o.seen, sighting{what, at})
	}
}

// leader is the replica that holds the lease, by its own account: the name in the
// lease is a random one.
func (s *story) leader(ctx context.Context) (*replica, error) {
	var leaders []*replica
	for _, r := range s.controllers {
		page, err := fetch(ctx, r.url+"/metrics")
		if err != nil {
			return nil, err
		}
		if guard.Sum(page, "leader_election_master_status") > 0 {
			leaders = append(leaders, r)
		}
	}
	if len(leaders) != 1 {
		return nil, fmt.Errorf("%d controllers say that they lead", len(leaders))
	}
	return leaders[0], nil
}

// failedOver kills the leader and waits for the other replica.
func (s *story) failedOver(ctx context.Context) error {
	old, err := s.newLeader(ctx, "")
	if err != nil {
		return err
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	leader.Kill()
	s.say("the leader is gone (SIGKILL): %s", old)
	if _, err := s.newLeader(ctx, old); err != nil {
		return err
	}
	s.say("the other replica leads after %s (lease of 3 s)", since(begun))
	return s.oneEvent(ctx)
}

// oneEvent expects exactly one NodeNotReady event of the controller for n3.
func (s *story) oneEvent(ctx context.Context) error {
	events, err := s.admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": "n3", "reason": "NodeNotReady"}.String(),
	})
	if err != nil {
		return err
	}
	n := 0
	for _, e := range events.Items {
		if e.Source.Component != "kubelet" {
			n += max(1, int(e.Count))
		}
	}
	s.say("NodeNotReady events for n3: %d", n)
	if n != 1 {
		return fmt.Errorf("want exactly one NodeNotReady event, got %d", n)
	}
	return nil
}

// healed waits until n3 has no taints and its pods are Ready again.
func (s *story) healed(ctx context.Context) error {
	return s.until(ctx, func() error {
		n, err := s.admin.CoreV1().Nodes().Get(ctx, "n3", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("n3 still has %d taints", len(n.Spec.Taints))
		}
		if up, err := s.readyPods(ctx); err != nil || up < podsOnN3 {
			return errors.Join(err, fmt.Errorf("%d of %d pods on n3 are Ready", up, podsOnN3))
		}
		return nil
	})
}
