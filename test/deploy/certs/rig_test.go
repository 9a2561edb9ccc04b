// Package certs keeps the webhook's certificates on a real API server, with
// several replicas, while others write, delete and break what they keep.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/witness"
	"github.com/nodewarden/nodewarden/webhook"
	"github.com/nodewarden/nodewarden/webhook/certs"
	"github.com/nodewarden/nodewarden/webhook/config"
	"github.com/nodewarden/nodewarden/webhook/policy"
)

// patience bounds every wait in this package.
const patience = 60 * time.Second

// serviceName is a name that only the bundle's certificates carry.
const serviceName = "nodewarden-webhook.nodewarden-system.svc"

const secretName = "nodewarden-webhook-tls"

var shared *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &shared)) }

// scene is a namespace with a Secret to be, a webhook configuration, replicas
// that keep both, and a Service in front of them.
type scene struct {
	*testing.T
	name     string
	admin    kubernetes.Interface
	lifetime time.Duration
	policy   *config.WebhookConfiguration

	mu       sync.Mutex
	replicas []*replica
	service  net.Listener
	next     atomic.Int32
}

var scenes atomic.Int32

func newScene(t *testing.T) *scene {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane, which -short leaves out")
	}
	quiet := shared.Admin()
	quiet.WarningHandler = rest.NoWarnings{}
	admin, err := kubernetes.NewForConfig(quiet)
	must(t, err)
	parsed, err := config.Parse([]byte("apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\n"))
	must(t, err)
	s := &scene{T: t, name: fmt.Sprintf("certs-%d", scenes.Add(1)), admin: admin, lifetime: time.Hour, policy: parsed}
	_, err = admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{})
	must(t, err)
	_, err = admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{})
	must(t, err)
	s.service, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go s.forward()
	t.Cleanup(func() {
		_ = s.service.Close()
		ctx := context.WithoutCancel(t.Context())
		_ = admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, s.name, metav1.DeleteOptions{})
		_ = admin.CoreV1().Nodes().Delete(ctx, s.name, metav1.DeleteOptions{})
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// forward gives each connection to the next replica, as a Service does.
func (s *scene) forward() {
	for {
		in, err := s.service.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		to := s.replicas[int(s.next.Add(1))%len(s.replicas)].server.Address()
		s.mu.Unlock()
		go func() {
			defer func() { _ = in.Close() }()
			var dialer net.Dialer
			out, err := dialer.DialContext(s.Context(), "tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = out.Close() }()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			_, _ = io.Copy(in, out)
		}()
	}
}

// replica is a webhook in this process, with files and a keeper of its own.
type replica struct {
	server  *webhook.Server
	metrics *prometheus.Registry
	dir     string
	stop    func()
}

const settle = time.Second

// serve starts one more server, which follows files that somebody else writes.
func (s *scene) serve() *replica {
	s.Helper()
	r := &replica{dir: s.TempDir(), metrics: prometheus.NewRegistry()}
	o := webhook.DefaultOptions(s.policy.Policy())
	o.Address, o.Files, o.Drain = "127.0.0.1:0", r.files(), 0
	var err error
	r.server, err = webhook.New(o, r.metrics, logr.Discard())
	must(s.T, err)
	s.run(r, func(ctx context.Context) {
		if err := r.server.Run(ctx); err != nil {
			s.Errorf("serving: %v", err)
		}
	})
	s.mu.Lock()
	s.replicas = append(s.replicas, r)
	s.mu.Unlock()
	return r
}

// replica starts one more server with a keeper, which acts as that account.
func (s *scene) replica(as *rest.Config) *replica {
	s.Helper()
	r := s.serve()
	files := r.files()
	keeper, err := certs.New(certs.Options{
		Secret: s.name + "/" + secretName, Configuration: s.name, Names: []string{serviceName, "127.0.0.1"},
		Lifetime: s.lifetime, Settle: settle, Certificate: files.Certificate, Key: files.Key,
	}, as, r.metrics, klog.Background())
	must(s.T, err)
	s.run(r, keeper.Run)
	return r
}

// run runs a part of r until r is stopped, or the test ends.
func (s *scene) run(r *replica, part func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); part(ctx) }()
	before := r.stop
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		if before != nil {
			before()
		}
	})
	s.Cleanup(r.stop)
}

func (r *replica) files() webhook.CertificateFiles {
	return webhook.CertificateFiles{Certificate: filepath.Join(r.dir, "tls.crt"), Key: filepath.Join(r.dir, "tls.key")}
}

func (s *scene) eventually(what string, try func(context.Context) error) {
	s.Helper()
	witness.Eventually(s.T, patience, what, try)
}

func (s *scene) ready(replicas ...*replica) {
	s.Helper()
	for _, r := range replicas {
		s.eventually("the replica is ready", r.server.Ready)
	}
}

func (s *scene) secret() *corev1.Secret {
	s.Helper()
	secret, err := s.admin.CoreV1().Secrets(s.name).Get(s.Context(), secretName, metav1.GetOptions{})
	must(s.T, err)
	return secret
}

// shape changes the Secret as an admin with an editor would.
func (s *scene) shape(how func(data map[string][]byte)) {
	s.Helper()
	s.eventually("the Secret is changed by hand", func(ctx context.Context) error {
		secret := s.secret()
		how(secret.Data)
		_, err := s.admin.CoreV1().Secrets(s.name).Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
}

// configure puts both entries in force: alone, failing closed, no bundle.
func (s *scene) configure() {
	s.Helper()
	hooks, err := policy.Webhooks(s.policy.Policy(), policy.WebhookOptions{Install: policy.WebhookAlone, URL: "https://" + s.service.Addr().String() + "/validate"})
	must(s.T, err)
	if len(hooks.Webhooks) != 2 {
		s.Fatalf("%d entries, want 2", len(hooks.Webhooks))
	}
	hooks.Name = s.name
	for i := range hooks.Webhooks { // other scenes' nodes are none of our business
		hooks.Webhooks[i].MatchConditions = append(hooks.Webhooks[i].MatchConditions,
			admissionv1.MatchCondition{Name: "this-scene", Expression: fmt.Sprintf("object.metadata.name == %q", s.name)})
	}
	_, err = s.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(s.Context(), hooks, metav1.CreateOptions{})
	must(s.T, err)
}

func (s *scene) configuration(ctx context.Context) (*admissionv1.ValidatingWebhookConfiguration, error) {
	return s.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, s.name, metav1.GetOptions{})
}

// announced waits until both entries hold exactly the bundle of the Secret.
func (s *scene) announced() {
	s.Helper()
	s.eventually("both entries hold the bundle of the Secret", func(ctx context.Context) error {
		c, err := s.configuration(ctx)
		if err != nil {
			return err
		}
		want := s.secret().Data["ca.crt"]
		for i := range c.Webhooks {
			if got := c.Webhooks[i].ClientConfig.CABundle; len(want) == 0 || !bytes.Equal(got, want) {
				return fmt.Errorf("%s holds %d bytes, not the %d of the Secret", c.Webhooks[i].Name, len(got), len(want))
			}
		}
		return nil
	})
}

// write is a detector's write of Ready, sent through the API server: it
// succeeds only if the API server reaches and believes the webhook.
func (s *scene) write(ctx context.Context, message string) error {
	body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"OutOfBandProbeFailed","message":%q}]}}`, message)
	_, err := s.admin.CoreV1().Nodes().Patch(ctx, s.name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
	return err
}

// believed waits until the API server's calls succeed.
func (s *scene) believed() {
	s.Helper()
	s.eventually("the API server believes the webhook", func(ctx context.Context) error {
		return s.write(ctx, "probe "+time.Now().String())
	})
}

// showsSecret waits until every replica shows the certificate in the Secret.
func (s *scene) showsSecret() {
	s.Helper()
	s.eventually("every replica shows the certificate in the Secret", func(ctx context.Context) error {
		want := s.secret().Data[corev1.TLSCertKey]
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, r := range s.replicas {
			shown, err := r.shown(ctx)
			if err != nil {
				return err
			}
			if block := pemOf(shown); !bytes.Equal(block, want) {
				return fmt.Errorf("replica %d shows another", i)
			}
		}
		return nil
	})
}

func (r *replica) shown(ctx context.Context) (*x509.Certificate, error) {
	return handshake(ctx, r.server.Address(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // compared, not trusted
}

func handshake(ctx context.Context, address string, c *tls.Config) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: c}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, errors.New("no TLS")
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}

// bind gives the rules to the scene's account: those on Secrets in its namespace.
func (s *scene) bind(rules []rbacv1.PolicyRule) {
	s.Helper()
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.name, Name: "nodewarden-webhook"}}
	rbac, ctx, meta := s.admin.RbacV1(), s.Context(), metav1.ObjectMeta{Name: s.name}
	var role, clusterRole []rbacv1.PolicyRule
	for _, r := range rules {
		if r.Resources[0] == "secrets" {
			role = append(role, r)
		} else {
			clusterRole = append(clusterRole, r)
		}
	}
	_, err := rbac.Roles(s.name).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: role}, metav1.CreateOptions{})
	must(s.T, err)
	_, err = rbac.RoleBindings(s.name).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: s.name}}, metav1.CreateOptions{})
	must(s.T, err)
	_, err = rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: clusterRole}, metav1.CreateOptions{})
	must(s.T, err)
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.name}}, metav1.CreateOptions{})
	must(s.T, err)
}

func emptySecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Type: corev1.SecretTypeOpaque}
}
