package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nodewarden/nodewarden/test/bench/webhook/reviews"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

// asProgram makes this test binary the program under test.
const asProgram = "NODEWARDEN_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const patience = 20 * time.Second

func eventually(t *testing.T, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		last := ok()
		if last == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(last)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// program is a running nodewarden-webhook.
type program struct {
	*exec.Cmd
	address, metrics string
	exited           chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start runs the program on ports of its choice until the test ends.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{address: free(t), metrics: free(t), exited: make(chan struct{})}
	p.Cmd = exec.Command(os.Args[0], append([]string{"--bind-address", p.address, "--metrics-bind-address", p.metrics}, args...)...)
	p.Env = append(os.Environ(), asProgram+"=1")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout, p.Stderr = in, in
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	go p.keep(out)
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%s:\n%s", p.address, p.logged())
		}
	})
	return p
}

func (p *program) keep(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
	}
	_ = p.Wait()
	close(p.exited)
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// exit waits for the program and returns its exit code.
func (p *program) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatal("does not end")
		return 0
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// ready says why p is not ready.
func (p *program) ready() error {
	resp, err := http.Get("http://" + p.metrics + "/readyz")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return nil
}

func (p *program) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + p.metrics + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// place is a folder with certificates, and a client that trusts them.
type place struct {
	folder    string
	authority *certs.Authority
	client    *http.Client
}

func newPlace(t *testing.T) *place {
	a := certs.New(t)
	return &place{t.TempDir(), a, &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool()}}}}
}

// flags are the flags that name the certificate in the folder.
func (p *place) flags() []string {
	return []string{"--tls-cert-file", filepath.Join(p.folder, "tls.crt"), "--tls-private-key-file", filepath.Join(p.folder, "tls.key")}
}

func (p *place) certify(t *testing.T) {
	p.authority.Issue(t, time.Now().Add(time.Hour)).Write(t, p.folder)
}

// enforce writes a policy file that refuses, and returns the flag for it.
func (p *place) enforce(t *testing.T) string {
	path := filepath.Join(p.folder, "policy.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\nprofile: enforce\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + path
}

// ask sends a detector's write to at and returns the answer.
func (p *place) ask(at string, body []byte) (string, error) {
	resp, err := p.client.Post("https://"+at+"/validate", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(text), err
}

func goodWrite() []byte {
	n := reviews.Node("n1")
	return reviews.Body(reviews.Update(n, reviews.Detect(n, reviews.Heartbeat.Add(time.Minute)), reviews.Detector))
}

func badWrite() []byte {
	return bytes.Replace(goodWrite(), []byte("OutOfBandProbeFailed"), []byte("NodeStatusUnknown"), 1)
}

// service is a Service with several endpoints, as an API server uses it: it
// sends to those that were ready when it last heard.
type service struct {
	replicas []*program
	ready    []atomic.Bool
	next     atomic.Int32
}

func newService(t *testing.T, replicas ...*program) *service {
	s := &service{replicas: replicas, ready: make([]atomic.Bool, len(replicas))}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	for i := range replicas {
		watching.Go(func() {
			for ctx.Err() == nil {
				s.ready[i].Store(replicas[i].ready() == nil)
				time.Sleep(100 * time.Millisecond) // endpoints are always a little late
			}
		})
	}
	t.Cleanup(func() { cancel(); watching.Wait() })
	return s
}

// pick returns the index of the next ready endpoint, or -1.
func (s *service) pick() int {
	for range s.replicas {
		if i := int(s.next.Add(1)) % len(s.replicas); s.ready[i].Load() {
			return i
		}
	}
	return -1
}

// traffic sends 50 reviews a second until stop is closed, and returns how many
// were answered and what was lost, by endpoint.
func (s *service) traffic(p *place, stop <-chan struct{}) (answered []int, lost [][]error) {
	answered, lost = make([]int, len(s.replicas)), make([][]error, len(s.replicas))
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	body := goodWrite()
	for {
		select {
		case <-stop:
			return answered, lost
		case <-every.C:
		}
		i := s.pick()
		if i < 0 {
			continue
		}
		if _, err := p.ask(s.replicas[i].address, body); err != nil {
			lost[i] = append(lost[i], err)
			continue
		}
		answered[i]++
	}
}

// TestARollingUpdateLosesNoReview is B39: 50 reviews a second while one replica
// is told to stop and comes back, then another is killed without a word.
func TestARollingUpdateLosesNoReview(t *testing.T) {
	p := newPlace(t)
	p.certify(t)
	flags := append(p.flags(), "--drain=1s")
	a, b := start(t, flags...), start(t, flags...)
	for _, r := range []*program{a, b} {
		eventually(t, r.ready)
	}
	s := newService(t, a, b)
	stop, done := make(chan struct{}), make(chan struct{})
	var answered []int
	var lost [][]error
	go func() {
		defer close(done)
		answered, lost = s.traffic(p, stop)
	}()
	eventually(t, func() error {
		if !s.ready[0].Load() || !s.ready[1].Load() {
			return errors.New("not both are ready")
		}
		return nil
	})
	time.Sleep(500 * time.Millisecond) // traffic over connections that will be kept alive
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if a.ready() == nil {
			return errors.New("ready after SIGTERM")
		}
		return nil
	})
	if code := a.exit(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	close(stop)
	<-done
	if all := slices.Concat(lost...); len(all) > 0 {
		t.Errorf("%d reviews lost, first: %v", len(all), all[0])
	}
	if answered[0] < 10 || answered[1] < 10 {
		t.Errorf("answered %v; the story needs both", answered)
	}

	// Killed: what was sent to it until its end was noticed is lost, and no more.
	c := start(t, flags...)
	eventually(t, c.ready)
	s = newService(t, c, b)
	eventually(t, func() error {
		if s.pick() < 0 {
			return errors.New("nobody is ready")
		}
		return nil
	})
	stop, done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		answered, lost = s.traffic(p, stop)
	}()
	time.Sleep(500 * time.Millisecond)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	close(stop)
	<-done
	if len(lost[1]) > 0 {
		t.Errorf("the replica that lives lost %d, first: %v", len(lost[1]), lost[1][0])
	}
	if len(lost[0]) > 25 {
		t.Errorf("%d reviews went to a dead replica", len(lost[0]))
	}
}

func TestAReplicaIsNotReadyBeforeItsCertificateIsThere(t *testing.T) {
	p := newPlace(t)
	r := start(t, p.flags()...)
	eventually(t, func() error {
		conn, err := net.Dial("tcp", r.address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	eventually(t, func() error { // the health port may come a little later
		if err := r.ready(); err == nil || !strings.Contains(err.Error(), "503 not ready: no serving certificate") {
			return fmt.Errorf("readyz says %w", err)
		}
		return nil
	})
	if _, err := p.ask(r.address, goodWrite()); err == nil {
		t.Error("answered without a certificate")
	}
	if got := r.get(t, "/healthz"); got != "ok\n" {
		t.Errorf("healthz says %q", got)
	}
	p.certify(t)
	eventually(t, r.ready)
	if text, err := p.ask(r.address, goodWrite()); err != nil || !strings.Contains(text, `"allowed":true`) {
		t.Errorf("%v %s", err, text)
	}
}

func TestARefusalIsLoggedAsJSONAndCounted(t *testing.T) {
	p := newPlace(t)
	p.certify(t)
	r := start(t, append(p.flags(), p.enforce(t), "--logging-format=json")...)
	eventually(t, r.ready)
	text, err := p.ask(r.address, badWrite())
	if err != nil || !strings.Contains(text, `"allowed":false`) || !strings.Contains(text, "[ReservedReason]") {
		t.Fatalf("%v %s", err, text)
	}
	eventually(t, func() error {
		for line := range strings.Lines(r.logged()) {
			if strings.HasPrefix(line, "{") && strings.Contains(line, `"msg":"refused a write to Ready","v":0,"node":"n1","writer":"system:serviceaccount:monitoring:detector","rules":"ReservedReason","dryRun":false`) {
				return nil
			}
		}
		return errors.New("no such line:\n" + r.logged())
	})
	metrics := r.get(t, "/metrics")
	for _, want := range []string{
		`nodewarden_webhook_violations_total{action="deny",rule="ReservedReason",writer="monitoring/detector"} 1`,
		"nodewarden_webhook_certificate_expiry_timestamp_seconds 1.", "go_goroutines", "process_cpu_seconds_total",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestWrongUseEndsTheProgram(t *testing.T) {
	p := newPlace(t)
	p.certify(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	bad := filepath.Join(p.folder, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: config.nodewarden.dev/v1alpha1\nkind: WebhookConfiguration\nprofile: strict\nrecoveryHold: soon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"several wrong flags at once": {[]string{"--drain=soon", "--max-in-flight=0", "--bind-address=9443", "--logging-format=xml", "serve"}, 2,
			[]string{"--drain", "--max-in-flight", "--bind-address", "--logging-format: ", `"serve"`, "--tls-cert-file", "--tls-private-key-file", "--help"}},
		"files without a name":    {append(p.flags(), "--config=", "--client-ca-file=", "--kubeconfig="), 2, []string{`--config "": want the path of a file`, `--client-ca-file ""`, `--kubeconfig ""`}},
		"an unknown flag":         {append(p.flags(), "--tls-cert=x"), 2, []string{"unknown flag: --tls-cert"}},
		"the port is in use":      {append(p.flags(), "--bind-address", taken.Addr().String()), 1, []string{"cannot serve reviews", "address already in use"}},
		"the other is":            {append(p.flags(), "--metrics-bind-address", taken.Addr().String()), 1, []string{"cannot serve health and metrics", "address already in use"}},
		"no such policy file":     {append(p.flags(), "--config=none.yaml"), 1, []string{"none.yaml", "no such file"}},
		"a policy file is wrong":  {append(p.flags(), "--config", bad), 1, []string{"profile", "strict", "recoveryHold", "soon"}},
		"help is asked for":       {[]string{"--help"}, 0, []string{"--tls-cert-file", "--drain", "KEP-6371"}},
		"the version is":          {[]string{"--version"}, 0, []string{"nodewarden-webhook "}},
		"the policy is to print":  {[]string{"--print-config"}, 0, []string{"kind: WebhookConfiguration", "profile: warn", "recoveryHold: 10s"}},
		"a wrong one is to print": {[]string{"--print-config", "--config", bad}, 1, []string{"recoveryHold"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, c.args...)
			if code := r.exit(t); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(r.logged(), want) {
					t.Errorf("does not mention %q:\n%s", want, r.logged())
				}
			}
		})
	}
}
