package certs

import (
	"testing"
	"time"
)

func TestALifetimeIsOneThatCertificatesCanExpress(t *testing.T) {
	o := DefaultOptions()
	o.Secret, o.Configuration, o.Names = "system/tls", "contract", usual.names
	for lifetime, good := range map[time.Duration]bool{
		-time.Hour: false, time.Second: false, minLifetime: true, DefaultLifetime: true,
		MaxLifetime: true, MaxLifetime + 1: false, 10 * MaxLifetime: false,
	} {
		o.Lifetime = lifetime
		if errs := o.Validate(); (len(errs) == 0) != good {
			t.Errorf("%s: %v", lifetime, errs)
		}
		if good {
			made := read(fresh(t, o.want(), noon))
			if p := decide(made, o.want(), noon); p.asks() || made.leaf.NotAfter.Sub(noon) != lifetime {
				t.Errorf("%s: a certificate until %s, and at once %q", lifetime, made.leaf.NotAfter, p.reason())
			}
		}
	}
}
