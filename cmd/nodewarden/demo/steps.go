package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

type step struct {
	title string
	play  func(context.Context) error
}

func (s *story) steps() []step {
	return []step{
		{"Kubelets report, and the webhook is never asked", s.kubeletsReport},
		{"A detector gives the reason that belongs to the node lifecycle controller", s.mistake(map[string]any{"reason": "NodeStatusUnknown"}, contract.ReservedReason)},
		{"A detector leaves the reason out, and with it keeps the kubelet's", s.mistake(map[string]any{"reason": left, "message": left}, contract.ReasonInherited)},
		{"A detector sets the kubelet's heartbeat", s.mistake(map[string]any{"lastHeartbeatTime": "2026-01-01T00:00:00Z"}, contract.HeartbeatModified)},
		{"A detector forgets when it happened", s.mistake(map[string]any{"lastTransitionTime": left}, contract.TransitionTimeUnchanged)},
		{"A merge patch would wipe the list of conditions", s.mergePatch},
		{"A JSON patch would add a second Ready entry", s.secondEntry},
		{"n3 loses its network: a correct write is admitted, and the controller acts on it", s.failure},
		{"The controller's leader dies: the other replica takes over and repeats nothing", s.failedOver},
		{"n3 recovers: what the detector had decided before is stale, and the recovery is left alone", s.recovery},
		{"The webhook dies: kubelets still report", s.webhookDies},
		{"The same rules inside the API server: the bad write is still refused", s.policyRefuses},
	}
}

// entryName is how the API server's metrics call the webhook's entry.
const entryName = `name="` + policy.ContractEntry + `"`

// count is how many status reports of kubelets the API server has taken and has
// not, and how many reviews it has asked for, all from its own metrics.
type count struct{ taken, lost, reviews float64 }

func (s *story) count(ctx context.Context) (c count, err error) {
	page, err := s.cp.Metrics(ctx)
	if err != nil {
		return c, err
	}
	reports := []string{`resource="nodes"`, `subresource="status"`, `verb="PATCH"`}
	c.taken = guard.Sum(page, "apiserver_request_total", append(reports, `code="200"`)...)
	c.lost = guard.Sum(page, "apiserver_request_total", reports...) - c.taken
	c.reviews = guard.Sum(page, "apiserver_admission_webhook_admission_duration_seconds_count", entryName) +
		guard.Sum(page, "apiserver_admission_webhook_rejection_count", entryName, `error_type="calling_webhook_error"`)
	return c, nil
}

// moreReports waits for n further reports, while nobody but kubelets reports, and
// returns how many there were, and the reviews that came with them. None may be lost.
func (s *story) moreReports(ctx context.Context, n float64) (reports, reviews float64, err error) {
	before, err := s.count(ctx)
	if err != nil {
		return 0, 0, err
	}
	now := before
	err = s.until(ctx, func() (err error) {
		if now, err = s.count(ctx); err != nil {
			return err
		}
		if got := now.taken - before.taken; got < n && now.lost == before.lost {
			return fmt.Errorf("only %g reports by kubelets", got)
		}
		return nil
	})
	if lost := now.lost - before.lost; lost > 0 {
		err = errors.Join(err, fmt.Errorf("%g reports by kubelets were not taken", lost))
	}
	return now.taken - before.taken, now.reviews - before.reviews, err
}

func (s *story) kubeletsReport(ctx context.Context) error {
	// A recovery is left alone for ten seconds; the nodes have only just become Ready.
	wait := time.Until(s.ready.Add(contract.DefaultRecoveryHold + 2*time.Second))
	reports, reviews, err := s.moreReports(ctx, 30)
	if err != nil {
		return err
	}
	s.say("%g status reports by kubelets, %g reviews by the webhook (the API server's own count)", reports, reviews)
	if reviews != 0 {
		return errors.New("a kubelet's report depends on the webhook")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// stamp is the time of a transition that a careful detector sends: now, and
// past the kubelet's last word. A kubelet that still speaks every second needs
// some slack on top.
func (s *story) stamp(ctx context.Context, node string, slack time.Duration) (time.Time, error) {
	n, err := s.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now().Truncate(time.Second)
	if spoke, _ := contract.ReadyTimes(n.ManagedFields); !now.After(spoke) {
		now = spoke.Add(time.Second)
	}
	return now.Add(slack), nil
}

// alive is the slack for a kubelet that speaks every second.
const alive = 2 * time.Second

func (s *story) mistake(changes map[string]any, want contract.Rule) func(context.Context) error {
	return func(ctx context.Context) error {
		stamp, err := s.stamp(ctx, "n1", alive)
		if err != nil {
			return err
		}
		return s.refused(ctx, request{node: "n1", body: entry(stamp, changes)}, want)
	}
}

func (s *story) mergePatch(ctx context.Context) error {
	stamp, err := s.stamp(ctx, "n1", alive)
	if err != nil {
		return err
	}
	return s.refused(ctx, request{node: "n1", kind: "merge", body: entry(stamp, nil)}, contract.ConditionDropped, contract.HeartbeatModified)
}

func (s *story) secondEntry(ctx context.Context) error {
	return s.refused(ctx, request{node: "n1", kind: "json", body: `[{"op":"add","path":"/status/conditions/-","value":{"type":"Ready","status":"Unknown","reason":"OutOfBandProbeFailed"}}]`},
		contract.ReadyDuplicated, contract.StatusNotUnknown, contract.ReasonInherited)
}

func (s *story) failure(ctx context.Context) error {
	if err := s.kubelets.Cut("n3"); err != nil {
		return err
	}
	var stamp time.Time
	// What the kubelet had on the wire when it was cut off may still arrive.
	if err := s.until(ctx, func() (err error) {
		stamp, err = s.silentSince(ctx, "n3", 2*time.Second)
		return err
	}); err != nil {
		return err
	}
	o, err := reaction(ctx, s.admin, func() error {
		if _, err := s.show(ctx, request{node: "n3", body: entry(stamp, nil)}); err != nil {
			return fmt.Errorf("a correct write was refused: %w", err)
		}
		return nil
	})
	if o != nil {
		for _, seen := range o.seen {
			s.say("%4d ms: %s", seen.at.Sub(o.began).Milliseconds(), seen.what)
		}
	}
	if err != nil {
		return err
	}
	return s.nodes(ctx)
}

// silentSince returns the present once the kubelet has not spoken for a while.
func (s *story) silentSince(ctx context.Context, node string, silence time.Duration) (time.Time, error) {
	n, err := s.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now().Truncate(time.Second)
	if spoke, _ := contract.ReadyTimes(n.ManagedFields); now.Sub(spoke) < silence {
		return time.Time{}, fmt.Errorf("the kubelet of %s spoke at %s", node, spoke.Format(time.TimeOnly))
	}
	return now, nil
}

// nodes prints what the API server says of the nodes.
func (s *story) nodes(ctx context.Context) error {
	list, err := s.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "READY", "REASON", "SINCE"}}
	for _, n := range list.Items {
		c := ready(&n)
		rows = append(rows, []string{n.Name, string(c.Status), c.Reason, c.LastTransitionTime.UTC().Format(time.RFC3339)})
	}
	s.table(rows)
	return nil
}

func ready(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (s *story) recovery(ctx context.Context) error {
	n, err := s.admin.CoreV1().Nodes().Get(ctx, "n3", metav1.GetOptions{})
	if err != nil {
		return err
	}
	stale := ready(n).LastTransitionTime.Time
	if err := s.kubelets.Mend("n3"); err != nil {
		return err
	}
	if err := s.until(ctx, func() error {
		n, err := s.admin.CoreV1().Nodes().Get(ctx, "n3", metav1.GetOptions{})
		if err == nil && ready(n).Status != corev1.ConditionTrue {
			err = errors.New("the kubelet has not reported n3 Ready again")
		}
		return err
	}); err != nil {
		return err
	}
	s.say("the kubelet of n3 reports Ready again; a restarted detector repeats what it last sent:")
	if err := s.refused(ctx, request{node: "n3", body: entry(stale, nil)}, contract.NewerReady); err != nil {
		return err
	}
	s.say("another one takes the recovery back at once:")
	stamp, err := s.stamp(ctx, "n3", alive)
	if err != nil {
		return err
	}
	if err := s.refused(ctx, request{node: "n3", body: entry(stamp, nil)}, contract.RecoveryHold); err != nil {
		return err
	}
	if err := s.healed(ctx); err != nil {
		return err
	}
	s.say("n3 has no taints any more, and its kubelet reports all %d pods Ready", podsOnN3)
	return s.oneEvent(ctx)
}

func (s *story) webhookDies(ctx context.Context) error {
	s.hook.Kill()
	s.say("nodewarden-webhook is gone (SIGKILL), and its configuration says failurePolicy: Fail")
	reports, _, err := s.moreReports(ctx, 15)
	if err != nil {
		return fmt.Errorf("kubelets depend on the webhook: %w", err)
	}
	s.say("%g more status reports by kubelets, all taken", reports)
	return s.nodes(ctx)
}

// policyRefuses puts the policy in force beside the webhook, which may then
// fail open: the default install.
func (s *story) policyRefuses(ctx context.Context) error {
	set, err := policy.Policies(s.policy, policy.Options{})
	if err != nil {
		return err
	}
	api := s.admin.AdmissionregistrationV1()
	for _, g := range set.Guards {
		if _, err := api.ValidatingAdmissionPolicies().Create(ctx, g.Policy, metav1.CreateOptions{}); err != nil {
			return err
		}
		for _, b := range g.Bindings {
			if _, err := api.ValidatingAdmissionPolicyBindings().Create(ctx, b, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	if err := s.configure(ctx, policy.PolicyAndWebhook); err != nil {
		return err
	}
	bad := request{node: "n1", dryRun: true}
	if err := s.until(ctx, func() error {
		stamp, err := s.stamp(ctx, "n1", alive)
		if err != nil {
			return err
		}
		bad.body = entry(stamp, map[string]any{"reason": "NodeStatusUnknown"})
		switch err := s.attempt(ctx, bad); {
		case err == nil:
			return errors.New("the policy is not in force")
		case !apierrors.IsInvalid(err):
			return err
		}
		return nil
	}); err != nil {
		return err
	}
	s.say("%d policies are in force, and the webhook, still dead, fails open", len(set.Guards))
	stamp, err := s.stamp(ctx, "n1", alive)
	if err != nil {
		return err
	}
	return s.refused(ctx, request{node: "n1", body: entry(stamp, map[string]any{"reason": "NodeStatusUnknown"})}, contract.ReservedReason)
}
