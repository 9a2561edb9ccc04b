// Package webhook holds the webhook to its golden rule through a real API
// server: whatever becomes of it, no write by a kubelet, a stand-in or a
// lifecycle controller depends on it, and replacing it loses no write.
package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
	"github.com/nodewarden/nodewarden/test/nodes"
	"github.com/nodewarden/nodewarden/test/witness"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

const (
	// patience bounds every wait in this package.
	patience = 60 * time.Second
	// fast bounds a write that must not wait for the webhook. It is longer than
	// the second after which the skew entry, which watches lifecycle
	// identities, is given up; a kubelet that waited for the contract entry
	// would be refused, not slow.
	fast = 2500 * time.Millisecond
)

// shared is one control plane for all tests.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &shared)) }

// standIn writes for kubelets; the policy of this package lists it.
var standIn = contract.ServiceAccount("kwok", "kwok-controller")

func rules() contract.Policy {
	p := contract.Default(contract.Enforce)
	p.StandIns = []contract.Identity{standIn}
	return p
}

// cluster is the control plane as one test uses it.
type cluster struct {
	*testing.T
	admin kubernetes.Interface
}

func inCluster(t *testing.T) *cluster {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane, which -short leaves out")
	}
	c := &cluster{T: t}
	c.admin = c.as(shared.Admin())
	c.grant("external-detector", "system:serviceaccount:monitoring:detector")
	c.grant("stand-in", standIn.User)
	return c
}

func (c *cluster) as(config *rest.Config) kubernetes.Interface {
	c.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.Fatal(err)
	}
	return client
}

func (c *cluster) detector() kubernetes.Interface {
	return c.as(shared.ServiceAccount("monitoring", "detector"))
}

// grant lets a user write the status of nodes.
func (c *cluster) grant(name, user string) {
	c.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "create", "update", "patch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	if _, err := c.admin.RbacV1().ClusterRoles().Create(c.Context(), role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
	if _, err := c.admin.RbacV1().ClusterRoleBindings().Create(c.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.Fatal(err)
	}
}

func (c *cluster) eventually(what string, try func(context.Context) error) {
	c.Helper()
	witness.Eventually(c.T, patience, what, try)
}

var numbered atomic.Int32

// unique is a name that no test has used.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, numbered.Add(1)) }

// register lets a kubelet register a node of its own, Ready.
func (c *cluster) register(name string) *corev1.Node {
	c.Helper()
	name = unique(name)
	now := time.Now().Truncate(time.Second).Add(-time.Hour)
	n, err := c.as(shared.Kubelet(name)).CoreV1().Nodes().Create(c.Context(), nodes.Reporting(name, now, now).Node(), metav1.CreateOptions{})
	if err != nil {
		c.Fatalf("a kubelet cannot register: %v", err)
	}
	return n
}

// fails records the failure of a node, as a detector that keeps the contract.
func fails(ctx context.Context, detector kubernetes.Interface, node string, o metav1.PatchOptions) error {
	return patch(ctx, detector, node, o, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "OutOfBandProbeFailed", Message: "three probes failed",
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	})
}

// patch writes one condition by strategic merge.
func patch(ctx context.Context, who kubernetes.Interface, node string, o metav1.PatchOptions, condition corev1.NodeCondition) error {
	entry := map[string]any{"type": condition.Type, "status": condition.Status, "reason": condition.Reason, "message": condition.Message}
	for key, at := range map[string]metav1.Time{"lastHeartbeatTime": condition.LastHeartbeatTime, "lastTransitionTime": condition.LastTransitionTime} {
		if !at.IsZero() {
			entry[key] = at
		}
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{entry}}})
	if err != nil {
		return err
	}
	_, err = who.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, o, "status")
	return err
}

// point puts the webhook configuration in force, failing closed, with the
// webhook at url, and removes it when the test ends.
func (c *cluster) point(url string, ca []byte) {
	c.Helper()
	hooks, err := policy.Webhooks(rules(), policy.WebhookOptions{Install: policy.WebhookAlone, URL: url, CABundle: ca})
	if err != nil {
		c.Fatal(err)
	}
	if err := guard.Configure(c.Context(), c.admin, hooks); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, hooks.Name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

// outage is a way for a webhook to be of no use. It returns the URL and the CA
// bundle that the API server is given.
type outage func(t *testing.T) (url string, ca []byte)

var outages = map[string]outage{
	"dead": func(t *testing.T) (string, []byte) {
		l := listen(t)
		_ = l.Close()
		return "https://" + l.Addr().String() + "/validate", certs.New(t).PEM
	},
	"a black hole": func(t *testing.T) (string, []byte) {
		l := listen(t) // takes connections and never says a word
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
			}
		}()
		return "https://" + l.Addr().String() + "/validate", certs.New(t).PEM
	},
	"slow": func(t *testing.T) (string, []byte) {
		return server(t, certs.New(t), nil, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
	},
	"of a wrong CA": func(t *testing.T) (string, []byte) {
		return server(t, certs.New(t), certs.New(t), func(http.ResponseWriter, *http.Request) {})
	},
	"answering 500": func(t *testing.T) (string, []byte) {
		return server(t, certs.New(t), nil, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
	},
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// server serves h with a certificate of a; the API server is told of trusted,
// or of a where that is nil.
func server(t *testing.T, a, trusted *certs.Authority, h http.HandlerFunc) (string, []byte) {
	t.Helper()
	if trusted == nil {
		trusted = a
	}
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, time.Now().Add(time.Hour)).TLS(t)}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/validate", trusted.PEM
}

// TestTheGoldenRule: with the webhook out of order and failing closed, whoever
// is never judged writes as ever, and only external writers are stopped.
func TestTheGoldenRule(t *testing.T) {
	for name, out := range outages {
		t.Run("the webhook is "+name, func(t *testing.T) {
			c := inCluster(t)
			url, ca := out(t)
			c.point(url, ca)
			n := c.register("a")
			detector := c.detector()
			c.eventually("the broken webhook is in force", func(ctx context.Context) error {
				err := fails(ctx, detector, n.Name, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil || !strings.Contains(err.Error(), policy.ContractEntry) {
					return fmt.Errorf("an external write got: %w", err)
				}
				return nil
			})
			for who, write := range c.neverJudged(n.Name) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				start := time.Now()
				err := write(ctx)
				cancel()
				if took := time.Since(start); err != nil || took > fast {
					t.Errorf("%s: took %s: %v", who, took, err)
				}
			}
		})
	}
}

// neverJudged are writes that no webhook may hold up, by who sends them.
func (c *cluster) neverJudged(node string) map[string]func(context.Context) error {
	fresh := unique("b")
	kubelet, newcomer := c.as(shared.Kubelet(node)), c.as(shared.Kubelet(fresh))
	lifecycle, kwok, npd := c.as(shared.ServiceAccount("kube-system", "node-controller")), c.as(shared.ServiceAccount("kwok", "kwok-controller")), c.detector()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	ready := func(status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: reason, Message: "reported", LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return map[string]func(context.Context) error{
		"a kubelet reports": func(ctx context.Context) error {
			return patch(ctx, kubelet, node, metav1.PatchOptions{}, ready(corev1.ConditionFalse, "KubeletNotReady"))
		},
		"a kubelet registers itself, Ready": func(ctx context.Context) error {
			_, err := newcomer.CoreV1().Nodes().Create(ctx, nodes.Reporting(fresh, now.Time, now.Time).Node(), metav1.CreateOptions{})
			return err
		},
		"the lifecycle controller marks a node": func(ctx context.Context) error {
			n, err := c.admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			r := nodes.Ready(n)
			r.Status, r.Reason, r.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", now
			_, err = lifecycle.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
			return err
		},
		"a stand-in reports": func(ctx context.Context) error {
			return patch(ctx, kwok, node, metav1.PatchOptions{}, ready(corev1.ConditionTrue, "KubeletReady"))
		},
		"a monitor writes another condition": func(ctx context.Context) error {
			return patch(ctx, npd, node, metav1.PatchOptions{}, corev1.NodeCondition{
				Type: "KernelDeadlock", Status: corev1.ConditionFalse, Reason: "KernelHasNoDeadlock", LastHeartbeatTime: now, LastTransitionTime: now,
			})
		},
		"an admin labels a node": func(ctx context.Context) error {
			_, err := c.admin.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"labels":{"checked":"yes"}}}`), metav1.PatchOptions{})
			return err
		},
	}
}

// TestKubeletReportsCostNoCall: the API server itself counts whom it called.
func TestKubeletReportsCostNoCall(t *testing.T) {
	c := inCluster(t)
	hook := c.hook()
	c.point(hook.URL, hook.CA)
	n := c.register("counted")
	kubelet, detector := c.as(shared.Kubelet(n.Name)), c.detector()
	calls := func(ctx context.Context) float64 {
		page, err := shared.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return guard.Sum(page, "apiserver_admission_webhook_request_total", `name="`+policy.ContractEntry+`"`) +
			guard.Sum(page, "apiserver_admission_webhook_request_total", `name="`+policy.SkewEntry+`"`)
	}
	start := calls(t.Context())
	c.eventually("the webhook is called for a detector, and the API server counts it", func(ctx context.Context) error {
		if err := fails(ctx, detector, n.Name, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err
		}
		if calls(ctx) == start {
			return fmt.Errorf("no call counted")
		}
		return nil
	})
	before := calls(t.Context())
	for i := range 100 {
		status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[i/10%2]
		at := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Duration(i) * time.Second))
		if err := patch(t.Context(), kubelet, n.Name, metav1.PatchOptions{}, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: status, Reason: "KubeletReady", Message: fmt.Sprint(i), LastHeartbeatTime: at, LastTransitionTime: at,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if after := calls(t.Context()); after != before {
		t.Errorf("100 kubelet reports caused %v calls", after-before)
	}
}

// hook starts a webhook that enforces this package's rules.
func (c *cluster) hook() *guard.Webhook {
	c.Helper()
	w, err := guard.Start(c.Context(), shared, guard.Options{Policy: policyFile})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(w.Kill)
	return w
}

const policyFile = `apiVersion: config.nodewarden.dev/v1alpha1
kind: WebhookConfiguration
profile: enforce
standIns: [{serviceAccount: {namespace: kwok, name: kwok-controller}}]
`
