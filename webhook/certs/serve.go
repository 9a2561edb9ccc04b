package certs

import (
	"crypto/x509"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// handover is everything that showing a new certificate depends on.
type handover struct {
	// shown is the certificate in use; nil where there is no usable one.
	shown *x509.Certificate
	// next is the one in the Secret.
	next *x509.Certificate
	// authorities are those in the Secret, newest first; the first signed next.
	authorities []*x509.Certificate
	// announced is since when the configuration is known to hold the first of
	// them; zero if it does not. No configuration is as good as one that does:
	// it will begin with the whole bundle.
	announced time.Time
	settle    time.Duration
	lifetime  time.Duration
}

// wait returns how long to keep what is shown; 0 means to show next now. It is
// at most settle unless the new authority is not announced at all.
func (h handover) wait(now time.Time) time.Duration {
	if h.usable(now) {
		if h.announced.IsZero() {
			return h.settle
		}
		return max(0, h.announced.Add(h.settle).Sub(now))
	}
	if len(h.authorities) < 2 {
		return 0 // nobody shows anything better
	}
	// Other replicas show what an older authority signed. Being not ready is
	// better than being ready and not trusted yet.
	return max(0, created(h.authorities[0]).Add(h.settle).Sub(now))
}

// usable says whether what is shown can stay for a while: with half of the
// time gone in which it should have been renewed, waiting is over.
func (h handover) usable(now time.Time) bool {
	return h.shown != nil && !now.Before(h.shown.NotBefore) && now.Before(h.shown.NotAfter.Add(-h.lifetime/6))
}

// holds says whether every entry of c is verified by authority.
func holds(c *admissionv1.ValidatingWebhookConfiguration, authority *x509.Certificate) bool {
	for i := range c.Webhooks {
		found := false
		for _, known := range decode(c.Webhooks[i].ClientConfig.CABundle) {
			found = found || known.Equal(authority)
		}
		if !found {
			return false
		}
	}
	return true
}

// trusted returns all authorities that any entry of c is verified by.
func trusted(c *admissionv1.ValidatingWebhookConfiguration) []*x509.Certificate {
	var all []*x509.Certificate
	if c == nil {
		return nil
	}
	for i := range c.Webhooks {
		all = append(all, decode(c.Webhooks[i].ClientConfig.CABundle)...)
	}
	return all
}
