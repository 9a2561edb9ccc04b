package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// maxAdded bounds what ours adds to a write at the API server, of what the
// typed one adds.
const maxAdded = 0.7

// BenchmarkAPIServer compares how long a write to a big Node takes at the API
// server: with no webhook, ours and the typed one, each for a Node of its own.
func BenchmarkAPIServer(b *testing.B) {
	cp := controlplane.ForTest(b, controlplane.Options{APIServerArgs: []string{"--audit-log-path=", "--audit-policy-file="}})
	admin, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		b.Fatal(err)
	}
	s := newServers(b)
	order, waits := []string{"none", "ours", "typed"}, map[string][]float64{}
	for _, role := range order {
		register(b, admin, role)
		if role != "none" {
			configure(b, admin, s, role)
		}
	}
	detector := cp.Admin() // an external writer like any other
	detector.QPS = -1
	client, err := kubernetes.NewForConfig(detector)
	if err != nil {
		b.Fatal(err)
	}
	const rounds = 300
	for b.Loop() {
		for range rounds {
			for _, role := range order {
				start := time.Now()
				if err := fails(b.Context(), client, role); err != nil {
					b.Fatal(err)
				}
				waits[role] = append(waits[role], time.Since(start).Seconds())
			}
		}
	}
	none := median(waits["none"])
	b.ReportMetric(1e6*none, "none-p50-µs")
	for _, role := range order[1:] {
		b.ReportMetric(1e6*(median(waits[role])-none), role+"-added-p50-µs")
	}
	within(b, (median(waits["ours"])-none)/(median(waits["typed"])-none), maxAdded, "ours/typed-added")
}

// register creates a big Node of that name.
func register(b *testing.B, admin kubernetes.Interface, name string) {
	b.Helper()
	n := reviews.Node(name)
	n.UID, n.ResourceVersion, n.ManagedFields = "", "", nil
	if _, err := admin.CoreV1().Nodes().Create(b.Context(), n, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// configure starts a server and makes the API server ask it about the node of
// the same name, and returns when it does.
func configure(b *testing.B, admin kubernetes.Interface, s *servers, role string) {
	b.Helper()
	r := s.start(b, role)
	hooks, err := policy.Webhooks(contract.Default(contract.Enforce), policy.WebhookOptions{Install: policy.WebhookAlone, URL: r.url, CABundle: s.authority.PEM})
	if err != nil {
		b.Fatal(err)
	}
	hooks.Name = role
	hooks.Webhooks = hooks.Webhooks[:1]
	hook := &hooks.Webhooks[0]
	hook.Name = role + ".bench.nodewarden.dev"
	hook.MatchConditions = append(hook.MatchConditions, admissionv1.MatchCondition{Name: "its-node", Expression: `request.name == "` + role + `"`})
	if err := guard.Configure(b.Context(), admin, hooks); err != nil {
		b.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for !called(b, admin, role, hook.Name) {
		if time.Now().After(deadline) {
			b.Fatalf("the API server never asked %s", role)
		}
	}
}

// called writes to the node and says whether the API server has ever asked the
// webhook, by its own count.
func called(b *testing.B, admin kubernetes.Interface, node, hook string) bool {
	b.Helper()
	if err := fails(b.Context(), admin, node); err != nil {
		b.Fatal(err)
	}
	page, err := admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return guard.Sum(string(page), "apiserver_admission_webhook_request_total", fmt.Sprintf("name=%q", hook)) > 0
}

// fails records the node's failure as a dry run, so that it stays as it is.
func fails(ctx context.Context, client kubernetes.Interface, node string) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "Unknown", "reason": "OutOfBandProbeFailed", "message": "three probes failed",
		"lastTransitionTime": metav1.NewTime(time.Now().Truncate(time.Second)),
	}}}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
	return err
}
