package policy

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// maxKubelet bounds a kubelet's report under the contract, of its bare cost: by
// latency and by the API server's CPU.
const maxKubelet = 1.1

// The installs that are compared, each on a control plane of its own.
const (
	nothing = "nothing"
	policyI = "policy"
	webhook = "webhook"
	both    = "both"
)

const (
	node   = "n1"
	blocks = 60
	block  = 40
)

// side is one install with the two writers.
type side struct {
	cp                *controlplane.ControlPlane
	kubelet, external kubernetes.Interface
	heartbeat         time.Time
	seen              map[string]*cost
}

// cost is what one kind of write has cost so far, in seconds: the median latency
// of each block, and the API server's CPU for all of them.
type cost struct {
	waits []float64
	cpu   float64
}

// BenchmarkAPIServer compares a kubelet's report and a detector's write of a
// Node of about 40 KB under each install, block by block in turn. The latency of
// each block is compared with that of the bare one of the same round, for a
// machine that is slow for a while slows both; the median of these ratios counts.
func BenchmarkAPIServer(b *testing.B) {
	order := []string{nothing, policyI, webhook, both}
	sides := map[string]*side{}
	for _, install := range order {
		sides[install] = raise(b, install)
	}
	for b.Loop() {
		for round := -1; round < blocks; round++ { // the first one warms up
			for i := range order {
				s := sides[order[(i+round+1)%len(order)]]
				s.block(b, "kubelet", round >= 0, s.report)
				s.block(b, "external", round >= 0, s.fails)
			}
		}
	}
	for _, kind := range []string{"kubelet", "external"} {
		bare := sides[nothing].seen[kind]
		b.Logf("%s: bare p50 %.0f µs, API server CPU %.0f µs", kind, 1e6*median(bare.waits), 1e6*bare.cpu/float64(block*len(bare.waits)))
		for _, install := range order[1:] {
			c := sides[install].seen[kind]
			name := kind + "-" + install
			latency, cpu := ratio(c.waits, bare.waits), c.cpu/bare.cpu
			b.Logf("%s: p50 %.3f, API server CPU %.3f of the bare cost", name, latency, cpu)
			b.ReportMetric(latency, name+"-p50-ratio")
			b.ReportMetric(cpu, name+"-cpu-ratio")
			if kind == "kubelet" && (latency > maxKubelet || cpu > maxKubelet) {
				b.Errorf("%s: p50 %.3f and API server CPU %.3f of the bare cost, must be at most %.1f", name, latency, cpu, maxKubelet)
			}
		}
	}
}

// raise starts a control plane with one install in force.
func raise(b *testing.B, install string) *side {
	b.Helper()
	cp := controlplane.ForTest(b, controlplane.Options{APIServerArgs: []string{"--audit-log-path=", "--audit-policy-file="}})
	admin, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		b.Fatal(err)
	}
	n := reviews.Node(node)
	n.UID, n.ResourceVersion, n.ManagedFields = "", "", nil
	if _, err := admin.CoreV1().Nodes().Create(b.Context(), n, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	kubelet, err := kubernetes.NewForConfig(cp.Kubelet(node))
	if err != nil {
		b.Fatal(err)
	}
	s := &side{cp: cp, kubelet: kubelet, external: admin, heartbeat: reviews.Heartbeat, seen: map[string]*cost{"kubelet": {}, "external": {}}}
	p := contract.Default(contract.Enforce)
	if install == policyI || install == both {
		enforce(b, admin, p)
	}
	if install == webhook || install == both {
		ask(b, cp, admin, p, install)
	}
	if install != nothing {
		s.awaitForce(b)
	}
	return s
}

func enforce(b *testing.B, admin kubernetes.Interface, p contract.Policy) {
	b.Helper()
	set, err := policy.Policies(p, policy.Options{})
	if err != nil {
		b.Fatal(err)
	}
	api := admin.AdmissionregistrationV1()
	for _, g := range set.Guards {
		if _, err := api.ValidatingAdmissionPolicies().Create(b.Context(), g.Policy, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		for _, binding := range g.Bindings {
			if _, err := api.ValidatingAdmissionPolicyBindings().Create(b.Context(), binding, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func ask(b *testing.B, cp *controlplane.ControlPlane, admin kubernetes.Interface, p contract.Policy, install string) {
	b.Helper()
	w, err := guard.Start(b.Context(), cp, guard.Options{Policy: "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\nprofile: enforce\n"})
	if err != nil {
		b.Fatal(err)
	}
	how := policy.WebhookAlone
	if install == both {
		how = policy.PolicyAndWebhook
	}
	hooks, err := policy.Webhooks(p, policy.WebhookOptions{Install: how, URL: w.URL, CABundle: w.CA})
	if err != nil {
		b.Fatal(err)
	}
	if err := guard.Configure(b.Context(), admin, hooks); err != nil {
		b.Fatal(err)
	}
}

// awaitForce returns once a bad write is refused.
func (s *side) awaitForce(b *testing.B) {
	b.Helper()
	for end := time.Now().Add(time.Minute); ; {
		err := s.patch(b.Context(), s.external, map[string]any{"status": "Unknown", "reason": "NodeStatusUnknown"})
		if apierrors.IsInvalid(err) {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("the contract never was in force: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// block sends one block of writes and adds up what they cost.
func (s *side) block(b *testing.B, kind string, counts bool, write func(context.Context) error) {
	b.Helper()
	before, err := s.cp.APIServer().Usage()
	if err != nil {
		b.Fatal(err)
	}
	waits := make([]float64, block)
	for i := range waits {
		start := time.Now()
		if err := write(b.Context()); err != nil {
			b.Fatal(err)
		}
		waits[i] = time.Since(start).Seconds()
	}
	after, err := s.cp.APIServer().Usage()
	if err != nil {
		b.Fatal(err)
	}
	if counts {
		s.seen[kind].waits = append(s.seen[kind].waits, median(waits))
		s.seen[kind].cpu += (after.CPU - before.CPU).Seconds()
	}
}

// report is a kubelet's heartbeat: the times of its four conditions, each time
// others, for a write that changes nothing is not stored.
func (s *side) report(ctx context.Context) error {
	s.heartbeat = s.heartbeat.Add(time.Second)
	now := metav1.NewTime(s.heartbeat)
	var conditions []any
	for _, t := range append(contract.Pressures(), "Ready") {
		conditions = append(conditions, map[string]any{"type": t, "lastHeartbeatTime": now})
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = s.kubelet.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	return err
}

// fails is a detector's correct report of a failure.
func (s *side) fails(ctx context.Context) error {
	return s.patch(ctx, s.external, map[string]any{"status": "Unknown", "reason": "OutOfBandProbeFailed", "message": "three probes failed"})
}

// patch writes to Ready as a dry run, so that the node stays as it is. Its stamp
// is past the kubelet's last word, which is as young as can be.
func (s *side) patch(ctx context.Context, as kubernetes.Interface, fields map[string]any) error {
	fields["type"], fields["lastTransitionTime"] = "Ready", metav1.NewTime(time.Now().Truncate(time.Second).Add(2*time.Second))
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{fields}}})
	if err != nil {
		return err
	}
	_, err = as.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
	return err
}

// ratio is the median of block by block.
func ratio(waits, bare []float64) float64 {
	ratios := make([]float64, len(waits))
	for i := range waits {
		ratios[i] = waits[i] / bare[i]
	}
	return median(ratios)
}

func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
