package policy

import (
	"errors"
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
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
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

// agreement holds what an API server says of writes against the contract.
type agreement struct {
	*cluster
	client kubernetes.Interface
	seen   *witness.Warnings // by client
	told   int               // warnings of broken rules so far
	policy contract.Policy
	user   contract.User
}

// The API server itself is the third party: what it stored before, what it
// would store after, and the warnings it gave in between. Every rule only warns
// here, so that every write shows its outcome.
func TestTheAPIServerWarnsOfExactlyTheRulesThatAreBroken(t *testing.T) {
	a := agreement{cluster: fresh(t), policy: all()}
	for r := range a.policy.Rules {
		a.policy.Rules[r] = contract.Warn
	}
	a.policy.RecoveryHold, a.policy.SignalPersistence = time.Hour, 2*time.Hour // no verdict turns while the test runs
	a.installPolicies(a.policy)

	a.user = contract.User{Name: "system:serviceaccount:liveness:detector", Groups: []string{"system:masters", "system:serviceaccounts:liveness"}}
	a.seen, a.client = a.warned(a.cp.User(a.user.Name, a.user.Groups...))
	var broken []contract.Rule
	try := func(w writes.Write) (err error) {
		broken, err = a.compare(w)
		return err
	}

	failedBefore, g := a.failed(), writes.From(5)
	compared, breaks := 0, map[contract.Rule]int{}
	for compared < 300 {
		w := sendable(g)
		if w.Before == nil {
			continue
		}
		err := try(w)
		if errors.Is(err, errNotStored) {
			continue
		}
		if err != nil && compared == 0 { // the policies are loaded a second after they are stored
			a.eventually("the policies in force", func() error { return try(w) })
		} else if err != nil {
			// Policies are loaded one by one; a lasting difference is one.
			a.eventually("the same verdict from the API server", func() error { return try(w) })
		}
		compared++
		for _, r := range broken {
			breaks[r]++
		}
	}
	t.Logf("of %d writes so many broke a rule: %v", compared, breaks)
	if len(breaks) < 15 {
		t.Errorf("only %d rules were broken", len(breaks))
	}
	if failed := a.failed() - failedBefore; int(failed) != a.told {
		t.Errorf("validations failed %g times, and %d warnings told of a broken rule: the rest are evaluation errors", failed, a.told)
	}
}

// failed is how often a validation has failed, by the API server's own count,
// which takes an evaluation error for a broken rule. The warning of such an error
// quotes an expression of several lines, and no header can carry it.
func (a *agreement) failed() float64 {
	a.Helper()
	page, err := a.cp.Metrics(a.ctx())
	a.must(err)
	const checks = "apiserver_validating_admission_policy_check_total"
	return guard.Sum(page, checks) - guard.Sum(page, checks, `error_type="no_error"`)
}

// errNotStored is of a write that begins with no Node that an API server stores.
var errNotStored = errors.New("not a Node")

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

// inBrackets is how a policy warns of a broken rule. Whatever else it says is a
// fault.
var inBrackets = regexp.MustCompile(`^Validation failed for ValidatingAdmissionPolicy '[^']+' with binding '[^']+': \[(\w+)\] `)

// warnings are the rules that policies have warned of since it was last asked.
func (a *agreement) warnings() ([]contract.Rule, error) {
	var rules []contract.Rule
	for _, text := range a.seen.Take() {
		if m := inBrackets.FindStringSubmatch(text); m != nil {
			rules = append(rules, contract.Rule(m[1]))
		} else if strings.Contains(text, "ValidatingAdmissionPolicy") {
			return nil, fmt.Errorf("a policy warns of no rule: %s", text)
		}
	}
	a.told += len(rules)
	return rules, nil
}

// compare creates the Node before the write, lets the API server rehearse the
// write, and holds its warnings against the contract, whose verdict it returns.
func (a *agreement) compare(w writes.Write) ([]contract.Rule, error) {
	name := fmt.Sprint("agree-", time.Now().UnixNano())
	before := w.Before.DeepCopy()
	before.Name = name
	stored, err := a.client.CoreV1().Nodes().Create(a.ctx(), before, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return nil, errNotStored
	} else if err != nil {
		return nil, err
	}
	defer func() { _ = a.admin.CoreV1().Nodes().Delete(a.ctx(), name, metav1.DeleteOptions{}) }()
	if _, err := a.warnings(); err != nil {
		return nil, err
	}
	after := w.After.DeepCopy()
	after.Name, after.ManagedFields = name, stored.ManagedFields
	rehearsed, err := a.client.CoreV1().Nodes().UpdateStatus(a.ctx(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	got, err := a.warnings()
	if err != nil {
		return nil, err
	}
	var want []contract.Rule
	for _, v := range contract.Check(contract.Between(stored, rehearsed, a.user), a.policy) {
		want = append(want, v.Rule)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("the API server warns of %q, the contract of %q\nbefore %+v\nafter %+v", got, want, stored.Status.Conditions, rehearsed.Status.Conditions)
	}
	return want, nil
}
