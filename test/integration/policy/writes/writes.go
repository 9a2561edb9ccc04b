// Package writes makes random writes to Nodes, and random policies to judge
// them by, for tests that hold two enforcers against each other. The same seed
// makes the same writes.
//
// Most writes begin as a detector's correct one and are then spoilt a little,
// so that every rule is met on both of its sides.
package writes

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewarden/nodewarden/contract"
)

// Generator makes writes and policies.
type Generator struct{ *rand.Rand }

// From returns the generator of a seed.
func From(seed uint64) Generator { return Generator{rand.New(rand.NewPCG(seed, 20))} }

// Write is one write by User: Before becomes After. Without Before, After is created.
type Write struct {
	Before, After *corev1.Node
	User          contract.User
}

// Pick is any of the values.
func Pick[T any](g Generator, from ...T) T { return from[g.IntN(len(from))] }

func (g Generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// Noon is the instant around which everything happens.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Node is the name of every Node.
const Node = "n1"

// Strange are instants at the edges of what can be reckoned with.
var Strange = []time.Time{
	{},
	time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(0, 12, 31, 23, 59, 59, 0, time.FixedZone("", 14*3600)),
	time.Date(-1, 6, 1, 0, 0, 0, 0, time.UTC),
	time.Date(1, 1, 1, 0, 0, 0, 5e8, time.UTC),
	time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
	time.Date(1969, 7, 20, 20, 17, 0, 0, time.UTC),
	time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC),
	time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2000, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)),
	time.Date(2200, 12, 31, 23, 59, 59, 0, time.UTC),
	time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2200, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)),
	time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -5*3600)),
	time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC),
}

// instant is near noon, mostly.
func (g Generator) instant() metav1.Time {
	if g.oneIn(8) {
		return metav1.NewTime(Pick(g, Strange...))
	}
	t := Noon.Add(time.Duration(g.IntN(240)-120) * time.Second)
	switch g.IntN(6) {
	case 0:
		t = t.Add(time.Duration(g.IntN(1e9))) // fractions of a second
	case 1:
		t = t.In(time.FixedZone("", g.IntN(28*3600)-14*3600))
	}
	return metav1.NewTime(t)
}

func (g Generator) status() corev1.ConditionStatus {
	return Pick[corev1.ConditionStatus](g, "True", "True", "False", "Unknown", "Unknown", "", "unknown", "Maybe")
}

func (g Generator) text() string {
	return Pick(g, "", "KubeletReady", "KubeletNotReady", "NodeStatusUnknown", "NodeStatusNeverUpdated",
		"OutOfBandProbeFailed", "ProbeFailed2", "with space", "lower", "line\nbreak", "q\"uote\\", "Ünï", "Eé", "9Lives", "X",
		strings.Repeat("A", 1024), strings.Repeat("A", 1025), strings.Repeat("é", 700), "tab\tand\x00nul", "\u2028")
}

func (g Generator) conditionType() corev1.NodeConditionType {
	return Pick[corev1.NodeConditionType](g, "Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "", "ready", "KernelDeadlock")
}

func (g Generator) condition(t corev1.NodeConditionType) corev1.NodeCondition {
	return corev1.NodeCondition{Type: t, Status: g.status(), Reason: g.text(), Message: g.text(),
		LastHeartbeatTime: g.instant(), LastTransitionTime: g.instant()}
}

// stored is a Node as a kubelet may have left it.
func (g Generator) stored() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: Node, Labels: g.labels()}}
	ready := g.condition("Ready")
	if g.oneIn(2) {
		ready = corev1.NodeCondition{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status",
			LastHeartbeatTime: g.instant(), LastTransitionTime: g.instant()}
	}
	for _, t := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		if !g.oneIn(4) {
			n.Status.Conditions = append(n.Status.Conditions, g.condition(t))
		}
	}
	if !g.oneIn(12) {
		n.Status.Conditions = append(n.Status.Conditions, ready)
	}
	for g.oneIn(4) {
		n.Status.Conditions = append(n.Status.Conditions, g.condition(g.conditionType()))
	}
	g.Shuffle(len(n.Status.Conditions), func(i, j int) {
		n.Status.Conditions[i], n.Status.Conditions[j] = n.Status.Conditions[j], n.Status.Conditions[i]
	})
	for g.oneIn(3) {
		n.Annotations = map[string]string{Pick(g, "a", "b"): Pick(g, "", "x")}
	}
	n.ManagedFields = g.managed()
	return n
}

func (g Generator) labels() map[string]string {
	if g.oneIn(5) {
		return Pick(g, nil, map[string]string{})
	}
	m := map[string]string{}
	for g.oneIn(2) {
		m[Pick(g, "pool", "zone", "size", "example.com/pool")] = Pick(g, "", "a", "b", "7", "007", "12", "999999999999999999999", "x-1")
	}
	return m
}

// managed are managedFields as the API server keeps them, or as nobody should.
func (g Generator) managed() []metav1.ManagedFieldsEntry {
	var all []metav1.ManagedFieldsEntry
	if g.oneIn(4) {
		return Pick(g, nil, all)
	}
	for range g.IntN(4) {
		m := metav1.ManagedFieldsEntry{
			Manager: Pick(g, "kubelet", "detector", "npd"), Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			Subresource: Pick(g, "status", "status", "status", "status", ""),
		}
		if !g.oneIn(10) {
			t := g.instant()
			m.Time = &t
		}
		if !g.oneIn(10) {
			m.FieldsV1 = metav1.NewFieldsV1(g.owned())
		}
		all = append(all, m)
	}
	return all
}

func (g Generator) owned() string {
	return Pick(g,
		`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},"f:lastTransitionTime":{},"f:status":{}}}}}`,
		`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`,
		`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastTransitionTime":{},"f:reason":{},"f:status":{}}}}}`,
		`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:type":{}}}}}`,
		`{"f:status":{"f:conditions":{"k:{\"type\":\"KernelDeadlock\"}":{"f:lastHeartbeatTime":{}}}}}`,
		`{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Ready\"}":{}}}}`,
		`{"f:metadata":{"f:labels":{}}}`,
		`{"f:status":null}`, `{"f:status":{"f:conditions":null}}`, `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":null}}}`, `{}`,
		`{"f:status":7}`, `{"f:status":{"f:conditions":"x"}}`, `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":true}}}`,
	)
}

// first is where the first Ready entry of n stands, or -1.
func first(n *corev1.Node) int {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == "Ready" {
			return i
		}
	}
	return -1
}

// Write is one write.
func (g Generator) Write() Write {
	w := Write{User: g.user()}
	before := g.stored()
	repaired := g.oneIn(25)
	if repaired {
		before.Status.Conditions = append(before.Status.Conditions, g.condition("Ready"), g.condition("Ready"))
	}
	if g.oneIn(200) { // too many to look into, or almost
		for range contract.MaxReady - 2 + g.IntN(4) {
			before.Status.Conditions = append(before.Status.Conditions, g.condition("Ready"))
		}
	}
	w.After = before.DeepCopy()
	if repaired && !g.oneIn(3) {
		repair(w.After)
	} else {
		g.record(w.After)
	}
	for g.oneIn(2) {
		g.spoil(w.After)
	}
	w.After.ManagedFields = g.managed()
	if !g.oneIn(8) {
		w.Before = before
	}
	return w
}

// repair leaves but the first of several Ready entries.
func repair(n *corev1.Node) {
	at := first(n)
	var kept []corev1.NodeCondition
	for i, c := range n.Status.Conditions {
		if c.Type != "Ready" || i == at {
			kept = append(kept, c)
		}
	}
	n.Status.Conditions = kept
}

// record is the correct write of a failure.
func (g Generator) record(n *corev1.Node) {
	i := first(n)
	if i < 0 || g.oneIn(20) {
		return
	}
	c := &n.Status.Conditions[i]
	c.Status, c.Reason, c.Message = "Unknown", "OutOfBandProbeFailed", "no answer"
	c.LastTransitionTime = metav1.NewTime(Noon.Add(time.Duration(g.IntN(300)) * time.Second))
}

func (g Generator) spoil(n *corev1.Node) {
	list := n.Status.Conditions
	at := first(n)
	if at >= 0 && g.oneIn(3) {
		at = g.IntN(len(list))
	}
	if at < 0 {
		n.Status.Conditions = append(list, g.condition(g.conditionType()))
		return
	}
	c := &list[at]
	switch g.IntN(12) {
	case 0:
		c.Status = g.status()
	case 1, 2:
		c.Reason = g.text()
	case 3:
		c.Message = g.text()
	case 4:
		c.LastHeartbeatTime = g.instant()
	case 5, 6:
		c.LastTransitionTime = g.instant()
	case 7:
		n.Status.Conditions = append(list[:at:at], list[at+1:]...)
	case 8:
		n.Status.Conditions = append(list, g.condition(g.conditionType()))
	case 9:
		n.Status.Conditions = append(list, *c)
	case 10:
		g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case 11:
		g.touch(n)
	}
}

func (g Generator) touch(n *corev1.Node) {
	switch g.IntN(4) {
	case 0:
		n.Labels = g.labels()
	case 1:
		n.Annotations = Pick(g, nil, map[string]string{}, map[string]string{"a": "x"})
	case 2:
		n.OwnerReferences = append(n.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Machine", Name: "m", UID: types.UID(Pick(g, "1", "2"))})
	case 3:
		n.Finalizers = append(n.Finalizers, "example.com/f")
	}
}

func (g Generator) user() contract.User {
	return Pick(g,
		Account("liveness", "detector"), Account("liveness", "detector"), Account("liveness", "detector"), Account("liveness", "other"),
		contract.User{Name: "admin", Groups: []string{"system:masters"}}, contract.User{Name: "admin"}, contract.User{},
		contract.User{Name: "system:node:" + Node, Groups: []string{"system:nodes", "system:authenticated"}},
		contract.User{Name: "system:node:" + Node}, contract.User{Name: "system:node:", Groups: []string{"system:nodes"}},
		contract.User{Name: "system:node:n2", Groups: []string{"system:nodes"}},
		Account("kube-system", "node-controller"), contract.User{Name: "system:serviceaccount:kube-system:node-controller"},
		contract.User{Name: "system:kube-controller-manager"}, Account("nodewarden-system", "nodewarden-controller"),
		Account("kwok", "kwok"), contract.User{Name: "probe \"quoted\"\n"},
	)
}

// Account is the user that a service account is.
func Account(namespace, name string) contract.User {
	return contract.User{Name: "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
}

func (g Generator) duration() time.Duration {
	return Pick(g, 0, time.Second, 1500*time.Millisecond, 10*time.Second, 10*time.Second, time.Minute, 90*time.Second, time.Hour)
}

// Policy is some policy; every fourth an untouched profile.
func (g Generator) Policy() contract.Policy {
	p := contract.Default(Pick(g, contract.Profiles()...))
	if g.oneIn(4) {
		return p
	}
	p.RecoveryHold, p.SignalPersistence, p.MaxClockSkew = g.duration(), g.duration(), g.duration()
	p.Rules = map[contract.Rule]contract.Action{}
	for _, r := range contract.Rules() {
		if g.oneIn(3) {
			p.Rules[r] = Pick(g, contract.Actions()...)
		}
	}
	for g.oneIn(2) {
		p.StandIns = append(p.StandIns, Pick(g, contract.ServiceAccount("kwok", "kwok"), contract.Identity{User: "probe \"quoted\"\n"}, contract.Identity{Group: "system:masters"}))
	}
	if g.oneIn(4) {
		p.Lifecycle = nil
	}
	if g.oneIn(4) {
		p.Controller = contract.Identity{}
	}
	if g.oneIn(2) {
		p.Rules[contract.UnauthorizedDetector] = Pick(g, contract.Deny, contract.Deny, contract.Warn, contract.Audit)
		for range 1 + g.IntN(3) {
			p.Detectors = append(p.Detectors, g.detector())
		}
	}
	return p
}

func (g Generator) detector() contract.Detector {
	d := contract.Detector{Identity: Pick(g, contract.ServiceAccount("liveness", "detector"), contract.ServiceAccount("liveness", "other"), contract.Identity{User: "admin"}, contract.Identity{})}
	if g.oneIn(3) {
		return d
	}
	text := Pick(g, "", "pool", "!pool", "pool=a", "pool!=a", "pool in (a,b)", "pool notin (a,b)", "size>7", "size<10", "pool=a,zone", "example.com/pool=x-1,size notin (7)", "nothing")
	if text == "nothing" {
		d.Nodes = labels.Nothing()
		return d
	}
	selector, err := labels.Parse(text)
	if err != nil {
		panic(fmt.Sprintf("selector %q: %v", text, err))
	}
	d.Nodes = selector
	return d
}
