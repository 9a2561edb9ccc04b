// Package policy plays the three installs on a real control plane, with the
// webhook healthy, dead, slow and untrusted.
package policy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

const (
	byPolicy  = "ValidatingAdmissionPolicy"
	byWebhook = `admission webhook "` + policy.ContractEntry + `"`
)

// ailments are the ways in which a webhook is there and is not. Each returns
// where the API server will look for it, and whom it will trust.
var ailments = map[string]func(c *cluster) (url string, ca []byte){
	"dead": func(c *cluster) (string, []byte) {
		port, err := controlplane.FreePort()
		c.must(err)
		_, ca := selfSigned(c)
		return fmt.Sprintf("https://127.0.0.1:%d/validate", port), ca
	},
	"slow": func(c *cluster) (string, []byte) {
		pair, ca := selfSigned(c)
		return silent(c, pair), ca
	},
	"untrusted": func(c *cluster) (string, []byte) {
		_, other := selfSigned(c)
		return c.webhook().URL, other
	},
}

func selfSigned(c *cluster) (tls.Certificate, []byte) {
	c.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	c.must(err)
	pair, err := tls.X509KeyPair(chain, key)
	c.must(err)
	return pair, chain
}

// silent accepts connections, shakes hands and never answers.
func silent(c *cluster, pair tls.Certificate) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	c.must(err)
	c.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.Cleanup(func() { _ = conn.Close() })
			go func() { _ = conn.(*tls.Conn).HandshakeContext(context.Background()) }()
		}
	}()
	return "https://" + l.Addr().String() + "/validate"
}

// Whatever ails the webhook, those who keep a cluster alive never notice: the
// API server does not so much as call it. Only the write that shows a
// controller manager in kubelet mode is told to the skew entry, for a second at
// most.
func (c *cluster) kubeletsNeverNotice() {
	c.Helper()
	node := c.reporting()
	before := c.webhookCalls()
	c.within(fast, "a kubelet's report", func() error { return c.report(node, "True") })
	c.within(fast, "a node lifecycle controller's verdict", func() error { return c.lifecycleWrites(node) })
	c.within(fast, "a kubelet's recovery", func() error { return c.report(node, "True") })
	c.within(fast, "a problem detector's report of another condition", func() error {
		return c.patch(c.detector(), node, `{"status":{"conditions":[{"type":"KernelDeadlock","status":"False","reason":"KernelHasNoDeadlock"}]}}`)
	})
	if calls := c.webhookCalls() - before; calls != 0 {
		c.Errorf("the webhook was called %v times about writes that are none of its business", calls)
	}
}

// fast is far below the 10 s after which a kubelet gives up a request, and far
// above what a busy machine needs for one.
const fast = 5 * time.Second

// webhookCalls counts the API server's calls of the contract's entry, failed
// ones included.
func (c *cluster) webhookCalls() float64 {
	page, err := c.cp.Metrics(c.ctx())
	c.must(err)
	return guard.Sum(page, "apiserver_admission_webhook_admission_duration_seconds_count", `name="`+policy.ContractEntry+`"`)
}

func TestPolicyAndWebhook(t *testing.T) {
	for ailment, of := range ailments {
		t.Run("the webhook is "+ailment, func(t *testing.T) {
			c := fresh(t)
			c.installPolicies(contract.Default(contract.Enforce))
			url, ca := of(c)
			c.installWebhook(contract.Default(contract.Enforce), policy.PolicyAndWebhook, url, ca)
			c.inForce(byPolicy)
			c.kubeletsNeverNotice()
			node := c.reporting()
			if err := refusedBy(c.writeBad(node), byPolicy); err != nil {
				t.Error(err)
			}
			// The policy has judged it; the webhook is waited for a second at most.
			c.within(fast, "a correct write", func() error { return c.writeGood(node) })
		})
	}
	t.Run("the refusal is counted by the API server", func(t *testing.T) {
		c := fresh(t)
		c.installPolicies(contract.Default(contract.Enforce))
		hook := c.webhook()
		c.installWebhook(contract.Default(contract.Enforce), policy.PolicyAndWebhook, hook.URL, hook.CA)
		c.inForce(byPolicy)
		c.countedByTheAPIServer()
	})
}

func TestPolicyAlone(t *testing.T) {
	c := fresh(t)
	c.installPolicies(contract.Default(contract.Enforce))
	c.inForce(byPolicy)
	c.kubeletsNeverNotice()
	c.countedByTheAPIServer()
	c.must(c.writeGood(c.reporting()))
}

func (c *cluster) countedByTheAPIServer() {
	c.Helper()
	const name = "reserved-reason.contract.nodewarden.dev"
	count := func() float64 {
		page, err := c.cp.Metrics(c.ctx())
		c.must(err)
		return guard.Sum(page, "apiserver_validating_admission_policy_check_total",
			`policy="`+name+`"`, `policy_binding="`+name+`"`, `enforcement_action="deny"`)
	}
	node := c.reporting()
	before := count()
	if err := refusedBy(c.writeBad(node), byPolicy); err != nil {
		c.Error(err)
	}
	if got := count() - before; got != 1 {
		c.Errorf("one refused write moved the API server's count by %v", got)
	}
}

func TestWebhookAlone(t *testing.T) {
	for ailment, of := range ailments {
		t.Run("the webhook is "+ailment, func(t *testing.T) {
			c := fresh(t)
			url, ca := of(c)
			c.installWebhook(contract.Default(contract.Enforce), policy.WebhookAlone, url, ca)
			node := c.reporting()
			c.eventually("an external write refused without its judge", func() error {
				if err := c.writeGood(node); err == nil || !strings.Contains(err.Error(), policy.ContractEntry) {
					return fmt.Errorf("answered with something else: %w", err)
				}
				return nil
			})
			c.kubeletsNeverNotice()
			// Failing closed, it takes the correct write with the bad one, after 3 s at most.
			c.within(3*time.Second+fast, "the refusal of a bad write", func() error {
				if err := c.writeBad(node); err == nil {
					return fmt.Errorf("a bad write got past a webhook that fails closed")
				}
				return nil
			})
		})
	}
	t.Run("the refusal is counted by the webhook", func(t *testing.T) {
		c := fresh(t)
		hook := c.webhook()
		c.installWebhook(contract.Default(contract.Enforce), policy.WebhookAlone, hook.URL, hook.CA)
		c.inForce(byWebhook)
		c.kubeletsNeverNotice()
		count := func() float64 {
			page, err := hook.Metrics(c.ctx())
			c.must(err)
			return guard.Sum(page, "nodewarden_webhook_violations_total", `rule="ReservedReason"`, `action="deny"`)
		}
		before := count()
		if err := refusedBy(c.writeBad(c.reporting()), byWebhook); err != nil {
			t.Error(err)
		}
		if got := count() - before; got != 1 {
			t.Errorf("one refused write moved the webhook's count by %v", got)
		}
	})
}

// The webhook's only replica sits on the node that dies. Recording that failure
// is what moves the replica elsewhere; it must not have to pass the webhook.
func TestTheNodeUnderTheWebhookCanBeDeclaredDead(t *testing.T) {
	c := fresh(t)
	c.installPolicies(contract.Default(contract.Enforce))
	hook := c.webhook()
	c.installWebhook(contract.Default(contract.Enforce), policy.PolicyAndWebhook, hook.URL, hook.CA)
	c.inForce(byPolicy)
	under := c.reporting()
	hook.Kill()
	if err := refusedBy(c.writeBad(under), byPolicy); err != nil {
		t.Errorf("the contract does not hold without the webhook: %v", err)
	}
	c.within(fast, "recording the failure of the webhook's own node", func() error { return c.writeGood(under) })
	node, err := c.admin.CoreV1().Nodes().Get(c.ctx(), under, metav1.GetOptions{})
	c.must(err)
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status != "Unknown" {
			t.Errorf("the node under the webhook is still %s", condition.Status)
		}
	}
}
