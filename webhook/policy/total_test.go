package policy

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/policy/writes"
)

// everything is a policy in which all rules deny, so that every message holds
// every sentence.
func everything() contract.Policy {
	p := contract.Default(contract.Enforce)
	p.Rules = map[contract.Rule]contract.Action{}
	for _, r := range contract.Rules() {
		p.Rules[r] = contract.Deny
	}
	p.SignalPersistence = 30e9
	for i := range 40 {
		d := contract.Detector{Identity: contract.ServiceAccount("liveness", fmt.Sprint("detector-", i))}
		p.Detectors = append(p.Detectors, d)
	}
	return p
}

// A refusal with an evaluation error is a fault, and under failurePolicy Fail it
// would also hit those who did nothing wrong.
func TestNoRequestEndsInAnEvaluationError(t *testing.T) {
	t.Parallel()
	kinds := map[string]contract.Policy{"by default": contract.Default(contract.Enforce), "with every rule on": everything()}
	if underRace {
		delete(kinds, "by default")
	}
	for kind, p := range kinds {
		e, calls := enforce(t, p), compileWebhooks(t, p)
		many := 3_000
		if underRace {
			many = 50
		} else if kind == "with every rule on" && os.Getenv("NODEWARDEN_SOAK") == "" {
			many = 500 // 3,000 take half a minute of CPU here
		}
		for name, r := range hostile(many) {
			r.User = writes.Account("liveness", "detector-7")
			t.Run(kind+"/"+name, func(t *testing.T) {
				got, err := e.judge(r)
				if err != nil {
					t.Fatal(err)
				}
				if want := expected(r, p); !sameVerdict(got, want) {
					t.Fatalf("the policies say %q, the contract %q", got.broken, want.broken)
				}
				for i, m := range got.messages {
					if !strings.HasPrefix(m, "[") || strings.ContainsFunc(m, unicode.IsControl) || len(m) > 5120 || m == fallback(got.broken[i]) {
						t.Errorf("%s falls back, or is no message: %.300q", got.broken[i], m)
					}
				}
				for _, call := range calls {
					if _, err := call(r.attributes()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// fallback is what a policy says whose messageExpression the API server rejects.
func fallback(broken string) string {
	rule, _, _ := strings.Cut(broken, "=")
	return "[" + rule + "] " + contract.Rule(rule).Refuses()
}

// compileWebhooks compiles the match conditions of every webhook entry.
func compileWebhooks(t *testing.T, p contract.Policy) []func(*admission.VersionedAttributes) (bool, error) {
	t.Helper()
	c, err := Webhooks(p, WebhookOptions{Install: WebhookAlone, URL: "https://localhost:9443/validate"})
	if err != nil {
		t.Fatal(err)
	}
	var calls []func(*admission.VersionedAttributes) (bool, error)
	for _, w := range c.Webhooks {
		calls = append(calls, compileConditions(t, w.MatchConditions, newestEnv, environment.StoredExpressions))
	}
	return calls
}

func hostile(n int) map[string]request {
	all := map[string]request{}
	ready := func(status, reason, message string, at metav1.Time) corev1.NodeCondition {
		return corev1.NodeCondition{Type: "Ready", Status: corev1.ConditionStatus(status), Reason: reason, Message: message, LastHeartbeatTime: at, LastTransitionTime: at}
	}
	one := func(c ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: writes.Node}, Status: corev1.NodeStatus{Conditions: c}}
	}
	add := func(name string, before, after *corev1.Node) { all[name] = request{Before: before, After: after} }
	kubelets := ready("True", "KubeletReady", "kubelet is posting ready status", metav1.NewTime(writes.Noon))

	for _, a := range writes.Strange {
		for _, b := range writes.Strange {
			if (a.Year()+b.Year())%3 == 0 || a.Equal(b) {
				add(fmt.Sprintf("instants %v and %v", a, b),
					one(ready("True", "KubeletReady", "", metav1.NewTime(a))), one(ready("Unknown", "Gone", "", metav1.NewTime(b))))
			}
		}
	}
	many := func(n int, typ func(int) string) []corev1.NodeCondition {
		var list []corev1.NodeCondition
		for i := range n {
			c := kubelets
			c.Type, c.Reason = corev1.NodeConditionType(typ(i)), fmt.Sprint("R", i)
			list = append(list, c)
		}
		return list
	}
	distinct := func(i int) string { return fmt.Sprint("example.com/condition-", i) }
	same := func(s string) func(int) string { return func(int) string { return s } }
	dead := ready("True", "NodeStatusUnknown", strings.Repeat("x\n", 50_000), metav1.Time{})
	add(fmt.Sprint(n, " conditions, all gone"), one(append(many(n, distinct), kubelets)...), one())
	add(fmt.Sprint(n, " conditions, all but Ready gone"), one(append(many(n, distinct), kubelets)...), one(dead))
	add(fmt.Sprint(n, " conditions, one gone"), one(append(many(n, distinct), kubelets)...), one(append(many(n-1, distinct), dead)...))
	if compared := int(math.Sqrt(contract.MaxCompared)) - 1; n > compared { // Ready is one more
		renamed := func(i int) string { return strings.Repeat("b", 300) + distinct(i) }
		long := func(i int) string { return strings.Repeat("a", 300) + distinct(i) }
		add("as many conditions as are compared, all renamed", one(append(many(compared, long), kubelets)...), one(append(many(compared, renamed), dead)...))
		add("as many conditions as are compared, one gone", one(append(many(compared, long), kubelets)...), one(append(many(compared-1, long), dead)...))
	}
	add(fmt.Sprint(n, " conditions appear"), one(kubelets), one(append(many(n, distinct), dead)...))
	add(fmt.Sprint(n, " Ready entries"), one(many(n, same("Ready"))...), one(many(n+1, same("Ready"))...))
	add(fmt.Sprint(n, " Ready entries, all gone"), one(many(n, same("Ready"))...), one())
	add(fmt.Sprint(n, " Ready entries created"), nil, one(many(n, same("Ready"))...))
	add(fmt.Sprint(n, " of one pressure"), one(append(many(n, same("DiskPressure")), kubelets)...), one(append(many(n-1, same("DiskPressure")), dead)...))
	add("100 KB and newlines in reason and message", one(ready("Unk\nnown", strings.Repeat("ü\n", 50_000), strings.Repeat("\n", 100_000), metav1.NewTime(writes.Noon))),
		one(ready(strings.Repeat("\n", 100_000), strings.Repeat("🙂", 25_000), strings.Repeat("é", 50_000), metav1.NewTime(writes.Noon))))
	add("a reason of 2.5 MB", one(kubelets), one(ready("Unknown", strings.Repeat("A", 2_500_000), "", metav1.NewTime(writes.Noon))))
	add("a status and a message of 1.2 MB", one(ready(strings.Repeat("A", 1_200_000), "X", "", metav1.NewTime(writes.Noon))),
		one(ready("Unknown", "X", strings.Repeat("B", 1_200_000), metav1.NewTime(writes.Noon))))
	add("every control character", one(ready("True", "a\x00b", "", metav1.NewTime(writes.Noon))), one(ready("\x7f", "\x1b[31m\u0085", "", metav1.Time{})))
	wide := strings.Repeat("🙂", 64)
	add("every value at its widest", one(ready(wide, wide, "", metav1.NewTime(writes.Noon)), corev1.NodeCondition{Type: corev1.NodeConditionType(wide)}),
		one(ready(wide+"a", wide+"b", "", metav1.Time{}), kubelets))
	add("nothing at all", one(), &corev1.Node{})
	add("a creation without status or name", nil, &corev1.Node{})
	for name, managers := range map[string]int{
		"as many managers as are looked through": contract.MaxManaged, "one manager too many": contract.MaxManaged + 1, "a crowd of managers": 12_000,
	} {
		managed := one(ready("Unknown", "Gone", "", metav1.NewTime(writes.Noon)))
		for range managers {
			t := metav1.NewTime(writes.Noon)
			managed.ManagedFields = append(managed.ManagedFields, metav1.ManagedFieldsEntry{Subresource: "status", Time: &t,
				FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`)})
		}
		old := managed.DeepCopy()
		old.Status.Conditions[0] = kubelets
		add(name, old, managed)
	}
	return all
}

func TestAUserWithoutNameAndGroupsIsNoFault(t *testing.T) {
	p := contract.Default(contract.Enforce)
	r := request{Before: &corev1.Node{}, After: &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready"}}}}}
	if _, err := enforce(t, p).judge(r); err != nil {
		t.Error(err)
	}
	for _, call := range compileWebhooks(t, p) {
		if _, err := call(r.attributes()); err != nil {
			t.Error(err)
		}
	}
}
