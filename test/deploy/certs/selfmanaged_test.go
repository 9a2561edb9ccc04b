package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	testcerts "github.com/nodewarden/nodewarden/test/integration/webhook/certs"
)

func TestAFreshInstallServesBeforeItsConfigurationExists(t *testing.T) {
	s := newScene(t)
	s.ready(s.replica(shared.Admin()))
	if secret := s.secret(); secret.Type != corev1.SecretTypeTLS || len(secret.Data) != 4 {
		t.Errorf("the Secret is of type %s, with %d keys", secret.Type, len(secret.Data))
	}
	s.configure()
	s.announced()
	s.believed()
}

func TestReplicasThatStartTogetherShareOneAuthority(t *testing.T) {
	for range 5 {
		s := newScene(t)
		s.configure()
		replicas := []*replica{s.replica(shared.Admin()), s.replica(shared.Admin()), s.replica(shared.Admin())}
		s.ready(replicas...)
		s.showsSecret()
		s.announced()
		if n := countCertificates(s.secret().Data["ca.crt"]); n != 1 {
			t.Errorf("%d authorities in the bundle, want 1", n)
		}
		for _, r := range replicas {
			r.stop()
		}
	}
}

func countCertificates(text []byte) (n int) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return n
		}
		n++
	}
}

// TestRotationLosesNoHandshake lets certificates of nine seconds, and their
// authorities of 36, be renewed again and again.
func TestRotationLosesNoHandshake(t *testing.T) {
	s := newScene(t)
	s.lifetime = 9 * time.Second
	s.configure()
	s.ready(s.replica(shared.Admin()), s.replica(shared.Admin()))
	s.announced()
	s.believed()
	l := s.underLoad()
	first := s.secret().Data["ca.key"]
	s.eventually("the authority was replaced", func(context.Context) error {
		if string(s.secret().Data["ca.key"]) == string(first) {
			return fmt.Errorf("still the first one, after %d certificates", l.certificates())
		}
		return nil
	})
	changed := l.certificates()
	s.eventually("and certificates of the new one were shown", func(context.Context) error {
		if n := l.certificates(); n < changed+3 {
			return fmt.Errorf("%d certificates", n)
		}
		return nil
	})
	if l.widest() < 2 {
		t.Error("no bundle ever held the old and the new authority")
	}
	l.end(t)
}

// TestWhatAnAdminMayDoToTheSecret is a Secret that is deleted, altered and half
// written, under load: nobody may notice but by a new certificate.
func TestWhatAnAdminMayDoToTheSecret(t *testing.T) {
	stranger := testcerts.New(t)
	expired := stranger.Issue(t, time.Now().Add(-time.Minute))
	for _, c := range []struct {
		name string
		do   func(*scene)
	}{
		{"it is deleted", func(s *scene) {
			must(s.T, s.admin.CoreV1().Secrets(s.name).Delete(s.Context(), secretName, metav1.DeleteOptions{}))
		}},
		{"the authority's key is removed, which asks for a new one", func(s *scene) {
			s.shape(func(data map[string][]byte) { delete(data, "ca.key") })
		}},
		{"half a pair is written", func(s *scene) {
			s.shape(func(data map[string][]byte) { data[corev1.TLSPrivateKeyKey] = expired.Key })
		}},
		{"an expired pair of somebody else's is written", func(s *scene) {
			s.shape(func(data map[string][]byte) {
				data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = expired.Certificate, expired.Key
			})
		}},
		{"everything is emptied", func(s *scene) {
			s.shape(func(data map[string][]byte) {
				for k := range data {
					data[k] = nil
				}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.configure()
			s.ready(s.replica(shared.Admin()), s.replica(shared.Admin()))
			s.announced()
			s.believed()
			l := s.underLoad()
			s.eventually("the first certificate was shown", func(context.Context) error {
				if l.certificates() == 0 {
					return fmt.Errorf("none")
				}
				return nil
			})
			c.do(s)
			s.eventually("a new certificate was shown", func(context.Context) error {
				if l.certificates() < 2 {
					return fmt.Errorf("still the old one")
				}
				return nil
			})
			s.showsSecret()
			s.announced()
			s.believed()
			l.end(t)
		})
	}
}

func TestTheConfigurationGetsItsBundleBack(t *testing.T) {
	s := newScene(t)
	s.configure()
	s.ready(s.replica(shared.Admin()), s.replica(shared.Admin()))
	s.announced()
	s.believed()
	hooks := s.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	t.Run("created anew without one", func(*testing.T) {
		must(t, hooks.Delete(t.Context(), s.name, metav1.DeleteOptions{}))
		s.configure()
		s.announced()
		s.believed()
	})
	t.Run("given somebody else's in one entry", func(t *testing.T) {
		c, err := s.configuration(t.Context())
		must(t, err)
		c.Webhooks[1].ClientConfig.CABundle = testcerts.New(t).PEM
		_, err = hooks.Update(t.Context(), c, metav1.UpdateOptions{})
		must(t, err)
		s.announced()
	})
	t.Run("and keeps everything else as it is", func(t *testing.T) {
		_, err := hooks.Patch(t.Context(), s.name, types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"by":"hand"}},"webhooks":[{"name":"contract.nodewarden.dev","timeoutSeconds":7,"clientConfig":{"caBundle":null}}]}`), metav1.PatchOptions{})
		must(t, err)
		s.announced()
		c, err := s.configuration(t.Context())
		must(t, err)
		if c.Labels["by"] != "hand" || *c.Webhooks[0].TimeoutSeconds != 7 || len(c.Webhooks) != 2 || len(c.Webhooks[0].MatchConditions) != 2 {
			t.Errorf("something else was changed: %+v", c)
		}
	})
}

// TestTheWebhookServesWhileTheAPIServerIsAway kills the API server: what was
// handed over is shown all the same, and everything is in step afterwards.
func TestTheWebhookServesWhileTheAPIServerIsAway(t *testing.T) {
	s := newScene(t)
	s.configure()
	r := s.replica(shared.Admin())
	s.ready(r)
	s.announced()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.secret().Data["ca.crt"])
	shared.KillAPIServer()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		must(t, shared.RestartAPIServer(ctx))
		s.announced()
		s.believed()
	}()
	for range 20 {
		if _, err := handshake(t.Context(), r.server.Address(), &tls.Config{RootCAs: pool, ServerName: serviceName, MinVersion: tls.VersionTLS12}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, r.server.Ready(t.Context()))
}
