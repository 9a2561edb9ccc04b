package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// SimOptions say which nodes to simulate: no kubelets, only what the API server
// sees of one. A node costs some kilobytes, so thousands fit in a test.
type SimOptions struct {
	// Names of the nodes, or else Prefix and Count: n1, n2, n3.
	Names  []string
	Prefix string
	Count  int
	// Zones that the nodes are spread over, in turn. Empty means one, zone-a.
	Zones []string
	// Labels are added to every node's own.
	Labels map[string]string
	// Ballast is how many bytes to add to each node's status as container
	// images, up to 50 of them: a busy node's object has some 15 to 40 KB.
	Ballast int

	Reporting
	// Silent nodes register, report Ready, and write nothing more.
	Silent bool

	// OwnConnections gives every node a certificate and a connection of its
	// own, as in life. Without it nodes share connections and are impersonated
	// there, which to authorizers and admission is the same.
	OwnConnections bool
}

// sharedConnections is how many connections nodes share, and how many of them
// register at once.
const sharedConnections = 8

// SimulatedNodes are nodes whose kubelets are goroutines of this process.
type SimulatedNodes struct {
	nodes map[string]*simulatedNode
	names []string
	stop  context.CancelFunc
	wg    sync.WaitGroup

	counts simCounts
}

type simCounts struct{ leases, statuses, failures atomic.Int64 }

// SimCounts is what simulated kubelets have written so far.
type SimCounts struct{ Leases, Statuses, Failures int64 }

// SimulateNodes registers nodes as their kubelets would and, unless they are to
// be silent, renews their Leases and reports their status until the control
// plane stops. It returns when all are registered.
func (cp *ControlPlane) SimulateNodes(ctx context.Context, o SimOptions) (*SimulatedNodes, error) {
	o = o.withDefaults()
	names := nodeNames(o.Names, o.Prefix, o.Count)
	if len(names) == 0 {
		return nil, errors.New("simulate nodes: no nodes named: set Names, or Prefix and Count")
	}
	life, cancel := context.WithCancel(context.Background())
	s := &SimulatedNodes{nodes: map[string]*simulatedNode{}, names: names, stop: cancel}
	cp.mu.Lock()
	cp.stops = append(cp.stops, s.Close)
	cp.mu.Unlock()
	if err := cp.makeNodes(s, o); err != nil {
		s.Close()
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	if err := s.register(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	if o.Silent {
		return s, nil
	}
	if err := s.watch(life, cp.Admin()); err != nil {
		s.Close()
		return nil, fmt.Errorf("simulate nodes: %w", err)
	}
	for _, n := range s.nodes {
		s.wg.Go(func() { n.keepReporting(life) })
		if !o.NoLease {
			s.wg.Go(func() { n.keepRenewing(life) })
		}
	}
	return s, nil
}

func (o SimOptions) withDefaults() SimOptions {
	if len(o.Zones) == 0 {
		o.Zones = []string{"zone-a"}
	}
	for d, value := range map[*time.Duration]time.Duration{
		&o.StatusEvery: 10 * time.Second, &o.ReportEvery: 5 * time.Minute, &o.LeaseDuration: 40 * time.Second,
	} {
		if *d == 0 {
			*d = value
		}
	}
	return o
}

func (cp *ControlPlane) makeNodes(s *SimulatedNodes, o SimOptions) error {
	shared, err := cp.sharedClients()
	if err != nil {
		return err
	}
	for i, name := range s.names {
		client := shared[i%len(shared)]
		if o.OwnConnections {
			c := cp.Kubelet(name)
			c.UserAgent = "kubelet"
			if client, err = kubernetes.NewForConfig(c); err != nil {
				return err
			}
		}
		s.nodes[name] = newSimulatedNode(name, i, o, client, &s.counts)
	}
	return nil
}

// sharedClients act as the node that the context of a request names.
func (cp *ControlPlane) sharedClients() ([]*kubernetes.Clientset, error) {
	var clients []*kubernetes.Clientset
	for i := range sharedConnections {
		// Connections of one user would be pooled into one.
		c := cp.User(fmt.Sprintf("nodes-%d", i), "system:masters")
		c.UserAgent = "kubelet"
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return impersonator{next} })
		client, err := kubernetes.NewForConfig(c)
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

// register creates all nodes and first Leases, several at a time.
func (s *SimulatedNodes) register(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, 2*sharedConnections)
	var wg sync.WaitGroup
	for _, name := range s.names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if err := s.nodes[name].register(ctx); err != nil {
				cancel(fmt.Errorf("register %s: %w", name, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// watch keeps each node's view of its own conditions, as a kubelet does.
func (s *SimulatedNodes) watch(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	see := func(obj any) {
		if n, ok := obj.(*corev1.Node); ok && s.nodes[n.Name] != nil {
			s.nodes[n.Name].see(n)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }},
		// Only the conditions are of interest, and thousands of nodes are held.
		Transform: func(obj any) (any, error) {
			if n, ok := obj.(*corev1.Node); ok {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, ResourceVersion: n.ResourceVersion},
					Status: corev1.NodeStatus{Conditions: n.Status.Conditions}}, nil
			}
			return obj, nil
		},
	})
	s.wg.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

// Names of all the nodes.
func (s *SimulatedNodes) Names() []string { return slices.Clone(s.names) }

// Pause makes the kubelets of these nodes fall silent, as if they had died.
func (s *SimulatedNodes) Pause(names ...string) error {
	return s.each(names, func(n *simulatedNode) { n.paused.Store(true) })
}

// Resume lets them speak again, at their usual times.
func (s *SimulatedNodes) Resume(names ...string) error {
	return s.each(names, func(n *simulatedNode) { n.paused.Store(false) })
}

func (s *SimulatedNodes) each(names []string, do func(*simulatedNode)) error {
	for _, name := range names {
		n, ok := s.nodes[name]
		if !ok {
			return fmt.Errorf("no simulated node %q", name)
		}
		do(n)
	}
	return nil
}

// Report sets what a node's kubelet thinks of its own Ready condition and has
// it reported now, whether paused or not.
func (s *SimulatedNodes) Report(ctx context.Context, name string, status corev1.ConditionStatus, reason, message string) error {
	n, ok := s.nodes[name]
	if !ok {
		return fmt.Errorf("no simulated node %q", name)
	}
	n.think(corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message})
	return n.report(ctx)
}

// Counts is what the kubelets have written so far.
func (s *SimulatedNodes) Counts() SimCounts {
	return SimCounts{Leases: s.counts.leases.Load(), Statuses: s.counts.statuses.Load(), Failures: s.counts.failures.Load()}
}

// Close ends the kubelets. Their Nodes and Leases stay.
func (s *SimulatedNodes) Close() {
	s.stop()
	s.wg.Wait()
}
