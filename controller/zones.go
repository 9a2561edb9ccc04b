package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodewarden/nodewarden/controller/lifecycle"
	"github.com/nodewarden/nodewarden/controller/zone"
)

// zones is the cluster as package zone counts it, shared by all workers.
type zones struct {
	mu      sync.Mutex
	cluster *zone.Cluster
	// turns are the nodes whose turn has come and is not yet used.
	turns map[string]bool
	// kick wakes whoever waits for the next turn.
	kick chan struct{}
}

func newZones(o Options) *zones {
	return &zones{cluster: zone.New(o.limits(), o.pace()), turns: map[string]bool{}, kick: make(chan struct{}, 1)}
}

// count takes nodes into account and returns what that changed.
func (z *zones) count(now time.Time, nodes ...*corev1.Node) zone.Outcome {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, n := range nodes {
		z.cluster.Set(n.Name, zone.Node{Zone: zone.Key(n.Labels), Health: healthOf(n)}, now)
	}
	outcome := z.cluster.Assess(now)
	if outcome.Entered {
		clear(z.turns)
	}
	for _, n := range nodes {
		switch {
		case !lifecycle.AwaitsEviction(n):
			z.leave(n.Name)
		case !z.turns[n.Name]:
			z.cluster.Wait(n.Name, now)
		}
	}
	z.wake()
	return outcome
}

func healthOf(n *corev1.Node) zone.Health {
	if _, excluded := n.Labels[zone.Excluded]; excluded {
		return zone.Uncounted
	}
	if lifecycle.ReadyOf(n).Status == corev1.ConditionTrue {
		return zone.Up
	}
	return zone.Down
}

// without stops counting a node: for good, or until it can be evaluated again.
// Either can raise the rate of its zone.
func (z *zones) without(now time.Time, name string, gone bool) zone.Outcome {
	z.mu.Lock()
	defer z.mu.Unlock()
	defer z.wake()
	if gone {
		z.leave(name)
		z.cluster.Remove(name)
	} else {
		z.cluster.Skip(name, now)
	}
	return z.cluster.Assess(now)
}

func (z *zones) leave(name string) {
	delete(z.turns, name)
	z.cluster.Leave(name)
}

// next hands out a turn, or says how long to wait for one.
func (z *zones) next(now time.Time) (name string, ok bool, wait time.Duration) {
	z.mu.Lock()
	defer z.mu.Unlock()
	name, ok, wait = z.cluster.Next(now)
	if ok {
		z.turns[name] = true
	}
	return name, ok, wait
}

// turn says that a node's turn has come.
func (z *zones) turn(name string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.turns[name]
}

// again puts a node whose turn came to nothing back in its place.
func (z *zones) again(name string, now time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.turns, name)
	z.cluster.Wait(name, now)
	z.wake()
}

// done ends a node's turn and names its zone.
func (z *zones) done(name string) string {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.leave(name)
	return z.cluster.ZoneOf(name)
}

func (z *zones) everywhere() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.cluster.Everywhere()
}

func (z *zones) figures() []zone.Figure {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.cluster.Figures()
}

func (z *zones) wake() {
	select {
	case z.kick <- struct{}{}:
	default:
	}
}
