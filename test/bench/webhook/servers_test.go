package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodewarden/nodewarden/contract"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

// The environment of a child process that is one of the servers to compare.
const (
	roleEnv    = "NODEWARDEN_BENCH_ROLE"
	addressEnv = "NODEWARDEN_BENCH_ADDRESS"
	folderEnv  = "NODEWARDEN_BENCH_CERTIFICATES"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		fmt.Fprintln(os.Stderr, play(role))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// play serves as one of the handlers to compare with, by the same net/http and
// the same TLS as ours.
func play(role string) error {
	handlers := map[string]http.Handler{"typed": typed(), "body": http.HandlerFunc(readOnly)}
	mux := http.NewServeMux()
	mux.Handle("/validate", handlers[role])
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	s := &http.Server{Addr: os.Getenv(addressEnv), Handler: mux, Protocols: protocols, ReadHeaderTimeout: 5 * time.Second}
	folder := os.Getenv(folderEnv)
	return s.ListenAndServeTLS(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
}

// typed is the webhook as most are written: controller-runtime decodes the
// review, the handler both Nodes. What it makes of them is what ours does.
func typed() http.Handler {
	decoder, rules := admission.NewDecoder(scheme.Scheme), contract.Default(contract.Enforce)
	return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		before, after := &corev1.Node{}, &corev1.Node{}
		if err := decoder.Decode(r, after); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if err := decoder.DecodeRaw(r.OldObject, before); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		broken := contract.Check(contract.Between(before, after, contract.User{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups}), rules)
		if denied := contract.With(contract.Deny, broken); len(denied) > 0 {
			return admission.Denied(contract.Message(denied))
		}
		return admission.Allowed("")
	})}
}

var allowed = []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}`)

func readOnly(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(allowed)
}

// servers are the processes to compare, with certificates of one authority.
type servers struct {
	authority *certs.Authority
	folder    string
	ours      string // the binary
}

func newServers(b *testing.B) *servers {
	b.Helper()
	s := &servers{authority: certs.New(b), folder: b.TempDir()}
	s.authority.Issue(b, time.Now().Add(time.Hour)).Write(b, s.folder)
	policy := "apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\nprofile: enforce\n"
	if err := os.WriteFile(filepath.Join(s.folder, "policy.yaml"), []byte(policy), 0o600); err != nil {
		b.Fatal(err)
	}
	s.ours = filepath.Join(s.folder, "nodewarden-webhook")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", s.ours, "github.com/nodewarden/nodewarden/cmd/nodewarden-webhook").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return s
}

// running is one of the servers.
type running struct {
	*exec.Cmd
	url string
	// client keeps one connection.
	client *http.Client
}

// start starts ours, typed or body, and returns when it answers.
func (s *servers) start(b *testing.B, role string) *running {
	b.Helper()
	r := s.prepare(b, role)
	if err := r.Start(); err != nil {
		b.Fatal(err)
	}
	return r.await(b)
}

// startOn is start, bound to one core.
func (s *servers) startOn(b *testing.B, core int, role string) *running {
	b.Helper()
	r := s.prepare(b, role)
	startOn(b, core, r.Cmd)
	return r.await(b)
}

func (s *servers) prepare(b *testing.B, role string) *running {
	b.Helper()
	at := free(b)
	r := &running{url: "https://" + at + "/validate", client: s.client()}
	if role == "ours" {
		r.Cmd = exec.Command(s.ours, "--bind-address", at, "--metrics-bind-address", free(b), "--config", filepath.Join(s.folder, "policy.yaml"),
			"--tls-cert-file", filepath.Join(s.folder, "tls.crt"), "--tls-private-key-file", filepath.Join(s.folder, "tls.key"))
	} else {
		r.Cmd = exec.Command(os.Args[0])
		r.Env = append(os.Environ(), roleEnv+"="+role, addressEnv+"="+at, folderEnv+"="+s.folder)
	}
	// No cleanup runs when a test times out.
	r.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return r
}

func (r *running) await(b *testing.B) *running {
	b.Helper()
	b.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait()
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := r.ask(big)
		if err == nil {
			return r
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s does not answer: %v", r.url, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *servers) client() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.authority.Pool()}, MaxIdleConnsPerHost: 16}}
}

// ask sends one review and reads the answer.
func (r *running) ask(body []byte) error {
	resp, err := r.client.Post(r.url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(text, []byte(`"allowed":true`)) {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

func free(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
