package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/config"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

const policyFile = `apiVersion: config.nodewarden.dev/v1alpha1
kind: WebhookConfiguration
profile: enforce
`

// story is a running demo.
type story struct {
	out         io.Writer
	progress    io.Writer
	step        int
	cp          *controlplane.ControlPlane
	kubelets    *controlplane.Hollow
	ready       time.Time // when the kubelets had all reported
	hook        *guard.Webhook
	controllers []*replica
	policy      contract.Policy

	admin    kubernetes.Interface
	detector kubernetes.Interface
}

// patience bounds every wait of the demo.
const patience = time.Minute

// raise starts everything that the story needs.
func raise(ctx context.Context, o Options) (*story, error) {
	s := &story{out: o.Out, progress: o.Progress}
	begun := time.Now()
	var err error
	if s.cp, err = controlplane.Start(ctx, controlplane.Options{Progress: o.Progress}); err != nil {
		return nil, err
	}
	s.say("etcd and kube-apiserver 1.37.2 are up (%s)", since(begun))
	for _, next := range []func(context.Context) error{s.clients, s.startControllers, s.registerNodes, s.runPods, s.startWebhook} {
		if err := next(ctx); err != nil {
			s.lastWords(ctx)
			s.end()
			return nil, err
		}
	}
	return s, nil
}

// lastWords prints the ends of all logs, which go when the story ends. An
// interruption needs no explanation.
func (s *story) lastWords(ctx context.Context) {
	if ctx.Err() == nil {
		_, _ = fmt.Fprintf(s.progress, "\nWhat everybody wrote last:\n%s\n", s.cp.Tails(15))
	}
}

func (s *story) end() { _ = s.cp.Stop() }

func (s *story) clients(ctx context.Context) (err error) {
	if s.admin, err = kubernetes.NewForConfig(s.cp.Admin()); err != nil {
		return err
	}
	if s.detector, err = kubernetes.NewForConfig(s.cp.ServiceAccount("liveness", "detector")); err != nil {
		return err
	}
	return s.grant(ctx, "liveness", "detector",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch", "update"}},
	)
}

func (s *story) registerNodes(ctx context.Context) (err error) {
	begun := time.Now()
	s.kubelets, err = s.cp.StartHollow(ctx, controlplane.HollowOptions{Names: []string{"n1", "n2", "n3"}, Reporting: controlplane.Reporting{
		StatusEvery: time.Second, ReportEvery: time.Second,
	}})
	if err != nil {
		return err
	}
	s.ready = time.Now()
	s.say("n1, n2 and n3 are registered and Ready: three real kubelets, no containers behind them (%s)", since(begun))
	return nil
}

func (s *story) startWebhook(ctx context.Context) (err error) {
	begun := time.Now()
	if s.hook, err = guard.Start(ctx, s.cp, guard.Options{Policy: policyFile}); err != nil {
		return err
	}
	file, err := config.Parse([]byte(policyFile))
	if err != nil {
		return err
	}
	s.policy = file.Policy()
	if err := s.configure(ctx, policy.WebhookAlone); err != nil {
		return err
	}
	if err := s.inForce(ctx); err != nil {
		return err
	}
	s.say("nodewarden-webhook is in force: profile enforce, failing closed (%s)", since(begun))
	return nil
}

// configure tells the API server where the webhook is, and what to do without it.
func (s *story) configure(ctx context.Context, install policy.Install) error {
	hooks, err := policy.Webhooks(s.policy, policy.WebhookOptions{Install: install, URL: s.hook.URL, CABundle: s.hook.CA})
	if err != nil {
		return err
	}
	return guard.Configure(ctx, s.admin, hooks)
}

// inForce waits until the webhook refuses, with writes that change nothing.
func (s *story) inForce(ctx context.Context) error {
	return s.until(ctx, func() error {
		err := s.attempt(ctx, request{node: "n1", body: `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, dryRun: true})
		switch {
		case err == nil:
			return errors.New("the API server does not ask the webhook")
		case !apierrors.IsInvalid(err) || !slices.Contains(named(err.Error()), contract.StatusNotUnknown):
			return err
		}
		return nil
	})
}

// until tries again and again, for as long as patience lasts.
func (s *story) until(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stay brings the webhook back, tells how to go on by hand, and waits.
func (s *story) stay(ctx context.Context) error {
	hook, err := guard.Start(ctx, s.cp, guard.Options{Policy: policyFile})
	if err != nil {
		return err
	}
	s.hook = hook
	if err := s.configure(ctx, policy.PolicyAndWebhook); err != nil {
		return err
	}
	admin, err := s.cp.Kubeconfig(s.cp.Admin())
	if err != nil {
		return err
	}
	detector, err := s.cp.Kubeconfig(s.cp.ServiceAccount("liveness", "detector"))
	if err != nil {
		return err
	}
	s.blank()
	s.say("The webhook is back, the policies stay, one controller leads. All of it stays up until you interrupt it. In another terminal:")
	s.say("  export KUBECONFIG=%s", admin)
	s.say("  kubectl get nodes")
	s.say("and as the detector:")
	s.say("  kubectl --kubeconfig=%s patch node n2 --subresource=status --type=strategic -p '{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"Unknown\"}]}}'", detector)
	<-ctx.Done()
	return nil
}
