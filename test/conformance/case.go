// Package conformance holds the contract as cases: sentences, each with the
// Node before and after one write, and the rules that the write breaks. They
// judge any enforcer of the contract: a function, a webhook, a policy engine.
//
// It never decides anything itself.
package conformance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
)

// Case is one sentence of the contract and the write that tests it.
type Case struct {
	Name string
	// Rule is the one that the case is about.
	Rule contract.Rule
	// Before is the Node as its kubelet last left it, at Epoch by the API
	// server's clock; After is what the writer makes of it.
	Before, After *corev1.Node
	// Silence is how long after the kubelet's last word the write is sent.
	Silence time.Duration
	// Broken is whether the write breaks Rule. It never breaks another one.
	Broken bool
}

// Epoch is the instant of the kubelet's last word in every case.
var Epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// At is the case with the kubelet's last word at another instant: all times of
// both Nodes move along.
func (c Case) At(spoke time.Time) Case {
	c.Before, c.After = move(c.Before, spoke.Sub(Epoch)), move(c.After, spoke.Sub(Epoch))
	return c
}

// On is the case played on a node of another name.
func (c Case) On(name string) Case {
	c.Before, c.After = c.Before.DeepCopy(), c.After.DeepCopy()
	c.Before.Name, c.After.Name = name, name
	return c
}

func move(n *corev1.Node, by time.Duration) *corev1.Node {
	n = n.DeepCopy()
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		for _, t := range []*metav1.Time{&c.LastHeartbeatTime, &c.LastTransitionTime} {
			if !t.IsZero() && t.Year() >= 2000 && t.Year() <= 2200 {
				t.Time = t.Add(by)
			}
		}
	}
	return n
}

// Target is whatever decides on a write: a function, an API server behind a
// webhook, a policy engine that somebody else wrote.
type Target interface {
	// Write attempts to turn before into after, both of the same name, and
	// returns the rules that the target said were broken, whatever it did
	// about it. An error means that the target could not be asked.
	Write(ctx context.Context, before, after *corev1.Node) ([]contract.Rule, error)
}
