package webhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewarden/nodewarden/test/controlplane"
	"github.com/nodewarden/nodewarden/test/controlplane/guard"
	"github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

// service is a Service in front of webhooks: each connection goes to one of
// those that were ready when it last looked.
type service struct {
	net.Listener
	mu       sync.Mutex
	replicas []*replica
	next     int
}

// replica is one webhook behind a service.
type replica struct {
	*controlplane.Process
	address, aside string
	ready          bool
}

func (r *replica) isReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.aside+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: %s", resp.Status)
	}
	return nil
}

// serve forwards connections until ctx ends, and keeps the endpoints current,
// a little late, as those of a cluster are.
func (s *service) serve(ctx context.Context) {
	go func() {
		for ctx.Err() == nil {
			s.mu.Lock()
			current := append([]*replica(nil), s.replicas...)
			s.mu.Unlock()
			for _, r := range current {
				ok := r.isReady(ctx) == nil
				s.mu.Lock()
				r.ready = ok
				s.mu.Unlock()
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		go s.forward(conn)
	}
}

func (s *service) forward(in net.Conn) {
	defer func() { _ = in.Close() }()
	to := s.pick()
	if to == "" {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	done := make(chan struct{}, 2)
	pipe := func(a, b net.Conn) {
		_, _ = io.Copy(a, b)
		_ = a.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}
	go pipe(in, out)
	go pipe(out, in)
	<-done
	<-done
}

func (s *service) pick() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.replicas {
		s.next = (s.next + 1) % len(s.replicas)
		if r := s.replicas[s.next]; r.ready {
			return r.address
		}
	}
	return ""
}

func (s *service) add(r *replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = append(s.replicas, r)
}

// replica starts one more replica with the certificate in folder.
func (c *cluster) replica(folder string) *replica {
	c.Helper()
	binary, err := guard.Build(c.Context(), shared, "nodewarden-webhook")
	if err != nil {
		c.Fatal(err)
	}
	r := &replica{}
	for _, address := range []*string{&r.address, &r.aside} {
		port, err := controlplane.FreePort()
		if err != nil {
			c.Fatal(err)
		}
		*address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	r.Process, err = shared.Run(c.Context(), controlplane.Command{Path: binary, Ready: r.isReady, Args: []string{
		"--bind-address", r.address, "--metrics-bind-address", r.aside, "--drain=2s",
		"--tls-cert-file", filepath.Join(folder, "tls.crt"), "--tls-private-key-file", filepath.Join(folder, "tls.key"),
	}})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(r.Kill)
	return r
}

// TestReplacingEveryReplicaLosesNoWrite: the API server calls a service whose
// two replicas are replaced one after the other, while a detector writes all
// the time and nothing fails open.
func TestReplacingEveryReplicaLosesNoWrite(t *testing.T) {
	c := inCluster(t)
	authority, folder := certs.New(t), t.TempDir()
	authority.Issue(t, time.Now().Add(time.Hour)).Write(t, folder)
	s := &service{Listener: listen(t)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.serve(ctx)
	old := []*replica{c.replica(folder), c.replica(folder)}
	for _, r := range old {
		s.add(r)
	}
	c.point("https://"+s.Addr().String()+"/validate", authority.PEM)
	n, detector := c.register("rolling"), c.detector()
	write := func(ctx context.Context) error {
		return fails(ctx, detector, n.Name, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	c.eventually("the webhook is in force", func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			return err
		}
		for _, r := range old {
			if called(ctx, r) > 0 {
				return nil
			}
		}
		return fmt.Errorf("no replica was called")
	})

	stop, done := make(chan struct{}), make(chan struct{})
	var written atomic.Int32
	go func() {
		defer close(done)
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case <-every.C:
			}
			if err := write(ctx); err != nil {
				if ctx.Err() == nil {
					t.Errorf("a write was lost: %v", err)
				}
				return
			}
			written.Add(1)
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	var replaced []*replica
	for _, r := range old {
		next := c.replica(folder)
		replaced = append(replaced, next)
		s.add(next)
		c.eventually("the new replica is in the service", func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !next.ready {
				return fmt.Errorf("not ready")
			}
			return nil
		})
		if err := r.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(); err != nil || r.ExitCode() != 0 {
			t.Errorf("a replica ended with %d: %v", r.ExitCode(), err)
		}
	}
	before := written.Load()
	c.eventually("writes go on", func(ctx context.Context) error {
		var calls float64
		for _, r := range replaced {
			calls += called(ctx, r)
		}
		if calls == 0 {
			return fmt.Errorf("the new replicas were not called")
		}
		return nil
	})
	if before < 20 {
		t.Errorf("only %d writes during the update; the story needs more", before)
	}
}

// called is how many reviews r has answered.
func called(ctx context.Context, r *replica) float64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.aside+"/metrics", nil)
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	page, _ := io.ReadAll(resp.Body)
	return guard.Sum(string(page), "nodewarden_webhook_reviews_total")
}
