package deploy

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// From warn to enforce and back is one value, and each step is in force
// without anybody touching a pod by hand.
func TestUpgradeAndRollbackChangeWhatIsInForce(t *testing.T) {
	c := newCluster(t)
	before := c.everything()
	all := c.install(values{})
	c.serve(all)
	c.settle(all)
	detector := c.detector()
	node := c.node(nil)
	admitted := func(ctx context.Context) error { return record(ctx, detector, node, reserved, dryRun) }
	refused := func(ctx context.Context) error {
		_, err := refusedBy(record(ctx, detector, node, reserved, dryRun))
		return err
	}
	policyOf := func(all objects) string {
		return deployment(t, all, "nodewarden-webhook").Spec.Template.Annotations["nodewarden.dev/policy"]
	}
	c.eventually("warn admits", admitted)

	c.helm("upgrade", release, chart, "--reuse-values", "--set", "policy.profile=enforce")
	c.eventually("enforce refuses", refused)
	if next := c.installed(); policyOf(next) == policyOf(all) {
		t.Error("the pods would go on with the old policy: nothing in their template changed")
	}
	if err := c.announced(c.ctx); err != nil {
		t.Errorf("the upgrade took the webhook's authority away: %v", err)
	}

	c.helm("rollback", release, "1")
	c.eventually("warn admits again", admitted)
	if err := c.announced(c.ctx); err != nil {
		t.Errorf("the rollback took the webhook's authority away: %v", err)
	}

	c.helm("upgrade", release, chart, "--reuse-values", "--set", "install=policy-alone,policy.profile=enforce")
	c.eventually("the policy alone refuses", refused)
	for name := range c.everything() {
		if !before[name] && strings.Contains(name, "nodewarden-webhook") && !strings.HasPrefix(name, "secrets "+namespace+"/sh.helm") {
			t.Errorf("policy-alone has no use for %s", name)
		}
	}
}

// breakGlass are the runbook's commands.
var breakGlass = []string{
	`kubectl patch validatingwebhookconfiguration nodewarden-contract --type=json -p '[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]'`,
	`kubectl delete validatingwebhookconfiguration nodewarden-contract`,
	`for b in $(kubectl get validatingadmissionpolicybinding -l app.kubernetes.io/name=nodewarden -o name); do kubectl patch $b --type=merge -p '{"spec":{"validationActions":["Warn"]}}'; done`,
	`kubectl delete validatingadmissionpolicybinding -l app.kubernetes.io/name=nodewarden`,
}

// beforePuttingBack are those that take away what was patched.
var beforePuttingBack = []string{
	`kubectl delete validatingadmissionpolicybinding -l app.kubernetes.io/name=nodewarden`,
	`kubectl delete validatingwebhookconfiguration nodewarden-contract --ignore-not-found`,
}

// The way out when everything is wrong must not lead through what is wrong.
func TestBreakGlassNeedsNobodysConsent(t *testing.T) {
	for name, glass := range map[string]struct {
		values, command string
	}{
		"let a dead webhook fail open":                                 {"webhook-only", breakGlass[0]},
		"delete the configuration of a dead webhook that fails closed": {"webhook-only", breakGlass[1]},
		"have the policies warn":                                       {"policy-only", breakGlass[2]},
		"unbind the policies":                                          {"policy-only", breakGlass[3]},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			all := c.install(values{}, "--values", example(t, glass.values))
			servers := c.serve(all)
			c.settle(all)
			detector := c.detector()
			node := c.node(nil)
			word := reserved
			if len(servers) > 0 {
				c.eventually("the webhook refuses", func(ctx context.Context) error {
					_, err := refusedBy(record(ctx, detector, node, reserved, dryRun))
					return err
				})
				servers[0].Kill()
				word = ownWord
			}
			c.eventually("even a correct write is stuck, or the policy refuses", func(ctx context.Context) error {
				if err := record(ctx, detector, node, word, dryRun); err == nil {
					return fmt.Errorf("was admitted")
				}
				return nil
			})
			if err := c.report(node); err != nil {
				t.Errorf("the kubelet is stuck with it: %v", err)
			}
			sh := c.shell()
			sh(glass.command)
			c.eventually("the write gets through", func(ctx context.Context) error { return record(ctx, detector, node, word, dryRun) })

			for _, command := range beforePuttingBack {
				sh(command)
			}
			c.helm("upgrade", release, chart, "--reuse-values")
			c.eventually("it is stuck or refused again", func(ctx context.Context) error {
				if err := record(ctx, detector, node, word, dryRun); err == nil {
					return fmt.Errorf("was admitted")
				}
				return nil
			})
		})
	}
}

// The deadlock that the default install is made to avoid: no server answers, as
// when the last replica sits on the node that died, and the write about that
// node needs an answer.
func TestInTheDefaultInstallNothingWaitsForADeadWebhook(t *testing.T) {
	c := newCluster(t)
	c.install(values{}.at("policy.profile", "enforce"))
	detector := c.detector()
	node := c.node(nil)
	c.eventually("the policy refuses alone", func(ctx context.Context) error {
		by, err := refusedBy(record(ctx, detector, node, reserved, dryRun))
		if err == nil && by != "policy" {
			err = fmt.Errorf("refused by the %s", by)
		}
		return err
	})
	begun := time.Now()
	if err := record(c.ctx, detector, node, ownWord, dryRun); err != nil {
		t.Errorf("a correct report: %v", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a correct report took %s", took)
	}
}

func TestRollingRestartsRefuseNoWrite(t *testing.T) { rollUnderLoad(t, 1, 500) }

func TestSoakRollingRestartsRefuseNoneOf100000Writes(t *testing.T) {
	if os.Getenv("NODEWARDEN_SOAK") == "" {
		t.Skip("takes minutes; set NODEWARDEN_SOAK=1")
	}
	if sent := rollUnderLoad(t, 5, 15_000); sent < 100_000 {
		t.Errorf("only %d writes", sent)
	}
}

// rollUnderLoad tells one replica after the other to stop, and at last kills
// one, while a detector writes; so many writes come before each of it. Only those
// that were in the killed one's hands may fail. It returns how many there were.
func rollUnderLoad(t *testing.T, restarts, writes int) int64 {
	t.Helper()
	c := newCluster(t)
	all := c.install(values{}, "--values", example(t, "webhook-only"))
	a := c.start("nodewarden-webhook")
	p := c.expose(a)
	c.settle(all)
	b := c.start("nodewarden-webhook")
	p.route(a, b)
	detector := c.detector()
	node := c.node(nil)
	c.eventually("the webhook answers", func(ctx context.Context) error {
		_, err := refusedBy(record(ctx, detector, node, reserved, dryRun))
		return err
	})
	w := c.hammer(detector, node)
	for range restarts {
		w.await(t, writes)
		next := c.start("nodewarden-webhook")
		p.route(b, next) // ready, so it gets its share; a is not, so it gets nothing new
		if err := a.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := a.Wait(); err != nil {
			t.Errorf("the drained replica: %v", err)
		}
		a, b = b, next
	}
	if w.failed.Load() > 0 {
		t.Errorf("%d of %d writes failed during rolling restarts, such as: %v", w.failed.Load(), w.sent.Load(), w.first.Load())
	}
	w.await(t, writes)
	p.route(b)
	a.Kill()
	w.await(t, writes)
	w.stop()
	t.Logf("%d writes, %d lost to the killed replica", w.sent.Load(), w.failed.Load())
	if lost := w.failed.Load(); lost > hammers {
		t.Errorf("%d writes failed, and only %d can have been in flight, such as: %v", lost, hammers, w.first.Load())
	}
	if w.wrong.Load() > 0 {
		t.Errorf("%d correct writes were refused by a verdict", w.wrong.Load())
	}
	return w.sent.Load()
}

// hammers is how many writes are in flight at one time.
const hammers = 4

type hammering struct {
	sent, failed, wrong atomic.Int64
	first               atomic.Value
	stop                func()
}

// hammer writes correct reports, never stored, until it is stopped.
func (c *cluster) hammer(detector kubernetes.Interface, node string) *hammering {
	ctx, stop := context.WithCancel(c.ctx)
	w := &hammering{}
	done := make(chan struct{}, hammers)
	for range hammers {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				err := record(ctx, detector, node, ownWord, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case ctx.Err() != nil:
					return
				case apierrors.IsInvalid(err):
					w.wrong.Add(1)
				case err != nil:
					w.failed.Add(1)
					w.first.CompareAndSwap(nil, err.Error())
				}
				w.sent.Add(1)
			}
		}()
	}
	w.stop = func() {
		stop()
		for range hammers {
			<-done
		}
	}
	return w
}

// await returns when n more writes have been answered.
func (w *hammering) await(t *testing.T, n int) {
	t.Helper()
	until, giveUp := w.sent.Load()+int64(n), time.Now().Add(patience+time.Duration(n)*10*time.Millisecond)
	for w.sent.Load() < until {
		if time.Now().After(giveUp) {
			t.Fatalf("only %d writes were answered; %d failed, such as %v", w.sent.Load(), w.failed.Load(), w.first.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
}
