package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
	"github.com/nodewarden/nodewarden/test/witness"
)

// warned is a client whose warnings are kept.
func (c *cluster) warned(as *rest.Config) (*witness.Warnings, kubernetes.Interface) {
	c.Helper()
	w := &witness.Warnings{}
	as.WarningHandlerWithContext = w
	client, err := kubernetes.NewForConfig(as)
	c.must(err)
	return w, client
}

func named(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func condition(typ, status, reason string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeConditionType(typ), Status: corev1.ConditionStatus(status), Reason: reason, LastTransitionTime: metav1.Now()}
}

// The API server itself is the third party: what it stored before, what it
// would store after, and the warnings it gave in between. Every rule only warns
// here, so that every write shows its outcome.
func TestTheAPIServerWarnsOfExactlyTheRulesThatAreBroken(t *testing.T) {
	c := fresh(t)
	p := all()
	for r := range p.Rules {
		p.Rules[r] = contract.Warn
	}
	p.RecoveryHold, p.SignalPersistence = time.Hour, 2*time.Hour // no verdict turns while the test runs
	c.installPolicies(p)

	user := contract.User{Name: "system:serviceaccount:liveness:detector", Groups: []string{"system:masters", "system:serviceaccounts:liveness"}}
	seen, client := c.warned(c.cp.User(user.Name, user.Groups...))
	try := func(w writes.Write) error { return compare(c, client, seen, p, user, w) }

	g := writes.From(5)
	compared := 0
	for compared < 300 {
		w := sendable(g)
		if w.Before == nil {
			continue
		}
		err := try(w)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			continue // not a Node the API server stores
		}
		if err != nil && compared == 0 { // the policies are loaded a second after they are stored
			c.eventually("the policies in force", func() error { return try(w) })
		} else if err != nil {
			// Policies are loaded one by one; a lasting difference is one.
			c.eventually("the same verdict from the API server", func() error { return try(w) })
		}
		compared++
	}
}

// sendable is a write that JSON can carry.
func sendable(g writes.Generator) writes.Write {
	w := g.Write()
	for _, n := range []*corev1.Node{w.Before, w.After} {
		if n == nil {
			continue
		}
		n.ManagedFields = nil // the API server's own
		for i := range n.Status.Conditions {
			c := &n.Status.Conditions[i]
			for _, t := range []*metav1.Time{&c.LastHeartbeatTime, &c.LastTransitionTime} {
				if y := t.UTC().Year(); y < 0 || y > 9999 || t.Year() < 0 || t.Year() > 9999 {
					*t = metav1.NewTime(writes.Noon)
				}
			}
			c.Reason, c.Message = strings.ToValidUTF8(c.Reason, "?"), strings.ToValidUTF8(c.Message, "?")
		}
	}
	return w
}

var inBrackets = regexp.MustCompile(`denied request: \[(\w+)\]|: \[(\w+)\] `)

// compare creates the Node before the write, lets the API server rehearse the
// write, and holds its warnings against the contract.
func compare(c *cluster, client kubernetes.Interface, seen *witness.Warnings, p contract.Policy, user contract.User, w writes.Write) error {
	name := fmt.Sprint("agree-", time.Now().UnixNano())
	before := w.Before.DeepCopy()
	before.Name = name
	stored, err := c.admin.CoreV1().Nodes().Create(c.ctx(), before, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = c.admin.CoreV1().Nodes().Delete(c.ctx(), name, metav1.DeleteOptions{}) }()
	after := w.After.DeepCopy()
	after.Name, after.ManagedFields = name, stored.ManagedFields
	seen.Take()
	rehearsed, err := client.CoreV1().Nodes().UpdateStatus(c.ctx(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	var got, want []string
	for _, text := range seen.Take() {
		if m := inBrackets.FindStringSubmatch(text); m != nil {
			got = append(got, m[1]+m[2])
		}
	}
	for _, v := range contract.Check(contract.Between(stored, rehearsed, user), p) {
		want = append(want, string(v.Rule))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the API server warns of %q, the contract of %q\nbefore %+v\nafter %+v", got, want, stored.Status.Conditions, rehearsed.Status.Conditions)
	}
	return nil
}
