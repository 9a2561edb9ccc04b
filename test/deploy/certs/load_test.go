package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// load is everybody who depends on the certificates: API servers that heard of
// the newest configuration, API servers that are late, and detectors.
type load struct {
	scene *scene
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu         sync.Mutex
	handshakes int
	writes     int
	lost       []error
	seen       map[string]bool // certificates, by serial number
	bundles    []bundle
}

// bundle is what a configuration held, and since when it was known.
type bundle struct {
	pools []*x509.CertPool
	known time.Time
	count int
}

// late is how far behind an API server may be: less than the settling time.
const late = settle / 2

// underLoad starts the load on a scene whose configuration is announced.
func (s *scene) underLoad() *load {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	l := &load{scene: s, stop: cancel, seen: map[string]bool{}}
	s.Cleanup(func() { cancel(); l.done.Wait() })
	c, err := s.configuration(ctx)
	must(s.T, err)
	l.hear(c, time.Now().Add(-time.Hour))
	l.done.Go(func() { l.listen(ctx) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.replicas {
		l.done.Go(func() { l.shakeHands(ctx, r.server.Address(), 0) })
		l.done.Go(func() { l.shakeHands(ctx, r.server.Address(), late) })
	}
	l.done.Go(func() { l.write(ctx) })
	return l
}

func (l *load) hear(c *admissionv1.ValidatingWebhookConfiguration, at time.Time) {
	b := bundle{known: at}
	for i := range c.Webhooks {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(c.Webhooks[i].ClientConfig.CABundle)
		b.pools = append(b.pools, pool)
		b.count = max(b.count, strings.Count(string(c.Webhooks[i].ClientConfig.CABundle), "BEGIN"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bundles = append(l.bundles, b)
}

// listen follows the configuration by a watch, as an API server does.
func (l *load) listen(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := l.scene.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + l.scene.name})
		if err != nil {
			continue
		}
		for event := range w.ResultChan() {
			if c, ok := event.Object.(*admissionv1.ValidatingWebhookConfiguration); ok && event.Type != "DELETED" {
				l.hear(c, time.Now())
			}
		}
	}
}

// believes returns the bundle as somebody knows it who hears of changes late.
func (l *load) believes(delay time.Duration) bundle {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.bundles[0]
	for _, b := range l.bundles {
		if time.Since(b.known) >= delay {
			last = b
		}
	}
	return last
}

func (l *load) shakeHands(ctx context.Context, address string, delay time.Duration) {
	for ctx.Err() == nil {
		for _, pool := range l.believes(delay).pools {
			c, err := handshake(ctx, address, &tls.Config{RootCAs: pool, ServerName: serviceName, MinVersion: tls.VersionTLS12})
			if ctx.Err() != nil {
				return
			}
			l.mu.Lock()
			l.handshakes++
			if err != nil {
				l.lost = append(l.lost, fmt.Errorf("%s, handshake %d, %s late: %w", time.Now().Format("05.000"), l.handshakes, delay, err))
			} else {
				l.seen[c.SerialNumber.String()] = true
			}
			l.mu.Unlock()
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func (l *load) write(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		err := l.scene.write(ctx, fmt.Sprint("probe ", n))
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.writes++
		if err != nil {
			l.lost = append(l.lost, fmt.Errorf("%s, write %d: %w", time.Now().Format("05.000"), n, err))
		}
		l.mu.Unlock()
		pause(ctx, 20*time.Millisecond)
	}
}

// pause spaces requests; it waits for nothing.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// certificates returns how many different ones were shown so far.
func (l *load) certificates() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

// widest returns the largest bundle so far.
func (l *load) widest() (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bundles {
		most = max(most, b.count)
	}
	return most
}

// end stops the load once it was one; nothing may have been lost.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.scene.eventually("a hundred handshakes and ten writes", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.handshakes < 100 || l.writes < 10 {
			return fmt.Errorf("%d handshakes, %d writes", l.handshakes, l.writes)
		}
		return nil
	})
	l.stop()
	l.done.Wait()
	t.Logf("%d handshakes, %d writes through the API server, %d certificates, %d configurations", l.handshakes, l.writes, len(l.seen), len(l.bundles))
	if len(l.lost) > 0 {
		t.Errorf("%d lost: %v", len(l.lost), errors.Join(l.lost[:min(5, len(l.lost))]...))
	}
}
