package guard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/conformance"
	"github.com/nodewarden/nodewarden/test/controlplane"
	run "github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/nodes"
)

// The tests below replay failures that others reported in public; each names
// its reports.

// write is a request as somebody would type it. NOW stands for the second after
// the kubelet's last word, NOW+n and NOW-n for others, HEARTBEAT for the stored
// heartbeat, OLD for the stored transition.
type write struct {
	kind   types.PatchType
	body   string
	dryRun bool
}

func strategic(fields string) write {
	return write{kind: types.StrategicMergePatchType, body: `{"status":{"conditions":[{"type":"Ready",` + fields + `}]}}`}
}

// failing is a correct report up to its time stamps.
const failing = `"status":"Unknown","reason":"OutOfBandProbeFailed","message":"no answer",`

func (w write) fill(n *corev1.Node) []byte {
	ready := nodes.Ready(n)
	spoke, _ := contract.ReadyTimes(n.ManagedFields)
	at := func(seconds int) string {
		return `"` + spoke.Add(time.Duration(1+seconds)*time.Second).UTC().Format(time.RFC3339) + `"`
	}
	pairs := []string{
		"HEARTBEAT+02:00", `"` + ready.LastHeartbeatTime.In(time.FixedZone("", 7200)).Format(time.RFC3339) + `"`,
		"HEARTBEAT", `"` + ready.LastHeartbeatTime.UTC().Format(time.RFC3339) + `"`,
		"OLD", `"` + ready.LastTransitionTime.UTC().Format(time.RFC3339) + `"`,
		"NOW+30", at(30), "NOW-30", at(-30), "NOW", at(0),
	}
	return []byte(strings.NewReplacer(pairs...).Replace(w.body))
}

// sends patches a node's status with w and returns what refused it.
func (c *cluster) sends(who kubernetes.Interface, n *corev1.Node, w write) error {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	o := metav1.PatchOptions{}
	if w.dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	_, err := who.CoreV1().Nodes().Patch(ctx, n.Name, w.kind, w.fill(n), o, "status")
	return err
}

// expect compares an answer with the rules that should have refused.
func (c *cluster) expect(err error, want ...contract.Rule) {
	c.Helper()
	switch {
	case len(want) == 0 && err != nil:
		c.Errorf("want it admitted, got %v", err)
	case len(want) > 0 && !apierrors.IsInvalid(err):
		c.Errorf("want it refused for %v, got %v", want, err)
	case len(want) > 0 && !slices.Equal(causes(err), want):
		c.Errorf("refused for %v, want %v: %v", causes(err), want, err)
	}
}

func (c *cluster) detector() kubernetes.Interface {
	c.Helper()
	return client(c.T, c.cp.ServiceAccount("liveness", "detector"))
}

// opendatahub-operator#3606, virtual-kubelet#807 and #838 (B19): a merge patch,
// or a PUT from a partial copy, replaces the whole list.
func TestALostListIsRefusedAndNamed(t *testing.T) {
	c := guarded(t, enforce)
	n := c.reporting()
	err := c.sends(c.detector(), n, write{kind: types.MergePatchType, body: `{"status":{"conditions":[{"type":"Ready",` + failing + `"lastTransitionTime":NOW}]}}`})
	c.expect(err, contract.ConditionDropped, contract.HeartbeatModified)
	for _, want := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "strategic merge"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not name %q: %v", want, err)
		}
	}
	partial := n.DeepCopy()
	partial.Status.Conditions = []corev1.NodeCondition{*nodes.Ready(n)}
	nodes.Ready(partial).Status, nodes.Ready(partial).Reason = corev1.ConditionUnknown, "OutOfBandProbeFailed"
	nodes.Ready(partial).LastTransitionTime = metav1.NewTime(time.Now())
	_, err = c.detector().CoreV1().Nodes().UpdateStatus(t.Context(), partial, metav1.UpdateOptions{})
	if !slices.Contains(causes(err), contract.ConditionDropped) {
		t.Errorf("a PUT from a partial copy: %v", err)
	}
}

// openyurt#2465, harvester#5245, library-go#201 (B21): transitions without
// their time. k3s#9240, node-problem-detector#306 (B23): heartbeats touched.
// kube-fencing#3, cloud-pipeline#4586, draino#48 (B32): reasons others rely on.
func TestSingleFieldsOfAReport(t *testing.T) {
	c := guarded(t, enforce)
	detector, given := c.as(c.cp.ServiceAccount("liveness", "detector"))
	reason := func(r string) write {
		return strategic(fmt.Sprintf(`"status":"Unknown","reason":%q,"message":"no answer","lastTransitionTime":NOW`, r))
	}
	for name, k := range map[string]struct {
		write  write
		broken []contract.Rule
		warned []contract.Rule
	}{
		"B21a no transition time":                 {write: strategic(failing[:len(failing)-1]), broken: []contract.Rule{contract.TransitionTimeUnchanged}},
		"B21b a null transition time":             {write: strategic(failing + `"lastTransitionTime":null`), broken: []contract.Rule{contract.TransitionTimeMissing}},
		"B21c the previous transition time":       {write: strategic(failing + `"lastTransitionTime":OLD`), broken: []contract.Rule{contract.TransitionTimeUnchanged}},
		"B21d an older transition time":           {write: strategic(failing + `"lastTransitionTime":"2026-01-01T00:00:00Z"`), broken: []contract.Rule{contract.NewerReady}},
		"B23a a heartbeat of now":                 {write: strategic(failing + `"lastTransitionTime":NOW,"lastHeartbeatTime":NOW+30`), broken: []contract.Rule{contract.HeartbeatModified}},
		"B23b a null heartbeat":                   {write: strategic(failing + `"lastTransitionTime":NOW,"lastHeartbeatTime":null`), broken: []contract.Rule{contract.HeartbeatModified}},
		"B23c no heartbeat":                       {write: strategic(failing + `"lastTransitionTime":NOW`)},
		"B23d the stored heartbeat":               {write: strategic(failing + `"lastTransitionTime":NOW,"lastHeartbeatTime":HEARTBEAT`)},
		"B23e the stored heartbeat, two hours up": {write: strategic(failing + `"lastTransitionTime":NOW,"lastHeartbeatTime":HEARTBEAT+02:00`)},
		"B32 an empty reason":                     {write: reason(""), broken: []contract.Rule{contract.ReasonMissing}},
		"B32 the controller's reason":             {write: reason("NodeStatusUnknown"), broken: []contract.Rule{contract.ReservedReason}},
		"B32 the controller's other reason":       {write: reason("NodeStatusNeverUpdated"), warned: []contract.Rule{contract.ReasonUnclear}},
		"B32 a reason of two words":               {write: reason("has space"), warned: []contract.Rule{contract.ReasonUnclear}},
		"B32 a reason of the detector's own":      {write: reason("OutOfBandProbeFailed")},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{T: t, cp: c.cp, admin: c.admin, hook: c.hook}
			n := c.reporting()
			given.Take()
			err := c.sends(detector, n, k.write)
			c.expect(err, k.broken...)
			warned := slices.DeleteFunc(told(given.Take()...), func(r contract.Rule) bool { return r == contract.ClockSkew })
			if !slices.Equal(warned, k.warned) {
				t.Errorf("warned of %v, want %v", warned, k.warned)
			}
		})
	}
}

// karpenter#2833, kubeedge#3234, node-problem-detector#84 (B22): a timer that is
// stamped again never expires; saying it in other words is fine.
func TestARecordedFailureKeepsItsTime(t *testing.T) {
	c := guarded(t, enforce)
	n, detector := c.reporting(), c.detector()
	c.expect(c.sends(detector, n, strategic(failing+`"lastTransitionTime":NOW`)))
	c.expect(c.sends(detector, n, strategic(failing+`"lastTransitionTime":NOW+30`)), contract.TransitionTimeMoved)
	c.expect(c.sends(detector, n, strategic(failing+`"lastTransitionTime":NOW`)))
	c.expect(c.sends(detector, n, strategic(`"message":"still no answer"`)))
}

// A conditions list that somebody keeps of their own, as node-problem-detector
// does, is none of our business (B23), and the webhook is not even asked.
func TestConditionsOfOthersAreNotJudged(t *testing.T) {
	c := guarded(t, enforce)
	n := c.reporting()
	before, err := c.hook.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.expect(c.sends(c.detector(), n, write{kind: types.StrategicMergePatchType, body: `{"status":{"conditions":[{"type":"KernelDeadlock","status":"True","lastHeartbeatTime":NOW}]}}`}))
	c.expect(c.sends(c.detector(), n, write{kind: types.StrategicMergePatchType, body: `{"metadata":{"labels":{"a":"b"}}}`}))
	after, err := c.hook.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const reviews = "nodewarden_webhook_reviews_total"
	if run.Sum(after, reviews) != run.Sum(before, reviews) {
		t.Error("the webhook was asked")
	}
}

// rbg#460, kubernetes#12041, security-profiles-operator#1112 (B27): a verdict
// that depends on what one replica remembers differs between replicas.
func TestReplicasAgreeWithoutMemory(t *testing.T) {
	c := guarded(t, enforce)
	other, err := run.Start(t.Context(), c.cp, run.Options{Policy: enforce})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Kill)
	first, detector := c.hook, c.detector()
	use := func(w *run.Webhook) {
		c.hook = w
		c.configure(enforce, w.URL, w.CA)
	}
	n := c.reporting()
	c.expect(c.sends(detector, n, strategic(failing+`"lastTransitionTime":NOW`))) // recorded through the first

	use(other)
	back := c.recovers(n)
	c.expect(c.sends(detector, n, strategic(failing+`"lastTransitionTime":NOW`)), contract.NewerReady) // the old intent
	c.expect(c.sends(detector, back, strategic(failing+`"lastTransitionTime":NOW`)), contract.RecoveryHold)

	first.Kill() // a restarted replica knows as much
	restarted, err := run.Start(t.Context(), c.cp, run.Options{Policy: enforce})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(restarted.Kill)
	use(restarted)
	c.expect(c.sends(detector, n, strategic(failing+`"lastTransitionTime":NOW`)), contract.NewerReady)
	c.expect(c.sends(detector, back, strategic(failing+`"lastTransitionTime":NOW`)), contract.RecoveryHold)
}

// recovers lets the kubelet of n report Ready again, in a later second than the
// failure was dated, and returns what is stored then.
func (c *cluster) recovers(n *corev1.Node) *corev1.Node {
	c.Helper()
	spoke, _ := contract.ReadyTimes(n.ManagedFields)
	var now time.Time
	c.eventually("the second after the failure", func(context.Context) error {
		if now = time.Now().Truncate(time.Second); !now.After(spoke.Add(time.Second)) {
			return fmt.Errorf("it is %s", now.Format(time.TimeOnly))
		}
		return nil
	})
	recovered := conformance.Cases()[1].On(n.Name).At(now).Before
	nodes.Ready(recovered).LastTransitionTime = nodes.Ready(recovered).LastHeartbeatTime
	back, err := report(c.Context(), client(c.T, c.cp.Kubelet(n.Name)), recovered)
	if err != nil {
		c.Fatal(err)
	}
	c.awaitCache(back)
	return back
}

// kwok, virtual-kubelet#788, liqo#3292, rke#2678, node-readiness-controller#369,
// talos-cloud-controller-manager#360 (B28): who is the kubelet?
func TestWhoIsTheKubelet(t *testing.T) {
	const standIns = "standIns: [{serviceAccount: {namespace: kwok, name: kwok-controller}}]\n"
	plain := guarded(t, enforce)
	isReady := strategic(`"status":"True","reason":"KubeletReady","message":"kubelet is posting ready status","lastHeartbeatTime":NOW,"lastTransitionTime":NOW`)
	lifecycle := strategic(`"status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.","lastTransitionTime":NOW`)
	for _, u := range []string{"kwok-controller", "system:node", "stranger"} {
		plain.grant("b28-"+strings.ReplaceAll(u, ":", "-"), u)
	}
	plain.grant("b28-kwok", "system:serviceaccount:kwok:kwok-controller")
	plain.grant("b28-nlc", "system:serviceaccount:kube-system:node-controller")
	plain.grant("b28-kcm", "system:kube-controller-manager")

	down := func(c *cluster) *corev1.Node {
		n := c.reporting()
		c.expect(c.sends(c.detector(), n, strategic(failing+`"lastTransitionTime":NOW`)))
		return n
	}
	kwok := func(c *cluster) kubernetes.Interface {
		return client(c.T, c.cp.ServiceAccount("kwok", "kwok-controller"))
	}

	err := plain.sends(kwok(plain), down(plain), isReady)
	if !slices.Contains(causes(err), contract.StatusNotUnknown) || !strings.Contains(fmt.Sprint(err), "standIns") {
		t.Errorf("a stand-in that is not listed must be told where to be listed: %v", err)
	}
	for who, cfg := range map[string]func(node string) *rest.Config{
		"a shared kubelet identity":  func(string) *rest.Config { return plain.cp.User("system:node", "system:nodes") },
		"an admin":                   func(string) *rest.Config { return plain.cp.Admin() },
		"the name without the group": func(node string) *rest.Config { return plain.cp.User("system:node:" + node) },
	} {
		n := down(plain)
		plain.grant("b28-"+n.Name, "system:node:"+n.Name)
		err := plain.sends(client(t, cfg(n.Name)), n, isReady)
		if !slices.Contains(causes(err), contract.StatusNotUnknown) {
			t.Errorf("%s is not refused by the contract: %v", who, err)
		}
	}
	for _, cfg := range []*rest.Config{plain.cp.ServiceAccount("kube-system", "node-controller"), plain.cp.User("system:kube-controller-manager")} {
		plain.expect(plain.sends(client(t, cfg), plain.reporting(), lifecycle))
	}
	// Impersonation cannot be told apart: both headers, as the docs say.
	n := down(plain)
	cfg := rest.CopyConfig(plain.cp.Admin())
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.Name, Groups: []string{"system:nodes", "system:authenticated"}}
	plain.expect(plain.sends(client(t, cfg), n, isReady))

	page, err := plain.hook.Metrics(t.Context())
	if err != nil || run.Sum(page, "nodewarden_webhook_skew_writes_total") != 2 {
		t.Errorf("two lifecycle writes of the reserved reason show as %v skew writes, %v", run.Sum(page, "nodewarden_webhook_skew_writes_total"), err)
	}

	plain.hook.Kill()
	listed := guarded(t, enforce+standIns)
	listed.expect(listed.sends(kwok(listed), down(listed), isReady))
}

// NodeRestriction would stop such a write before the contract is asked, but not
// every cluster has it.
func TestAnotherNodesKubeletIsNotTheKubelet(t *testing.T) {
	c := guardedOn(t, controlplane.ForTest(t, controlplane.Options{Binary: withoutNodeRestriction(t)}), enforce)
	c.grant("elsewhere", "system:node:elsewhere")
	n := c.reporting()
	isDown := strategic(`"status":"False","reason":"KubeletNotReady","message":"container runtime is down","lastTransitionTime":NOW`)
	err := c.sends(client(t, c.cp.Kubelet("elsewhere")), n, isDown)
	c.expect(err, contract.StatusNotUnknown, contract.ReasonInherited)
	c.expect(c.sends(client(t, c.cp.Kubelet(n.Name)), n, isDown))
}

// withoutNodeRestriction is the control plane's binary less a flag that no other
// flag takes back.
func withoutNodeRestriction(t *testing.T) string {
	t.Helper()
	if controlplane.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	binary, err := controlplane.Binary(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "binary")
	text := fmt.Sprintf("#!/bin/sh\nfor a do\n  shift\n  [ \"$a\" = --enable-admission-plugins=NodeRestriction ] || set -- \"$@\" \"$a\"\ndone\nexec %q \"$@\"\n", binary)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return script
}

// elastic-phenix-operator#5, connaisseur#170, cloud-on-k8s#1233,
// autoscaler#2278 (B40): a dry run gets the same verdict and leaves no trace.
func TestADryRunIsJudgedAndNotRemembered(t *testing.T) {
	c := guarded(t, enforce)
	n, detector := c.reporting(), c.detector()
	legal := strategic(failing + `"lastTransitionTime":NOW`)
	dry := legal
	dry.dryRun = true
	const reviews = "nodewarden_webhook_reviews_total"
	count := func(dryRun string) float64 {
		page, err := c.hook.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return run.Sum(page, reviews, `dry_run="`+dryRun+`"`)
	}
	dryBefore, before := count("true"), count("false")
	c.expect(c.sends(detector, n, dry))
	c.expect(c.sends(detector, n, legal))
	bad := strategic(`"message":"x","lastHeartbeatTime":NOW+30`)
	bad.dryRun = true
	c.expect(c.sends(detector, n, bad), contract.HeartbeatModified)
	if d, r := count("true")-dryBefore, count("false")-before; d != 2 || r != 1 {
		t.Errorf("%g dry runs and %g writes were counted, want 2 and 1", d, r)
	}
}
